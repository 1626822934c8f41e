"""Expected chrF beside sacrebleu's sentence scores."""

from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF

from lexmill.kinds.translator.minimum_risk import chrf_matrix, expected_chrf

TEXTS = ["Das Licht ist an.", "Das Licht ist aus.", "Licht  an", "a", "", "ü", "Das Licht ist aus.", "aaaa aaaa", "  "]


def test_every_score_is_sacrebleus() -> None:
    metric = CHRF()
    expected = [[metric.sentence_score(one, [other]).score for other in TEXTS] for one in TEXTS]
    np.testing.assert_allclose(chrf_matrix(TEXTS), expected, rtol=1e-12)


def test_the_best_has_the_highest_mean_score_against_all_draws() -> None:
    metric = CHRF()
    means = {one: sum(metric.sentence_score(one, [other]).score for other in TEXTS) / len(TEXTS) for one in TEXTS}
    found = expected_chrf(TEXTS)
    assert found == pytest.approx(means)
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert next(iter(found)) == "Das Licht ist aus."  # drawn twice


def test_of_equals_the_earlier_one_is_first_and_one_alone_agrees_with_itself() -> None:
    assert list(expected_chrf(["b", "a", "b", "a"])) == ["b", "a"]
    assert expected_chrf(["word", "word"]) == {"word": pytest.approx(100)}
    assert expected_chrf(["", ""]) == {"": 0}
