"""Which tokens of a text are masked, and what replaces them.

A share of the tokens is chosen: single tokens (Devlin et al. 2019), whole words, or spans of whole words whose lengths
are geometric with p = 0.2, at most 10 (Joshi et al. 2020). Of what is chosen 80 % becomes the mask token, 10 % a random
token, 10 % stays; of spans each is treated as one.

T tokens of a text, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from lexmill.base.errors import UserError
from lexmill.tokenizers.tokenizer import SPACE_MARK

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Masking = Literal["token", "word", "span"]

SPAN_P, LONGEST_SPAN = 0.2, 10
_LENGTHS = SPAN_P * (1 - SPAN_P) ** np.arange(LONGEST_SPAN)
_REACHED = np.cumsum(_LENGTHS / _LENGTHS.sum())  # of span lengths 1, 2, ...


@dataclass(frozen=True)
class Vocabulary:
    """What masking needs of a tokenizer.

    Attributes:
        mask_id: the mask token.
        ordinary: ids of no special token; random tokens are drawn from these.
        special: whether an id is a special token's, (V,).
        opens, continues: whether a word goes on after a token of that id, if the next one continues it, (V,) each.
    """

    mask_id: int
    ordinary: Ids
    special: Flags
    opens: Flags
    continues: Flags

    def word_starts(self, ids: Ids) -> Ids:
        """Return the positions at which the words of `ids` start."""
        within = self.opens[ids[:-1]] & self.continues[ids[1:]]
        return np.flatnonzero(np.concatenate([[True], ~within])) if len(ids) else np.empty(0, np.int64)


@lru_cache(maxsize=8)
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """Describe a tokenizer, from memory the second time; raise `UserError` if it has no mask token.

    A word goes on from token to token where a letter or digit follows a letter or digit; WordPiece says so itself.
    """
    if tokenizer.mask_id is None:
        raise UserError("this tokenizer has no mask token, and none of its tokens can be masked; take another")
    size, special = tokenizer.vocab_size, np.zeros(tokenizer.vocab_size, dtype=np.bool_)
    special[[*tokenizer.unseen, *tokenizer.never_written, tokenizer.eos_id]] = True
    opens, continues = np.ones(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    marked = tokenizer.backend.model.continuing_subword_prefix if _is_wordpiece(tokenizer) else None
    for i in range(size):
        token = tokenizer.backend.id_to_token(i) or ""
        if marked:
            continues[i] = token.startswith(marked)
        else:
            text = tokenizer.backend.decode([i], skip_special_tokens=False)
            opens[i], continues[i] = _is_of_word(text[-1:]), _is_of_word(text[:1]) and not token.startswith(SPACE_MARK)
    opens[special] = continues[special] = False
    return Vocabulary(tokenizer.mask_id, np.flatnonzero(~special).astype(np.int64), special, opens, continues)


def _is_wordpiece(tokenizer: Tokenizer) -> bool:
    return type(tokenizer.backend.model).__name__ == "WordPiece"


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "\ufffd"  # of a token that is a part of a character


@dataclass(frozen=True)
class Plan:
    """How texts are masked.

    Attributes:
        masking, share: what is masked as one, and the share of the tokens.
        keep: a tenth of what is chosen stays, and a tenth becomes random tokens; else all becomes the mask token.
    """

    vocabulary: Vocabulary
    masking: Masking
    share: float
    keep: bool = True


def mask(ids: Ids, plan: Plan, generator: np.random.Generator) -> tuple[Ids, Flags]:
    """Return a text (T,) as the network reads it, and which of its tokens it predicts, (T,).

    At least one token is chosen, unless all are special; no word is cut, so a little fewer than the share may be.
    """
    words, tokens, chosen = plan.vocabulary, ids.copy(), np.zeros(len(ids), dtype=np.bool_)
    for unit in _chosen(ids, plan, generator):
        chosen[unit] = True
        for part in [unit] if plan.masking == "span" else np.split(unit, len(unit)):
            draw = generator.random() if plan.keep else 0.0
            if draw < 0.8:
                tokens[part] = words.mask_id
            elif draw < 0.9:
                tokens[part] = words.ordinary[generator.integers(0, len(words.ordinary), len(part))]
    return tokens, chosen


def _chosen(ids: Ids, plan: Plan, generator: np.random.Generator) -> list[Ids]:
    """Return the positions of what is chosen: tokens, words or spans, as arrays."""
    words, masking = plan.vocabulary, plan.masking
    able = ~words.special[ids]
    count = int(able.sum())
    budget = max(1, round(plan.share * count)) if count else 0
    if masking == "token":
        return [np.sort(generator.permutation(np.flatnonzero(able))[:budget])] if budget else []
    starts = words.word_starts(ids)
    units = [unit for unit in np.split(np.arange(len(ids)), starts[1:]) if len(unit)]
    free = [bool(able[unit].all()) for unit in units]
    found: list[Ids] = []
    for first in generator.permutation(len(units)):
        length = 1 if masking == "word" else 1 + int(np.searchsorted(_REACHED, generator.random(), side="right"))
        span: list[Ids] = []
        for i in range(first, min(first + length, len(units))):
            size = sum(map(len, span)) + len(units[i])
            if not free[i] or (size > budget and (found or span)):
                break
            span.append(units[i])
            free[i] = False
        if span:
            found.append(np.concatenate(span))
            budget -= len(found[-1])
        if budget <= 0:
            break
    return found
