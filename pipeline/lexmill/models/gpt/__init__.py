"""The decoder-only Transformer."""
