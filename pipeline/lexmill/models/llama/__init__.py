"""The modern decoder-only Transformer."""
