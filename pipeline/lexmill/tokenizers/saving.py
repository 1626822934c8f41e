"""Tokenizer folders that `lexmill.tokenizers.load` and `transformers.AutoTokenizer` both read, with the same ids."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.tokenizers.tokenizer import BOS, EOS, MASK, PAD, SPECIAL, SPECIAL_TOKENS, UNK, Tokenizer

_PREFIX = "prefix"  # name of several ids in a template


def serialized(backend: tokenizers.Tokenizer) -> str:
    """Return the text of a tokenizer.json."""
    return str(backend.to_str(pretty=True)) + "\n"


def save(backend: tokenizers.Tokenizer, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json into an existing folder."""
    ids = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS, "mask": MASK}
    storage.write_text(folder / "tokenizer.json", serialized(backend))
    write_config({f"{role}_token": SPECIAL_TOKENS[i] for role, i in ids.items()}, folder)


def save_adding(tokenizer: Tokenizer, path: Path, *, begins: Sequence[int]) -> None:
    """Write a tokenizer.json for other programs that adds these ids before each text, and the end token after it."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    last = str(backend.id_to_token(tokenizer.eos_id))
    names = [str(backend.id_to_token(i)) for i in begins]
    first = [names[0] if len(names) == 1 and ":" not in names[0] else _PREFIX] if names else []
    between = [(str(backend.id_to_token(i)), i) for i in tokenizer.between]
    added = {name: {"id": name, "ids": list(begins), "tokens": names} for name in first}
    added |= {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in [*between, (last, tokenizer.eos_id)]}
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single=[*first, "$A", last],
        pair=[*first, "$A", *(name for name, _ in between), "$B:1", f"{last}:1"],
        special_tokens=list(added.values()),
    )
    storage.write_text(path, serialized(backend))


def add_padding(folder: Path) -> None:
    """Give the imported tokenizer of a folder a padding token of its own, with the id after the last.

    Raises:
        UserError: its ids have holes, so that the library would give it another.
    """
    data = storage.read_json(folder / SPECIAL)
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    known = backend.get_vocab()
    token, number = SPECIAL_TOKENS[PAD], max(known.values()) + 1
    while token in known:
        token = f"<{token}>"
    backend.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False)])
    if backend.token_to_id(token) != number:
        raise UserError("this tokenizer pads with its end token and its ids have holes, so no token can be added")
    storage.write_text(folder / "tokenizer.json", serialized(backend))
    storage.write_json(folder / SPECIAL, {**data, "pad": number, "unseen": [*data["unseen"], number]})
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        storage.write_json(folder / name, {**storage.read_json(folder / name), "pad_token": token})


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
