"""The convolutional encoder-decoder."""
