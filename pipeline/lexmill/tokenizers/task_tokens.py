"""Start, delimiter and extract tokens for a task on whole texts (Radford et al. 2018), added to a tokenizer.

They are three more ids after the tokenizer's own. A text is then `<start> text <extract>`, a pair
`<start> first <delimiter> second <extract>`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.tokenizers.imported import origin_of
from lexmill.tokenizers.saving import serialized
from lexmill.tokenizers.tokenizer import SPECIAL, Tokenizer, load

TASK_TOKENS = ("<start>", "<delimiter>", "<extract>")


def with_task_tokens(folder: Path) -> Tokenizer:
    """Return the tokenizer of a folder with the three tokens.

    Raises:
        UserError: it has such a token, or ids with holes.
    """
    return _added(folder)[0]


def add_task_tokens(folder: Path) -> None:
    """Give the tokenizer of a folder the three tokens, in place; raise like `with_task_tokens`."""
    tokenizer, special = _added(folder)
    storage.write_text(folder / "tokenizer.json", serialized(tokenizer.backend))
    storage.write_json(folder / SPECIAL, special)
    begin, _, end = TASK_TOKENS
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        known = storage.read_json(folder / name)
        storage.write_json(folder / name, {**known, "bos_token": begin, "eos_token": end})


def _added(folder: Path) -> tuple[Tokenizer, dict[str, Any]]:
    """Return the tokenizer and its special_tokens.json."""
    import tokenizers

    plain = load(folder)
    backend = tokenizers.Tokenizer.from_str(plain.backend.to_str())
    backend.add_special_tokens([tokenizers.AddedToken(name, special=True, normalized=False) for name in TASK_TOKENS])
    ids = [plain.vocab_size + place for place in range(len(TASK_TOKENS))]
    if [backend.token_to_id(name) for name in TASK_TOKENS] != ids:
        raise UserError(
            f"recipe.task_tokens adds {', '.join(TASK_TOKENS)}, but this tokenizer has such a token, or ids with holes;"
            " set task_tokens: false",
            folder,
        )
    start, delimiter, extract = ids
    known = storage.read_json(folder / SPECIAL) if plain.imported else {"space_mark": False}
    special = known | {
        "eos": extract,
        "bos": start,
        "pad": plain.pad_id,
        "mask": plain.mask_id,
        "unk": plain.unk_id,
        "unseen": sorted({*plain.unseen, *ids}),
        "cuts_at_space": plain.cuts_at_space,
        "keeps_text": plain.keeps_text,
        "origin": origin_of(folder),
        "delimiter": delimiter,
    }
    return Tokenizer(backend, storage.sha256_bytes(serialized(backend).encode()), special), special
