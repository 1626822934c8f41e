"""The recurrent language model."""
