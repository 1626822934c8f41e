"""The baselines beside hand-worked numbers, enumerations and slow twins."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from lexmill.data.permutation import fold, permute
from lexmill.kinds.tagger import markov_model, perceptron
from lexmill.kinds.tagger.baselines import dictionary, most_frequent_tag

TRAIN = [
    (["the", "mill", "turns"], ["D", "N", "V"]),
    (["the", "turns", "end"], ["D", "N", "V"]),
    (["mill", "the", "corn"], ["V", "D", "N"]),
]


def test_the_most_frequent_tag_and_the_dictionary() -> None:
    assert most_frequent_tag(TRAIN)(["a", "b"]) == ["D", "D"]  # three of each: the first by name
    # mill and turns have both tags once: the first by name; an unknown word has the most frequent tag of all.
    assert dictionary(TRAIN)(["the", "turns", "mill", "end", "new"]) == ["D", "N", "N", "V", "D"]


def test_the_smoothed_probabilities_by_hand() -> None:
    tags, begin, transitions, end, emissions, known = markov_model.distributions(TRAIN)
    assert tags == ["D", "N", "V"]
    # After the start: D twice, V once, so two different; twelve events in all, three of each tag and three ends.
    assert np.exp(begin) == pytest.approx([(2 + 2 * 0.25) / 5, 2 * 0.25 / 5, (1 + 2 * 0.25) / 5])
    # After N: V twice, the end once.
    assert np.exp(transitions[1]) == pytest.approx([0.5 / 5, 0.5 / 5, 2.5 / 5])
    assert np.exp(end) == pytest.approx([0.25 / 4, 1.5 / 5, 2.5 / 5])
    # N has three different words once each; five words and the unknown one share what is kept back.
    assert math.exp(emissions[known["mill"], 1]) == pytest.approx((1 + 3 / 6) / 6)
    assert np.exp(emissions[-1]) == pytest.approx([(1 / 6) / 4, (3 / 6) / 6, (3 / 6) / 6])
    assert np.exp(emissions).sum(axis=0) == pytest.approx([1, 1, 1])
    assert np.exp(transitions).sum(axis=1) + np.exp(end) == pytest.approx([1, 1, 1])


def test_its_path_is_the_best_of_all() -> None:
    tags, begin, transitions, end, emissions, known = markov_model.distributions(TRAIN)
    tag = markov_model.learn(TRAIN).tag

    def score(path: tuple[int, ...], rows: list[int]) -> float:
        total = begin[path[0]] + end[path[-1]] + sum(emissions[row, i] for row, i in zip(rows, path, strict=True))
        return float(total + sum(transitions[pair] for pair in pairwise(path)))

    for words in (["the", "mill"], ["new", "mill", "the", "new"], ["end"]):
        rows = [known.get(word, len(known)) for word in words]
        best = max(product(range(3), repeat=len(words)), key=lambda path: score(path, rows))
        assert tag(words) == [tags[i] for i in best]


def test_the_shape_and_the_features_of_a_word() -> None:
    assert perceptron.shape("Apollo-13") == "Xx-9"
    assert perceptron.shape("NATO") == "X"
    one, two = perceptron.of_words(["Up", "2"])
    assert one == ["b", "wup", "pu", "sp", "sup", "sup", "sup", "hXx", "i<s1>", "j<s2>", "k2", "l</s1>", "ms1>", "n2"]
    assert two[7:12] == ["h9", "iup", "j<s1>", "k</s1>", "l</s2>"]
    assert perceptron.of_tags(["D", "N"], "Mill") == ["tN", "uD N", "vN mill"]


def slow(train: Any, epochs: int, seed: int) -> dict[tuple[str, str], float]:
    """The mean of the weights after each word, from a copy of all of them; the first copy is zero."""
    tags = sorted({tag for _, of_words in train for tag in of_words})
    now: dict[tuple[str, str], float] = {}
    total: dict[tuple[str, str], float] = {}
    read = 1
    for epoch in range(epochs):
        for i in permute(np.arange(len(train)), len(train), fold(seed, "perceptron", epoch)).tolist():
            before = ["<s2>", "<s1>"]
            words, right = train[i]
            for own, word, wanted in zip(perceptron.of_words(words), words, right, strict=True):
                features = [*own, *perceptron.of_tags(before, word)]
                sums = {tag: sum(now.get((one, tag), 0.0) for one in features) for tag in tags}
                found = max(tags, key=lambda tag: sums[tag])
                if found != wanted:
                    for one in features:
                        now[one, wanted] = now.get((one, wanted), 0.0) + 1
                        now[one, found] = now.get((one, found), 0.0) - 1
                for key, value in now.items():
                    total[key] = total.get(key, 0.0) + value
                read += 1
                before.append(found)
    return {key: value / read for key, value in total.items()}


def test_the_weights_are_the_mean_over_all_words(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[perceptron.Perceptron] = []
    original = perceptron._Weights.perceptron

    def keep(weights: Any) -> Any:
        kept.append(original(weights))
        return kept[-1]

    monkeypatch.setattr(perceptron._Weights, "perceptron", keep)
    perceptron.learn(TRAIN, TRAIN, seed=3)
    wanted = slow(TRAIN, perceptron.EPOCHS, 3)
    for feature in kept[-1].features:
        for i, tag in enumerate(kept[-1].tags):
            found = kept[-1].weights[kept[-1].row(feature), i]
            assert found == pytest.approx(wanted.get((feature, tag), 0.0)), (feature, tag)


def test_it_learns_what_context_decides() -> None:
    """`x` is A after a and B after b."""
    generator = np.random.default_rng(0)
    train = []
    for _ in range(60):
        letters = generator.choice(["a", "b"], 6)
        words = [word for letter in letters for word in (str(letter), "x")]
        train.append((words, [tag for letter in letters for tag in (str(letter), str(letter).upper())]))
    tag = perceptron.learn(train, train[:5], seed=0).tag
    assert tag(["b", "x", "a", "x"]) == ["b", "B", "a", "A"]
    assert tag([]) == []
