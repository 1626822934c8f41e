"""From words to the pieces of a tokenizer and back, and the windows of a long sentence.

A sentence is encoded as its words with a space between each two, as the tokenizer saw text in its own training, and
each piece belongs to the word of its last character. A word without a piece, as one of zero-width characters only, is
the unknown token, so that no tag is shifted.

Letters: T tokens, W words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lexmill.base.tag_schemes import OUTSIDE, Scheme, entities, parts, written
from lexmill.data.texts import Ids
from lexmill.models.common.chain import IGNORED
from lexmill.tokenizers import Tokenizer

Pieces = list[list[int]]  # the ids of each word, one or more


@dataclass(frozen=True)
class Window:
    """A part of a sentence as the network reads it.

    Attributes:
        sentence: the sentence's number.
        start, stop: its words.
        tokens: ids between the begin and the end token, (T,).
        words: of each token the number of its word in the window, -1 for begin and end, (T,).
    """

    sentence: int
    start: int
    stop: int
    tokens: list[int]
    words: list[int]


def pieces(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]) -> list[Pieces]:
    """Return the pieces of each word of each sentence.

    Raises:
        UserError: a word is not Unicode.
    """
    encoded = tokenizer.encode_offsets([" ".join(words) for words in sentences])
    unknown = tokenizer.unk_id if tokenizer.unk_id is not None else tokenizer.pad_id
    return [_by_word(words, ids, offsets, unknown) for words, (ids, offsets) in zip(sentences, encoded, strict=True)]


def _by_word(words: Sequence[str], ids: Sequence[int], offsets: Sequence[tuple[int, int]], unknown: int) -> Pieces:
    of_character: list[int] = []  # -1: the space between two words
    for number, word in enumerate(words):
        of_character += [*([-1] if number else []), *([number] * len(word))]
    found: Pieces = [[] for _ in words]
    for one, (start, stop) in zip(ids, offsets, strict=True):
        place = max(of_character[start:stop], default=-1)  # the later word, of a piece that reaches over a space
        if place >= 0:
            found[place].append(one)
    return [of_word or [unknown] for of_word in found]


def windows(
    sentence: int, of_words: Pieces, tokenizer: Tokenizer, max_tokens: int, tags: Sequence[str] | None = None
) -> list[Window]:
    """Return the windows of a sentence, each of at most `max_tokens` tokens.

    With tags, to learn from: each word is in one window, and a cut falls between entities where the later half of a
    window has such a place. Without, to predict: windows overlap by half, see `best_window`.

    A word of more pieces than fit into a window loses its last ones.
    """
    room = max_tokens - 2
    lengths = [min(len(one), room) for one in of_words]
    found, start = [], 0
    while True:
        stop, size = start, 0
        while stop < len(lengths) and size + lengths[stop] <= room:
            size += lengths[stop]
            stop += 1
        half = start + (stop - start + 1) // 2
        if tags is not None and stop < len(lengths):
            stop = next((one for one in range(stop, half - 1, -1) if parts(tags[one])[0] not in ("I", "E")), stop)
        some = [of_word[:room] for of_word in of_words[start:stop]]
        found.append(_window(sentence, start, some, tokenizer.bos_id, tokenizer.eos_id))
        if stop == len(lengths):
            return found
        start = stop if tags is not None else half


def _window(sentence: int, start: int, of_words: Pieces, begin: int, end: int) -> Window:
    tokens, words = [begin], [-1]
    for number, of_word in enumerate(of_words):
        tokens += of_word
        words += [number] * len(of_word)
    return Window(sentence, start, start + len(of_words), [*tokens, end], [*words, -1])


def best_window(word: int, candidates: Sequence[Window], words: int) -> int:
    """Return the window in which a word has the most words on its poorer side; a sentence's end is no lack."""

    def context(window: Window) -> int:
        if not window.start <= word < window.stop:
            return -1
        before = word - window.start if window.start else words
        after = window.stop - 1 - word if window.stop < words else words
        return min(before, after)

    return max(range(len(candidates)), key=lambda i: (context(candidates[i]), -i))


def model_tags(labels: Sequence[str], entities_marked: bool, bioes: bool) -> tuple[list[str], Scheme]:
    """Return the tags that a model learns, and their scheme.

    Args:
        labels: the corpus's tags, in iob2 where they mark entities.
    """
    if not entities_marked:
        return list(labels), "none"
    kinds = sorted({parts(label)[1] for label in labels if label != OUTSIDE})
    prefixes = "BIES" if bioes else "BI"
    return [OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in prefixes)], "bioes" if bioes else "iob2"


def in_scheme(tags: Sequence[str], scheme: Scheme) -> list[str]:
    """Return a sentence's tags, or those of a window, from iob2 in a model's scheme.

    The rest of an entity that a cut divides begins an entity of its own.
    """
    return list(tags) if scheme == "none" else written(entities(tags), len(tags), scheme)


def label_row(tags: Sequence[str], number: dict[str, int], width: int) -> Ids:
    """Return the numbers of tags, then `IGNORED`, (width,)."""
    row = np.full(width, IGNORED, dtype=np.int64)
    row[: len(tags)] = [number[tag] for tag in tags]
    return row
