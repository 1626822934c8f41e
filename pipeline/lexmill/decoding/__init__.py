"""Decoding: sampling from causal models, beam search for encoder-decoders, what answers a user."""
