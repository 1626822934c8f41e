"""A multi-layer perceptron on the mean of a text's word embeddings (Iyyer et al. 2015)."""
