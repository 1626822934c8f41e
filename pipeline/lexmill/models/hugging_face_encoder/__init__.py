"""Encoders computed by `transformers`."""
