"""The convolutional network for sentences of Kim (2014)."""
