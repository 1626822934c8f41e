"""Encoder-decoders computed by `transformers`."""
