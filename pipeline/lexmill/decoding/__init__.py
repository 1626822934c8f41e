"""Decoding: sampling from language models, beam search for translators, forced scoring."""
