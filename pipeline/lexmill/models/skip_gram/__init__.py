"""The skip-gram model with negative sampling of Mikolov et al. (2013), known as word2vec."""
