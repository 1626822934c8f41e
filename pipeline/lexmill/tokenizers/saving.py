"""A tokenizer folder that `lexmill.tokenizers.load` and `transformers.AutoTokenizer` both read, with the same ids."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from lexmill.base import storage
from lexmill.tokenizers.tokenizer import BOS, EOS, MASK, PAD, SPECIAL_TOKENS, UNK


def save(backend: tokenizers.Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json into an existing folder."""
    special = {
        "pad_token": SPECIAL_TOKENS[PAD],
        "unk_token": SPECIAL_TOKENS[UNK],
        "bos_token": SPECIAL_TOKENS[BOS],
        "eos_token": SPECIAL_TOKENS[EOS],
        "mask_token": SPECIAL_TOKENS[MASK],
    }
    config = {
        **special,
        "tokenizer_class": "PreTrainedTokenizerFast",
        # Special tokens typed in a text stay text; decoding touches no space.
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }
    storage.write_text(folder / "tokenizer.json", backend.to_str(pretty=True) + "\n")
    storage.write_json(folder / "tokenizer_config.json", config)
    storage.write_json(folder / "special_tokens_map.json", special)
