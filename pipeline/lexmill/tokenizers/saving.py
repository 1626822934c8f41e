"""Tokenizer folders that `lexmill.tokenizers.load` and `transformers.AutoTokenizer` both read, with the same ids."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from lexmill.base import storage
from lexmill.tokenizers.tokenizer import BOS, EOS, MASK, PAD, SPECIAL_TOKENS, UNK


def save(backend: tokenizers.Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json into an existing folder."""
    ids = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS, "mask": MASK}
    storage.write_text(folder / "tokenizer.json", backend.to_str(pretty=True) + "\n")
    write_config({f"{role}_token": SPECIAL_TOKENS[i] for role, i in ids.items()}, folder)


def write_config(special: dict[str, str], folder: Path) -> None:
    """Write tokenizer_config.json and special_tokens_map.json for `transformers`, from its names of special tokens."""
    config = {
        **special,
        "tokenizer_class": "PreTrainedTokenizerFast",
        # Special tokens typed in a text stay text; decoding keeps spaces.
        "split_special_tokens": True,
        "clean_up_tokenization_spaces": False,
    }
    storage.write_json(folder / "tokenizer_config.json", config)
    storage.write_json(folder / "special_tokens_map.json", special)
