"""Random segmentations against all that there are, and against the tokenizer's own where nothing is random."""

import math
import random
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from lexmill.base.errors import UserError
from lexmill.tokenizers.resegment import Resegmenter, bpe, unigram
from tests.tokenizers.made_tokenizers import TEXTS, trained

DRAWS = 20_000


@pytest.mark.parametrize(("kind", "options"), [("bpe", {"dropout": 1e-12}), ("unigram", {"alpha": 1e4})])
def test_without_chance_it_is_the_tokenizers_own_segmentation(kind, options):
    found = trained(kind)
    own = Resegmenter(found, **options)
    for text in TEXTS[:5]:
        assert own(found.encode(text), 1) == found.encode(text)


@pytest.mark.parametrize(("kind", "options"), [("bpe", {"dropout": 0.3}), ("unigram", {"alpha": 0.2})])
def test_the_text_stays_and_the_seed_decides(kind, options):
    found = trained(kind)
    own = Resegmenter(found, **options)
    for text in TEXTS[:5]:
        ids = found.encode(text)
        drawn = [own(ids, seed) for seed in range(20)]
        assert {found.decode(one) for one in drawn} == {text}
        assert len({tuple(one) for one in drawn}) > 4
        assert [own(ids, seed) for seed in range(20)] == drawn


def test_with_every_merge_left_out_a_word_is_its_alphabet():
    found = trained("bpe")
    assert len(Resegmenter(found, dropout=1.0)(found.encode("Wörter"), 0)) == len("Wörter".encode())


RANKS = {("a", "b"): 0, ("b", "c"): 1, ("ab", "c"): 2, ("a", "bc"): 3, ("c", "d"): 4, ("abc", "d"): 5}


def chances(tokens: tuple[str, ...], dropout: float) -> Counter[tuple[str, ...]]:
    """The probability of each result, by walking through every subset of merges that may stay."""
    possible = sorted((RANKS[pair], place) for place, pair in enumerate(pairwise(tokens)) if pair in RANKS)
    found: Counter[tuple[str, ...]] = Counter({tokens: dropout ** len(possible)})
    for number, (_, place) in enumerate(possible):  # the first to stay is made, whatever becomes of those after it
        after = (*tokens[:place], tokens[place] + tokens[place + 1], *tokens[place + 2 :])
        for result, chance in chances(after, dropout).items():
            found[result] += dropout**number * (1 - dropout) * chance
    return found


def test_bpe_dropout_has_the_probabilities_of_its_algorithm():
    expected = chances(("a", "b", "c", "d"), 0.4)
    assert math.isclose(sum(expected.values()), 1)
    draw = random.Random(1)
    counts = Counter(tuple(bpe("abcd", RANKS, 0.4, draw)) for _ in range(DRAWS))
    assert counts.keys() <= expected.keys()
    for result, chance in expected.items():
        assert abs(counts[result] / DRAWS - chance) < 5 * math.sqrt(chance * (1 - chance) / DRAWS), result


def test_without_chance_the_merge_of_the_highest_priority_is_made_first():
    draw = random.Random(3)
    word = "".join(draw.choices("abcd", k=300))
    tokens = list(word)
    while found := [(RANKS[pair], place) for place, pair in enumerate(pairwise(tokens)) if pair in RANKS]:
        _, place = min(found)
        tokens[place : place + 2] = [tokens[place] + tokens[place + 1]]
    assert len(tokens) < 250
    assert bpe(word, RANKS, 0.0, draw) == tokens


def segmentations(word: str, scores: dict[str, float]) -> Iterator[tuple[str, ...]]:
    if not word:
        yield ()
    for end in range(1, len(word) + 1):
        if word[:end] in scores:
            yield from ((word[:end], *rest) for rest in segmentations(word[end:], scores))


@pytest.mark.parametrize("alpha", [0.2, 1.0])
def test_a_unigram_sample_has_the_smoothed_probability_of_its_pieces(alpha):
    scores = {"a": -2.0, "b": -3.0, "c": -2.5, "ab": -2.2, "bc": -4.0, "abc": -5.0, "cab": -3.3}
    weights = {one: math.exp(alpha * sum(map(scores.get, one))) for one in segmentations("abcab", scores)}
    assert len(weights) > 8
    draw = random.Random(2)
    counts = Counter(tuple(unigram("abcab", scores, alpha, draw, 3)) for _ in range(DRAWS))
    assert counts.keys() <= weights.keys()
    for result, weight in weights.items():
        chance = weight / sum(weights.values())
        assert abs(counts[result] / DRAWS - chance) < 5 * math.sqrt(chance * (1 - chance) / DRAWS), result


def test_an_unknown_token_keeps_its_sentence_as_it_is():
    found = trained("unigram")
    ids = found.encode("the 漢 mill")
    assert found.unk_id in ids
    assert Resegmenter(found, alpha=0.1)(ids, 3) == ids


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("unigram", {"dropout": 0.1}, r"subword_dropout: it needs a tokenizer of kind bpe"),
        ("character", {"dropout": 0.1}, r"subword_dropout: it needs a tokenizer of kind bpe"),
        ("bpe", {"alpha": 0.1}, r"subword_alpha: it needs a tokenizer of kind unigram"),
    ],
)
def test_another_kind_of_tokenizer_is_refused(kind, options, message):
    with pytest.raises(UserError, match=message):
        Resegmenter(trained(kind), **options)
