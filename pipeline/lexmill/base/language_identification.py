"""How probable it is that a text is in a language: naive Bayes over byte n-grams, by `py3langid`.

A fork of langid.py (Lui and Baldwin 2012); its model of 139 languages is part of the package. The softmax of its scores
is taken at the square root of the text's bytes, so that long texts do not look certain.
Cost: a second and 200 MB (300 at first) to load the model; about 10,000 short texts a second, 4.5 MB of long text.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

import numpy as np

_LABELS = {"nb": "no", "fil": "tl", "bik": "bcl", "gn": "gug", "ki": "kik"}
"""The labels of the model that are not the language's tag of BCP 47."""
_NO_LANGUAGE = "zxx"  # numbers, codes
_STEPS = 4096.0  # a score's unit is 1/4096


def probability(text: str, languages: Collection[str]) -> float:
    """Return the probability that a text is in one of these languages, or in none at all, as `12:30` is.

    Args:
        text: any.
        languages: tags of BCP 47 that the model knows (`unknown`); script and country do not count.
    """
    found = dict(_identifier().rank(text))
    return sum(found[label] for label in {*map(_label, languages), _NO_LANGUAGE})


def unknown(languages: Collection[str]) -> list[str]:
    """Return the languages that the model does not know."""
    known = {*_identifier().labels} - {_NO_LANGUAGE}
    return [tag for tag in languages if _label(tag) not in known]


def _label(tag: str) -> str:
    language = tag.partition("-")[0]
    return _LABELS.get(language, language)


@cache
def _identifier() -> Any:
    """Return the model, its weights rounded: sums of few bits are exact, in any order that a machine takes."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    found = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    found.nb_ptc, found.nb_pc = (np.round(w.astype(np.float64) * _STEPS) / _STEPS for w in (found.nb_ptc, found.nb_pc))
    return found
