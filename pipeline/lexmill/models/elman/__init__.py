"""The simple recurrent language model."""
