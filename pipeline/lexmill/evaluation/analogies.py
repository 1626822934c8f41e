"""Analogies made from a corpus's own morphology: "friend is to friends as king is to what?".

Pairs of a word and its regular form are found by rule among the frequent words. A rule asks for a third form, or for
its absence, because an ending alone also pairs "numb" with "number". Answers are the nearest words by 3CosAdd (Mikolov
et al. 2013), without the three words of the question.

Cost: one product of the pairs' vectors with all N words, then O(P N) for each of P pairs of a rule.

Shape letters: P pairs of a rule, N words, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lexmill.evaluation.word_vectors import Floats, WordVectors
from lexmill.tokenizers import Tokenizer

Pairs = Mapping[str, Sequence[tuple[str, str]]]
MOST_PAIRS = 30  # of a rule, so that no rule outweighs the others much
_SHORTEST = 3  # letters; "it" and "its" are no noun


@dataclass(frozen=True)
class _Rule:
    """The form with an ending, of words that also have the forms with `also` and none with `never`."""

    ending: str
    also: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


_RULES = {
    "en": {
        "plural": _Rule("s", never=("ed", "ing")),
        "past": _Rule("ed", also=("ing",)),
        "ing": _Rule("ing", also=("ed",)),
        "comparative": _Rule("er", also=("est",), never=("ing",)),  # a love, a lover and thou lovest
    }
}


def pairs(words: Sequence[str], language: str) -> Pairs:
    """Return the pairs of each rule, {rule: [(word, its form)]}, of the most frequent words first.

    Args:
        words: the most frequent first.
        language: its tag; for languages without rules there are none.
    """
    known = {word: rank for rank, word in enumerate(words)}
    found: dict[str, list[tuple[str, str]]] = {}
    for name, rule in _RULES.get(language.partition("-")[0], {}).items():
        some = [
            (word, form)
            for word in words
            if len(word) >= _SHORTEST
            and word.islower()
            and f"{word}e" not in known  # "hated" is of "hate", not of "hat"
            and (form := inflected(word, rule.ending)) in known
            and all(inflected(word, ending) in known for ending in rule.also)
            and not any(inflected(word, ending) in known for ending in rule.never)
        ]
        some.sort(key=lambda pair: max(known[pair[0]], known[pair[1]]))
        found[name] = some[:MOST_PAIRS]
    return found


def inflected(word: str, ending: str) -> str:
    """Return an English word with a regular ending (s, ed, er, est, ing); no final letter is doubled."""
    if word.endswith("e") and ending != "s":
        return word[:-1] + ending
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou") and ending != "ing":
        return f"{word[:-1]}ie{ending.removeprefix('e')}"
    if ending == "s" and word.endswith(("s", "x", "z", "ch", "sh")):
        return f"{word}es"
    return word + ending


def score(words: Sequence[str], tokenizer: Tokenizer, embeddings: Floats, found: Pairs) -> dict[str, float]:
    """Return the accuracy on all questions of two different pairs of a rule beside two baselines; {} without questions.

    A word of several tokens shares some with its forms, so that analogies are partly solved by spelling alone.

    Args:
        words: the candidates.
        tokenizer: what spells them.
        embeddings: (V, D).
        found: the pairs of each rule.

    Returns:
        analogy_questions: how many.
        analogy_accuracy: the share answered rightly.
        analogy_nearest: the same, if the answer is the word nearest to the question's third.
        analogy_spelling: the same as `analogy_accuracy`, of random embeddings for the same tokens.
    """
    questions, right, nearest = _counts(WordVectors(words, tokenizer, embeddings), found)
    if not questions:
        return {}
    random = np.random.default_rng(0).standard_normal(embeddings.shape, np.float32)
    _, by_spelling, _ = _counts(WordVectors(words, tokenizer, random), found)
    return {
        "analogy_questions": questions,
        "analogy_accuracy": right / questions,
        "analogy_nearest": nearest / questions,
        "analogy_spelling": by_spelling / questions,
    }


def _counts(vectors: WordVectors, found: Pairs) -> tuple[int, int, int]:
    """Return how many questions there are, are answered rightly, and are by the third word's nearest."""
    rows = {word: row for row, word in enumerate(vectors.words)}
    questions = right = nearest = 0
    for some in found.values():
        known = [(rows[word], rows[form]) for word, form in some if word in rows and form in rows]
        if len(known) < 2:
            continue
        word, form = np.array(known).T  # (P,)
        to_word, to_form = (vectors.vectors[each] @ vectors.vectors.T for each in (word, form))  # (P, N)
        shifts = to_form - to_word
        third = np.arange(len(known))
        to_word[third, word] = -np.inf  # a third word is no answer
        for i, pair in enumerate(known):
            others = third != i
            alone = to_word[others]  # (P - 1, N)
            alone[:, list(pair)] = -np.inf
            right += int(((alone + shifts[i]).argmax(axis=1) == form[others]).sum())
            nearest += int((alone.argmax(axis=1) == form[others]).sum())
            questions += len(alone)
    return questions, right, nearest
