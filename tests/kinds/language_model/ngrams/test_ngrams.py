"""N-grams against nltk and against sums over the vocabulary; distributions and samples of all three."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.lm import Lidstone
from nltk.lm import StupidBackoff as NltkBackoff
from nltk.lm.models import InterpolatedLanguageModel
from nltk.lm.preprocessing import pad_sequence
from nltk.lm.smoothing import KneserNey as NltkSmoothing
from nltk.util import everygrams

from lexmill.kinds.language_model.ngrams import kneser_ney
from lexmill.kinds.language_model.ngrams.additive import AddK
from lexmill.kinds.language_model.ngrams.kneser_ney import KneserNey
from lexmill.kinds.language_model.ngrams.ngram import NGram
from lexmill.kinds.language_model.ngrams.stupid_backoff import StupidBackoff

VOCABULARY, EOS = 7, 6
documents = st.lists(st.lists(st.integers(0, 5), max_size=10), min_size=1, max_size=5)
Make = Callable[[int], NGram]
MODELS: list[Make] = [
    lambda order: KneserNey(order, VOCABULARY, EOS),
    lambda order: AddK(order, VOCABULARY, EOS, 0.3),
    lambda order: StupidBackoff(order, VOCABULARY, EOS),
]


def of_nltk(model: Any, order: int, train: Sequence[Sequence[int]]) -> Any:
    """A model of nltk's, fitted to documents padded as ours are."""

    def padded(document: Sequence[int]) -> list[str]:
        words = [str(token) for token in document]
        left = pad_sequence(words, order, pad_left=True, left_pad_symbol="<s>")
        return [*left, str(EOS)]

    grams = [list(everygrams(padded(document), max_len=order)) for document in train]
    model.fit(grams, [str(token) for token in range(VOCABULARY)] + ["<s>"])
    return model


def history(document: Sequence[int], place: int, order: int) -> list[str]:
    """The context of the token at a place, as nltk takes it."""
    words = ["<s>"] * (order - 1) + [str(token) for token in document]
    return words[place : place + order - 1]


@settings(max_examples=40, deadline=None)
@given(train=documents, test=documents, order=st.integers(1, 4))
def test_add_k_is_nltks_lidstone(train: list[list[int]], test: list[list[int]], order: int) -> None:
    peer = of_nltk(Lidstone(0.3, order), order, train)
    # nltk's vocabulary holds "<s>" and "<UNK>" besides, so its formula is taken with its counts and our V.
    for document, values in zip(
        test, AddK(order, VOCABULARY, EOS, 0.3).fit(train).log_probabilities(test), strict=True
    ):
        for place, token in enumerate([*document, EOS]):
            context = tuple(history(document, place, order))
            followers = peer.context_counts(context)
            wanted = (followers[str(token)] + 0.3) / (followers.N() - followers["<s>"] + 0.3 * VOCABULARY)
            assert math.exp(values[place]) == pytest.approx(wanted)


class NltkKneserNey(InterpolatedLanguageModel):  # type: ignore[misc]
    """nltk's interpolated Kneser-Ney bigram with the uniform distribution under its unigrams, as ours has it."""

    def __init__(self, discount: float) -> None:
        super().__init__(NltkSmoothing, 2, params={"discount": discount, "order": 2})
        self.discount = discount

    def unmasked_score(self, word: str, context: tuple[str, ...] | None = None) -> float:
        if context:
            return float(super().unmasked_score(word, context))
        continuations = {
            token: sum(1 for before in self.counts[2] if self.counts[2][before][token])
            for token in map(str, range(VOCABULARY))
        }
        total = sum(continuations.values())
        rest = sum(min(self.discount, count) for count in continuations.values()) / total
        return max(continuations[word] - self.discount, 0) / total + rest / VOCABULARY


@settings(max_examples=40, deadline=None)
@given(train=documents, test=documents)
def test_kneser_ney_bigrams_are_nltks(train: list[list[int]], test: list[list[int]]) -> None:
    """With one discount for all counts, which is what nltk has."""
    peer = of_nltk(NltkKneserNey(0.4), 2, train)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kneser_ney, "discounts", lambda counts: (0.4, 0.4, 0.4))
        found = KneserNey(2, VOCABULARY, EOS).fit(train).log_probabilities(test)
    for document, values in zip(test, found, strict=True):
        for place, token in enumerate([*document, EOS]):
            wanted = peer.unmasked_score(str(token), tuple(history(document, place, 2)))
            assert math.exp(values[place]) == pytest.approx(wanted)


def test_add_k_by_hand() -> None:
    # "0 1 0" and the end token 2 of 3 tokens, k = 1/2: after 0 come 1 and the end, once each.
    model = AddK(2, 3, 2, 0.5).fit([[0, 1, 0]])
    assert model.distribution([0]) == pytest.approx([0.5 / 3.5, 1.5 / 3.5, 1.5 / 3.5])
    assert model.distribution([2]) == pytest.approx([1 / 3] * 3)  # a context that never came


@settings(max_examples=40, deadline=None)
@given(train=documents, test=documents, order=st.integers(1, 4))
def test_stupid_backoff_is_nltks(train: list[list[int]], test: list[list[int]], order: int) -> None:
    peer = of_nltk(NltkBackoff(0.4, order), order, train)
    for document, values in zip(test, StupidBackoff(order, VOCABULARY, EOS).fit(train).scores(test), strict=True):
        for place, token in enumerate([*document, EOS]):
            context = history(document, place, order)
            wanted = peer.score(str(token), context)
            if wanted == 0:  # nltk gives nothing to what was never seen
                wanted = 0.4**order / VOCABULARY
            elif all(peer.counts[tuple(context[i:])][str(token)] == 0 for i in range(len(context))):
                # nltk's unigrams count the start symbols too.
                seen = sum(len(one) + 1 for one in train)
                wanted = 0.4 ** len(context) * peer.counts[str(token)] / seen
            assert math.exp(values[place]) == pytest.approx(wanted)


@settings(max_examples=40, deadline=None)
@given(train=documents, context=st.lists(st.integers(0, 5), max_size=4), order=st.integers(1, 4))
def test_normalised_backoff_is_the_score_over_its_sum(train: list[list[int]], context: list[int], order: int) -> None:
    model = StupidBackoff(order, VOCABULARY, EOS)
    scores = [math.exp(values[len(context)]) for values in _all_next(model.fit(train), context, scores=True)]
    probabilities = [math.exp(values[len(context)]) for values in _all_next(model, context, scores=False)]
    assert probabilities == pytest.approx([score / sum(scores) for score in scores])


def _all_next(model: Any, context: list[int], scores: bool) -> list[Any]:
    found: list[Any] = (model.scores if scores else model.log_probabilities)(
        [[*context, token] for token in range(VOCABULARY)]
    )
    return found


@pytest.mark.parametrize("make", MODELS)
@settings(max_examples=25, deadline=None)
@given(train=documents, context=st.lists(st.integers(0, 5), max_size=4), order=st.integers(1, 6))
def test_the_distribution_is_what_scoring_gives_and_sums_to_one(
    make: Make, train: list[list[int]], context: list[int], order: int
) -> None:
    model = make(order).fit(train)
    distribution = model.distribution(context)
    assert distribution.sum() == pytest.approx(1)
    scored = [np.exp(values[len(context)]) for values in _all_next(model, context, scores=False)]
    assert distribution == pytest.approx(scored)


@pytest.mark.parametrize("make", MODELS)
def test_samples_follow_the_distribution_and_end_before_the_end_token(make: Make) -> None:
    model = make(2).fit([[0, 1, 2, 3], [0, 1, 3], [0, 2, 3, 3]])
    drawn = [model.sample([0], 1, seed) for seed in range(3000)]
    shares = np.bincount([tokens[0] for tokens in drawn if tokens], minlength=VOCABULARY) / len(drawn)
    wanted = model.distribution([0])
    wanted[EOS] = 0  # an empty continuation
    assert shares == pytest.approx(wanted, abs=0.035)
    assert model.sample([0], 20, 5) == model.sample([0], 20, 5)
    assert all(EOS not in model.sample([], 30, seed) for seed in range(20))
    assert all(3 not in model.sample([0], 30, seed, never=[3]) for seed in range(20))


def test_kneser_ney_is_better_than_the_two_beside_it() -> None:
    """As Chen and Goodman 1998 and Brants et al. 2007 find, here on a source with long contexts."""
    generator = np.random.default_rng(1)
    text = [0, 1]
    for _ in range(4000):
        text.append(int((text[-1] + text[-2]) % 5 if generator.random() < 0.7 else generator.integers(6)))
    nats = [-float(make(4).fit([text[:3000]]).log_probabilities([text[3000:]])[0].mean()) for make in MODELS]
    assert nats[0] == min(nats)


def test_k_must_be_above_0() -> None:
    with pytest.raises(ValueError, match="k is 0"):
        AddK(2, 3, 2, 0.0)
