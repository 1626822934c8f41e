"""The prefixes of an imported translator as ids: which language it reads and writes, or what it is asked to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.base.strict import nearest

if TYPE_CHECKING:
    from lexmill.models.declaration import Sizes
    from lexmill.tokenizers import Tokenizer


def begins_of(shape: Sizes, tokenizer: Tokenizer) -> dict[str, list[int]]:
    """Return the ids of the prefixes by side, as a model folder's config.json has them; {} where there are none.

    Raises:
        UserError: a prefix is no token, where it must be one, or has characters that the tokenizer does not know.
    """
    if not any(shape.prefixes):
        return {}
    source, target = (text.strip() for text in shape.prefixes)
    one = shape.prefix_is_token
    read = _token(tokenizer, "source_prefix", source) if one else _text(tokenizer, "source_prefix", source)
    return {"source": read, "target": _token(tokenizer, "target_prefix", target)}


def _token(tokenizer: Tokenizer, key: str, text: str) -> list[int]:
    if not text:
        return []
    found = tokenizer.backend.token_to_id(text)
    if found is None:
        known = [token for i in sorted(tokenizer.unseen) if (token := tokenizer.backend.id_to_token(i))]
        raise UserError(f"shape.{key}: the tokenizer has no token {value_text(text)}{nearest(text, known)}")
    return [int(found)]


def _text(tokenizer: Tokenizer, key: str, text: str) -> list[int]:
    ids = tokenizer.encode(text)
    if tokenizer.unk_id in ids:
        raise UserError(f"shape.{key}: the tokenizer does not know all characters of {value_text(text)}")
    return ids
