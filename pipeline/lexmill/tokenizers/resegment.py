"""Segment a text at random, as a regularisation of training: BPE-dropout, and samples of a Unigram model.

Each function of a text and a seed: the same on every machine, in any process.

* `bpe`: at each step every possible merge of a word is left out with probability `dropout`, and of the rest that of the
  highest priority is made; a word is done when none is left (Provilkov et al. 2020, algorithm 1). At 0 this is the
  tokenizer's own segmentation, at 1 its alphabet.
* `unigram`: a segmentation x of a word is drawn with probability proportional to P(x) ^ alpha, over all there are, by
  forward filtering and backward sampling (Kudo 2018, with l = infinity); the larger alpha, the rarer any but the most
  probable.

Cost: 6 µs a token (bpe) or 12 (unigram) on one core, in Python, however long a word is (docs/translation.md).
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from lexmill.base.errors import UserError
from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS, Tokenizer

Segment = Callable[[str, random.Random], list[int]]
"""The ids of a word (as the pre-tokenizer gives it), drawn."""


class Resegmenter:
    """Draws other ids of the same text.

    Args:
        dropout: probability that a merge of a BPE tokenizer is left out; 0: for none.
        alpha: exponent of a Unigram tokenizer's probabilities; 0: for none.

    Raises:
        UserError: the tokenizer is of another kind, or not trained here.
    """

    def __init__(self, tokenizer: Tokenizer, *, dropout: float = 0.0, alpha: float = 0.0) -> None:
        model = json.loads(tokenizer.backend.to_str())["model"]
        wanted = "BPE" if dropout else "Unigram"
        if model["type"] != wanted or tokenizer.imported or (dropout and not model["merges"]):
            key = "subword_dropout" if dropout else "subword_alpha"
            raise UserError(f"recipe.{key}: it needs a tokenizer of kind {wanted.lower()}; set it to 0")
        self.tokenizer, self._cutter = tokenizer, tokenizer.backend.pre_tokenizer
        vocabulary = tokenizer.backend.get_vocab()
        if dropout:
            ranks = {tuple(merge): rank for rank, merge in enumerate(model["merges"])}
            self._segment: Segment = lambda word, draw: [vocabulary[one] for one in bpe(word, ranks, dropout, draw)]
        else:
            scores = {piece: score for piece, score in model["vocab"] if piece not in SPECIAL_TOKENS}
            longest = max(map(len, scores))
            self._segment = lambda word, draw: [vocabulary[one] for one in unigram(word, scores, alpha, draw, longest)]

    def __call__(self, ids: Sequence[int], seed: int) -> list[int]:
        """Return other ids of the text of `ids`; the same ids where one of them is unknown.

        Args:
            ids: without special tokens.
            seed: determines the draw.
        """
        if self.tokenizer.unk_id in ids:
            return list(ids)
        draw = random.Random(seed)
        words = self._cutter.pre_tokenize_str(self.tokenizer.decode(ids))
        return [one for word, _ in words for one in self._segment(word, draw)]


def bpe(word: str, ranks: Mapping[tuple[str, ...], int], dropout: float, draw: random.Random) -> list[str]:
    """Return the tokens of a word whose merges are left out at random.

    Args:
        ranks: the priority of each merge, 0 the highest.
    """
    tokens, end, chance = list(word), len(word), draw.random
    before, after = list(range(-1, end - 1)), list(range(1, end + 1))  # a token's neighbours; a merged one is ""
    waiting: list[tuple[int, int, str, str]] = []

    def offer(place: int) -> None:
        if place >= 0 and after[place] < end:
            pair = tokens[place], tokens[after[place]]
            if (rank := ranks.get(pair)) is not None:
                heappush(waiting, (rank, place, *pair))

    for place in range(end):
        offer(place)
    left_out: list[tuple[int, int, str, str]] = []
    while waiting:
        _, place, first, second = merge = heappop(waiting)
        other = after[place]
        if tokens[place] != first or other == end or tokens[other] != second:
            continue  # one of the two was merged with another
        if chance() < dropout:
            left_out.append(merge)
            continue
        tokens[place], tokens[other], after[place] = first + second, "", after[other]
        if after[place] < end:
            before[after[place]] = place
        offer(before[place])
        offer(place)
        for merge in left_out:  # each has a new chance
            heappush(waiting, merge)
        left_out.clear()
    return [token for token in tokens if token]


def unigram(word: str, scores: Mapping[str, float], alpha: float, draw: random.Random, longest: int) -> list[str]:
    """Return the pieces of a word, drawn with probability proportional to exp(alpha * the sum of their scores).

    Args:
        scores: the log-probability of each piece, single characters among them.
        longest: characters of the longest piece.
    """
    total = [0.0] + [-math.inf] * len(word)  # log of the sum over all segmentations of the first 0, 1, ... characters
    for end in range(1, len(word) + 1):
        ways = [total[start] + alpha * score for start, score in _last(word, end, scores, longest)]
        top = max(ways)
        total[end] = top + math.log(sum(math.exp(way - top) for way in ways))
    end, pieces = len(word), list[str]()
    while end:
        left = draw.random()
        for start, score in _last(word, end, scores, longest):
            left -= math.exp(total[start] + alpha * score - total[end])
            if left < 0:
                break
        pieces.append(word[start:end])
        end = start
    return pieces[::-1]


def _last(word: str, end: int, scores: Mapping[str, float], longest: int) -> Iterator[tuple[int, float]]:
    """Yield the start and score of each piece that ends there."""
    for start in range(max(0, end - longest), end):
        if (score := scores.get(word[start:end])) is not None:
            yield start, score
