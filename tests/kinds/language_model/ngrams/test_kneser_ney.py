"""Interpolated Kneser-Ney against a slow twin that follows the formulas, and against hand-worked numbers."""

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from lexmill.kinds.language_model.ngrams.kneser_ney import FALLBACK_DISCOUNTS, KneserNey, discounts

START = -1


class SlowKneserNey:
    """Chen and Goodman (1998) with dictionaries."""

    def __init__(self, order: int, vocab_size: int, eos: int, documents: Sequence[Sequence[int]]) -> None:
        self.order, self.vocab_size, self.eos = order, vocab_size, eos
        grams: dict[int, Counter[tuple[int, ...]]] = {n: Counter() for n in range(1, order + 1)}
        for document in documents:
            padded = [START] * (order - 1) + list(document) + [eos]
            for end in range(order, len(padded) + 1):
                for n in range(1, order + 1):
                    grams[n][tuple(padded[end - n : end])] += 1
        self.counts: dict[int, dict[tuple[int, ...], int]] = {order: dict(grams[order])}
        for n in range(1, order):
            before: dict[tuple[int, ...], set[int]] = defaultdict(set)
            for gram in grams[n + 1]:
                before[gram[1:]].add(gram[0])
            self.counts[n] = {g: grams[n][g] if g[0] == START else len(before[g]) for g in grams[n]}
        self.discounts = {n: discounts(np.array(list(c.values()))) for n, c in self.counts.items()}

    def probability(self, context: tuple[int, ...], word: int) -> float:
        n = len(context) + 1
        lower = 1 / self.vocab_size if n == 1 else self.probability(context[1:], word)
        followers = {g: c for g, c in self.counts[n].items() if g[:-1] == context}
        total = sum(followers.values())
        if not total:
            return lower
        d = {gram: self.discounts[n][min(count, 3) - 1] for gram, count in followers.items()}
        gram = (*context, word)
        share = followers[gram] - d[gram] if gram in followers else 0.0
        return share / total + sum(d.values()) / total * lower

    def log_probabilities(self, document: Sequence[int]) -> list[float]:
        padded = [START] * (self.order - 1) + list(document) + [self.eos]
        return [
            math.log(self.probability(tuple(padded[i - self.order + 1 : i]), padded[i]))
            for i in range(self.order - 1, len(padded))
        ]


VOCABULARY = 7
EOS = 6
documents = st.lists(st.lists(st.integers(0, 5), max_size=12), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(train=documents, test=documents, order=st.integers(1, 4))
def test_the_tables_give_what_the_formulas_give(train: list[list[int]], test: list[list[int]], order: int) -> None:
    slow = SlowKneserNey(order, VOCABULARY, EOS, train)
    found = KneserNey(order, VOCABULARY, EOS).fit(train).log_probabilities(test)
    for document, values in zip(test, found, strict=True):
        assert values == pytest.approx(slow.log_probabilities(document), abs=1e-12)


@settings(max_examples=30, deadline=None)
@given(train=documents, context=st.lists(st.integers(0, 5), max_size=4), order=st.integers(1, 4))
def test_the_probabilities_of_all_next_tokens_sum_to_one(
    train: list[list[int]], context: list[int], order: int
) -> None:
    model = KneserNey(order, VOCABULARY, EOS).fit(train)
    scores = model.log_probabilities([[*context, word] for word in range(VOCABULARY)])
    assert sum(math.exp(values[len(context)]) for values in scores) == pytest.approx(1, abs=1e-12)


def test_modified_discounts_by_hand() -> None:
    # n1 = 4, n2 = 2, n3 = 1, n4 = 1: Y = 4 / (4 + 2 * 2) = 1/2; D1 = 1 - 2 Y 2/4, D2 = 2 - 3 Y 1/2, D3+ = 3 - 4 Y 1/1
    counts = np.array([1, 1, 1, 1, 2, 2, 3, 4])
    assert discounts(counts) == pytest.approx((0.5, 1.25, 1.0))


@pytest.mark.parametrize(
    "counts",
    [
        [1, 1, 2, 2],  # no 3: a character corpus has few counts
        [5, 6, 7],  # no 1
        [1, 1, 2, 3, 4, 4],  # D3+ = 3 - 4 * 0.5 * 2 / 1 is negative
    ],
)
def test_discounts_fall_back_where_counts_of_counts_are_too_few(counts: list[int]) -> None:
    assert discounts(np.array(counts)) == FALLBACK_DISCOUNTS


def test_a_bigram_by_hand() -> None:
    # One document "0 1 0 0" with end token 2, vocabulary 3. Bigrams: (s,0) (0,1) (1,0) (0,0) (0,2), each once.
    # Continuations of the unigrams: 0 follows s, 1, 0: 3; 1 follows 0: 1; 2 follows 0: 1. Total 5.
    # Both levels fall back to discounts 0.5, 1, 1.5.
    model = KneserNey(2, 3, 2).fit([[0, 1, 0, 0]])
    rest = (1.5 + 0.5 + 0.5) / 5
    unigram = {0: (3 - 1.5) / 5 + rest / 3, 1: (1 - 0.5) / 5 + rest / 3, 2: (1 - 0.5) / 5 + rest / 3}
    assert sum(unigram.values()) == pytest.approx(1)
    given_0 = {word: (1 - 0.5) / 3 + 1.5 / 3 * unigram[word] for word in range(3)}
    (values,) = model.log_probabilities([[0, 1]])
    given_start = (1 - 0.5) / 1 + 0.5 * unigram[0]
    given_1 = 0.5 * unigram[2]
    assert np.exp(values) == pytest.approx([given_start, given_0[1], given_1])


def test_it_comes_near_the_entropy_of_a_known_source() -> None:
    # A chain of order 1 over 4 tokens with a known entropy; a bigram must find it.
    generator = np.random.default_rng(0)
    transition = np.array([[0.7, 0.1, 0.1, 0.1], [0.05, 0.05, 0.8, 0.1], [0.25] * 4, [0.4, 0.3, 0.2, 0.1]])
    state, tokens = 0, []
    for _ in range(60_000):
        state = int(generator.choice(4, p=transition[state]))
        tokens.append(state)
    stationary = np.linalg.matrix_power(transition, 50)[0]
    entropy = -(stationary[:, None] * transition * np.log(transition)).sum()
    model = KneserNey(2, 5, 4).fit([tokens[:50_000]])
    (values,) = model.log_probabilities([tokens[50_000:]])
    assert -values[:-1].mean() == pytest.approx(entropy, rel=0.01)


def test_large_vocabularies_and_high_orders_do_not_overflow() -> None:
    model = KneserNey(6, 100_000, 99_999).fit([[99_998] * 8, list(range(99_990, 99_998))])
    (values,) = model.log_probabilities([[99_998] * 7])
    assert np.isfinite(values).all()
    assert math.exp(values[5]) > 0.3


def test_empty_documents_have_an_end_token() -> None:
    model = KneserNey(3, VOCABULARY, EOS).fit([[], []])
    assert [len(values) for values in model.log_probabilities([[], [1, 2]])] == [1, 3]
    assert model.log_probabilities([]) == []


def test_errors() -> None:
    with pytest.raises(UserError, match="train split is empty"):
        KneserNey(3, VOCABULARY, EOS).fit([])
    with pytest.raises(ValueError, match="outside the vocabulary"):
        KneserNey(3, VOCABULARY, EOS).fit([[7]])
    with pytest.raises(ValueError, match="outside the vocabulary"):
        KneserNey(3, VOCABULARY, EOS).fit([[1]]).log_probabilities([[-1]])
    with pytest.raises(ValueError, match="order is 0"):
        KneserNey(0, VOCABULARY, EOS)
    with pytest.raises(ValueError, match="fit"):
        KneserNey(2, VOCABULARY, EOS).log_probabilities([[1]])
