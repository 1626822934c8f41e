"""Encoding a corpus: the same ids as `Tokenizer.encode`, several times faster.

Words repeat, so text is cut where no token can cross, each different chunk is encoded once and remembered. No pattern
of `kinds` looks to the left, so a cut is safe wherever every pattern ends a token: after a visible character before
white space, after a single newline between visible characters, between a letter and one of , . ; : ! ?
Byte and character tokenizers are a table look-up.
Cost: 3 to 10 MB/s on one core, tables 20 to 40; memory: the texts of one call and at most CACHED chunks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from lexmill.errors import UserError
from lexmill.tokenizers.kinds import byte_alphabet
from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS, UNK, Tokenizer

CACHED = 1 << 19
_LONGEST = 100  # characters of a chunk that is remembered; longer ones hardly repeat

# Unicode's White_Space, which the patterns of `kinds` mean by \s (Python's \s has U+001C .. U+001F besides).
WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# Every chunk ends with a visible character, or is a newline before one, or ends the text: so none starts amid space.
_CHUNK = re.compile(
    f" ?[A-Za-z]+(?=[{WHITE_SPACE},.;:!?])|\n(?=[^{WHITE_SPACE}])|[{WHITE_SPACE}]*[^{WHITE_SPACE}]+|[{WHITE_SPACE}]+"
)
_CUT = re.compile(f"(?<=[^{WHITE_SPACE}])(?=[{WHITE_SPACE}])")

Ids = npt.NDArray[Any]


def chunks(text: str) -> list[str]:
    """The text in pieces that are encoded independently; joined they are the text."""
    return _CHUNK.findall(text)


def pieces(text: str, size: int = 2000) -> Iterator[str]:
    """The text in pieces of about `size` characters, cut before white space."""
    start = 0
    while len(text) - start > size:
        cut = _CUT.search(text, start + size)
        if cut is None:
            break
        yield text[start : cut.start()]
        start = cut.start()
    if start < len(text):
        yield text[start:]


class BulkEncoder:
    """Encodes many texts; remembers chunks between calls."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.dtype = np.dtype(np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32)
        self._cache: dict[str, list[int]] = {}
        self._table = _table(tokenizer)
        self._bytes = self._table is not None and tokenizer.unk_id is None

    def encode(self, texts: Sequence[str]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """The ids of the texts back to back, and how many each text has.

        Raises:
            UserError: a text is not Unicode (a lone surrogate).
        """
        return self.encode_normal([self.tokenizer.normalize(text) for text in texts])

    def encode_normal(self, normal: Sequence[str]) -> tuple[Ids, npt.NDArray[np.int64]]:
        """The same for texts that `Tokenizer.normalize` gave."""
        rows = self._rows(normal)
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        ids = np.concatenate(rows) if rows else np.empty(0)
        return ids.astype(self.dtype, copy=False), lengths

    def _rows(self, normal: Sequence[str]) -> list[Ids]:
        table = self._table
        if table is None:
            return self._by_chunks(normal)
        return [self._look_up(text, table) for text in normal]

    def _look_up(self, text: str, table: Ids) -> Ids:
        try:
            if self._bytes:
                return table[np.frombuffer(text.encode("utf-8"), dtype=np.uint8)]
            return table[np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)]
        except UnicodeEncodeError as error:
            raise UserError(f"a text is not Unicode: a lone surrogate at character {error.start}") from None

    def _by_chunks(self, texts: Sequence[str]) -> list[Ids]:
        cut = [chunks(text) for text in texts]
        cache = self._cache
        new = [chunk for chunk in dict.fromkeys(chain.from_iterable(cut)) if chunk not in cache]
        cache.update(zip(new, self.tokenizer.encode_batch(new), strict=True))
        rows = [np.fromiter(chain.from_iterable(map(cache.__getitem__, row)), dtype=self.dtype) for row in cut]
        for chunk in new:
            if len(chunk) > _LONGEST:
                del cache[chunk]
        if len(cache) > CACHED:
            cache.clear()
        return rows


def _table(tokenizer: Tokenizer) -> Ids | None:
    """Byte or code point -> id, for the tokenizers in which one makes one token; else None."""
    vocabulary = tokenizer.backend.get_vocab()
    ordinary = {token: i for token, i in vocabulary.items() if token not in SPECIAL_TOKENS}
    if any(len(token) != 1 for token in ordinary):
        return None
    if tokenizer.unk_id is None:
        return np.array([ordinary[character] for character in byte_alphabet()], dtype=np.uint32)
    if tokenizer.backend.pre_tokenizer is not None:
        return None
    table = np.full(0x110000, UNK, dtype=np.uint32)
    for character, i in ordinary.items():
        table[ord(character)] = i
    return table
