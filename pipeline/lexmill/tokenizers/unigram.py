"""Train a Unigram vocabulary (Kudo 2018), with the same bytes in every process.

Seeds are the pieces of a BPE several times as large as wanted (the second way of section 3.2 of the paper). Then, while
there are too many: count the most probable segmentation of every word under the present pieces (hard EM; segmented by
`tokenizers`), set a piece's log-probability to log(count / total), and drop the pieces whose removal costs the corpus
least, a quarter at a time. Counts are integers and scores are rounded to 6 decimals, so that the order of summation
does not matter. Single characters are always kept.
Cost: one BPE training, then about ten segmentations of the distinct words; memory O(distinct words).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import models, trainers

from lexmill.tokenizers import kinds
from lexmill.tokenizers.bulk import chunks
from lexmill.tokenizers.counting import Texts, alphabet, ordinary_tokens, trained, within
from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS

_SEEDS = 4  # times the wanted vocabulary
_LONGEST = 16  # characters of a piece
_KEEP = 0.75  # of the pieces, at each pruning
_ROUNDS = 2  # of EM between prunings
_DECIMALS = 6
_AT_ONCE = 1 << 15  # words segmented in one call, with about 1 KB an encoding

Scores = dict[str, float]


def train_unigram(stream: Texts, characters: Counter[str], room: int, min_frequency: int) -> models.Model:
    """Train on `stream`; `room` is the maximum number of pieces, at most half of them single characters."""
    kept = frozenset(alphabet(characters, max(1, room // 2)))
    stream = within(stream, characters.keys() - kept)
    words = count_words(stream)
    seeds = _seeds(stream, room, min_frequency, len(kept))
    pieces = sorted(kept.union(seeds))
    texts, counts = list(words), np.array(list(words.values()), dtype=np.int64)
    # With equal scores the most probable segmentation is the one with the fewest pieces.
    scores = {piece: round(-math.log(len(pieces)), _DECIMALS) for piece in pieces}
    while True:
        for _ in range(_ROUNDS):
            used = _usage(texts, counts, scores)
            scores = _maximise(used, kept)
        if len(scores) <= room:
            return kinds.unigram_model(sorted(scores.items(), key=lambda item: (-item[1], item[0])))
        scores = _prune(scores, used, kept, max(room, int(len(scores) * _KEEP)))


def count_words(stream: Texts) -> dict[str, int]:
    """The count of each pre-token, in the order of the pre-tokens."""
    repeated: Counter[str] = Counter()
    for text in stream():
        repeated.update(chunks(text))
    cutter, words = kinds.pre_tokenizer("unigram"), Counter[str]()
    assert cutter is not None
    for chunk, count in repeated.items():
        for word, _ in cutter.pre_tokenize_str(chunk):
            words[word] += count
    return {word: words[word] for word in sorted(words)}


def _seeds(stream: Texts, room: int, min_frequency: int, alphabet_size: int) -> list[str]:
    trainer = trainers.BpeTrainer(
        vocab_size=_SEEDS * room + alphabet_size + len(SPECIAL_TOKENS),
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        max_token_length=_LONGEST,
        show_progress=False,
    )
    return ordinary_tokens(trained(stream, models.BPE(), trainer, "unigram"))


def _usage(texts: Sequence[str], counts: npt.NDArray[np.int64], scores: Scores) -> dict[str, int]:
    """The count of each piece in the most probable segmentations of all words."""
    backend = tokenizers.Tokenizer(kinds.unigram_model(sorted(scores.items())))
    total = np.zeros(len(SPECIAL_TOKENS) + len(scores), dtype=np.int64)
    for start in range(0, len(texts), _AT_ONCE):
        encodings = backend.encode_batch_fast(list(texts[start : start + _AT_ONCE]), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        ids = np.fromiter(chain.from_iterable(rows), dtype=np.int64)
        np.add.at(total, ids, np.repeat(counts[start : start + _AT_ONCE], [len(row) for row in rows]))
    return dict(zip(sorted(scores), total[len(SPECIAL_TOKENS) :].tolist(), strict=True))


def _maximise(used: dict[str, int], kept: frozenset[str]) -> Scores:
    """log(count / total) of the used pieces; an unused kept character counts as half a use."""
    total = math.log(sum(used.values()))
    return {
        piece: round(math.log(count or 0.5) - total, _DECIMALS)
        for piece, count in used.items()
        if count or piece in kept
    }


def _prune(scores: Scores, used: dict[str, int], kept: frozenset[str], size: int) -> Scores:
    """The `size` pieces whose removal would cost most: uses x (score - score of the best other segmentation)."""
    loss = {
        piece: round(used[piece] * (score - _without(piece, scores)), _DECIMALS)
        for piece, score in scores.items()
        if piece not in kept
    }
    ranked = sorted(loss, key=lambda piece: (-loss[piece], piece))
    chosen = kept.union(ranked[: max(0, size - len(kept))])
    return {piece: score for piece, score in scores.items() if piece in chosen}


def _without(piece: str, scores: Scores) -> float:
    """The score of the best segmentation of a piece into two or more others, at least its characters."""
    best = [0.0] + [-math.inf] * len(piece)
    for end in range(1, len(piece) + 1):
        for start in range(end):
            score = scores.get(piece[start:end])
            if score is not None and end - start < len(piece):
                best[end] = max(best[end], best[start] + score)
    return best[-1]
