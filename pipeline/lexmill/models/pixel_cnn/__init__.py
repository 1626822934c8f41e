"""A convolutional network that looks at a text drawn as pixels."""
