"""Decoding: sampling from language models, beam search for translators, labels of classifiers."""
