"""The BERT encoder."""
