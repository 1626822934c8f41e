"""Tokenizers: trained with the `tokenizers` library, saved so that `transformers` loads them too."""

from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS, Tokenizer, load

__all__ = ["SPECIAL_TOKENS", "Tokenizer", "load"]
