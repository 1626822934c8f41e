"""The encoder-decoder Transformer."""
