"""A tag before a source that asks for a target language, `<2de>` (Johnson et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

KEY = "target_languages"  # of a model's config: the languages that its tags ask for


def tag(tokenizer: Tokenizer, language: str) -> list[int]:
    """Return the ids of a language's tag; they stand before those of the source, segmented by itself.

    Raises:
        UserError: the tokenizer knows no character of it, so that tags could be alike.
    """
    ids = tokenizer.encode(f"<2{language}>")
    if tokenizer.unk_id in ids:
        raise UserError(f"data.target_languages: the tokenizer cannot write the tag <2{language}>; take a bpe one")
    return ids


def asking(tokenizer: Tokenizer, config: Mapping[str, Any], language: str) -> list[int]:
    """Return the ids by which a model is asked for a language; none for a model of one language.

    Raises:
        UserError: it does not write the language.
    """
    if not config.get(KEY):
        return []
    if language not in config[KEY]:
        raise UserError(f"to: {value_text(language)} is no language that it writes; there are {', '.join(config[KEY])}")
    return tag(tokenizer, language)
