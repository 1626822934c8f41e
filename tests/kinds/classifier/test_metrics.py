"""Metrics of a classifier against scikit-learn."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    confusion_matrix,
    f1_score,
    log_loss,
    precision_recall_fscore_support,
    roc_auc_score,
)

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.classifier.baselines import STRENGTHS, majority, tfidf_logistic_regression
from lexmill.kinds.classifier.metrics import (
    classifier_row,
    confusion,
    confusion_counts,
    per_class,
    roc_auc,
    row_loss,
    summarise,
    worst,
)

HOW = Resampling(samples=200, confidence=0.95, seed=1)
LABELS = ["bad", "good", "so-so"]


def make(right: list[int], seed: int = 0) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    return [
        classifier_row({"id": f"{i}", "group": f"{i}", "label": LABELS[label]}, LABELS, generator.dirichlet([1, 1, 1]))
        for i, label in enumerate(right)
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(0, 9))
def test_figures_equal_those_of_scikit_learn(right: list[int], seed: int) -> None:
    rows = make(right, seed)
    truth, guess = [row["label"] for row in rows], [row["predicted"] for row in rows]
    found = summarise(rows, "item", HOW)
    assert found["accuracy"] == pytest.approx(accuracy_score(truth, guess))
    assert found["macro_f1"] == pytest.approx(f1_score(truth, guess, average="macro", labels=LABELS, zero_division=0))
    probabilities = np.array([[row["probabilities"][label] for label in LABELS] for row in rows])
    assert found["loss"] == pytest.approx(log_loss(truth, probabilities, labels=LABELS))
    assert confusion(rows, LABELS).tolist() == confusion_matrix(truth, guess, labels=LABELS).tolist()
    assert found["items"] == len(rows)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(0, 9))
def test_the_metrics_of_each_class_equal_those_of_scikit_learn(right: list[int], seed: int) -> None:
    rows = make(right, seed)
    truth, guess = [row["label"] for row in rows], [row["predicted"] for row in rows]
    wanted = precision_recall_fscore_support(truth, guess, labels=LABELS, zero_division=np.nan)
    found = per_class(rows)
    assert list(found) == LABELS
    for i, (label, metrics) in enumerate(found.items()):
        defined = {
            name: value
            for name, value in zip(("precision", "recall", "f1", "items"), (each[i] for each in wanted), strict=True)
            if not math.isnan(value)
        }
        if 0 < metrics["items"] < len(rows):
            chances = [row["probabilities"][label] for row in rows]
            defined["roc_auc"] = roc_auc_score(np.array(truth) == label, chances)
        assert metrics == pytest.approx(defined)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=1, max_size=30))
def test_equal_scores_count_half(items: list[tuple[bool, int]]) -> None:
    positive, scores = np.array([one for one, _ in items]), np.array([score / 4 for _, score in items])
    wanted = roc_auc_score(positive, scores) if 0 < positive.sum() < len(items) else None
    assert roc_auc(positive, scores) == (None if wanted is None else pytest.approx(wanted))


def test_undefined_metrics_of_a_class_are_left_out() -> None:
    rows = [classifier_row({"id": "1", "group": "1", "label": "new"}, LABELS, np.array([1.0, 0.0, 0.0]))] * 2
    assert per_class(rows) == {
        "bad": {"items": 0, "precision": 0.0, "f1": 0.0},
        "good": {"items": 0},
        "new": {"items": 2, "recall": 0.0, "f1": 0.0},
        "so-so": {"items": 0},
    }


def test_intervals_hold_the_figure() -> None:
    found = summarise(make([0, 1, 2] * 40), "item", HOW)
    for name in ("accuracy", "macro_f1", "loss"):
        assert float(found[f"{name}_low"]) < float(found[name]) < float(found[f"{name}_high"])


def test_the_first_of_equal_labels_is_predicted() -> None:
    row = classifier_row({"id": "1", "group": "1", "label": "good"}, LABELS, np.array([0.4, 0.4, 0.2]))
    assert row["predicted"] == "bad"


def test_a_label_that_the_model_does_not_know_counts_as_wrong() -> None:
    rows = [classifier_row({"id": "1", "group": "1", "label": "new"}, LABELS, np.array([1.0, 0.0, 0.0]))]
    assert row_loss(rows[0]) == pytest.approx(-math.log(1e-12))
    assert summarise(rows, "item", HOW)["accuracy"] == 0
    assert confusion_counts(rows) == {"new as bad": 1}


def test_the_worst_are_the_most_surprising() -> None:
    rows = [
        classifier_row({"id": str(i), "group": "", "label": "good"}, ["bad", "good"], np.array([1 - p, p]))
        for i, p in enumerate([0.9, 0.1, 0.5, 0.1])
    ]
    assert worst(rows, 3) == [1, 3, 2]


def test_no_rows() -> None:
    with pytest.raises(UserError, match="test split is empty"):
        summarise([], "item", HOW)


def texts(labels: str) -> list[dict[str, Any]]:
    words = {"g": "a fine warm film", "b": "dull , cold and slow", "n": "it ran"}
    return [
        {"id": f"{i}", "group": f"{i}", "text": f"{words[label]} {i}", "label": label} for i, label in enumerate(labels)
    ]


def test_the_majority_baseline_gives_each_label_its_share() -> None:
    rows = majority(texts("ggbn"), texts("gb"))
    assert [row["predicted"] for row in rows] == ["g", "g"]
    assert rows[0]["probabilities"] == {"b": 0.25, "g": 0.5, "n": 0.25}
    assert majority(texts("gb"), texts("g"))[0]["predicted"] == "b", "of equals the first by name"


def test_the_bag_of_words_learns_words() -> None:
    rows = tfidf_logistic_regression(texts("gbgbgbgbn"), texts("gb"), texts("bgb"))
    assert [row["predicted"] for row in rows] == ["b", "g", "b"]
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1)
    assert tfidf_logistic_regression(texts("gb"), [], []) == []


def test_the_penalty_is_the_best_one_on_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """A baseline that was not tuned would be too easy to beat."""
    train, test = texts("gbgbgbgbn"), texts("bgb")
    for labels in ("gbgb", "bgbg"):  # valid agrees with train: a weak penalty is best; or it does not
        valid = [{**record, "label": label} for record, label in zip(texts("gbgb"), labels, strict=True)]
        chosen = tfidf_logistic_regression(train, valid, test)
        alone = {}
        for strength in STRENGTHS:
            with monkeypatch.context() as patched:
                patched.setattr("lexmill.kinds.classifier.baselines.STRENGTHS", (strength,))
                loss = sum(map(row_loss, tfidf_logistic_regression(train, [], valid)))
                alone[loss] = strength, tfidf_logistic_regression(train, [], test)
        strength, rows = alone[min(alone)]
        assert strength == (STRENGTHS[-1] if labels == "gbgb" else STRENGTHS[0])
        assert chosen == rows


def test_baselines_say_what_they_lack() -> None:
    with pytest.raises(UserError, match="train split is empty"):
        majority([], texts("g"))
    with pytest.raises(UserError, match=r"1 label\(s\)"):
        tfidf_logistic_regression(texts("gg"), [], texts("g"))
    wordless = [{"id": "1", "group": "1", "text": "!?", "label": label} for label in "gb"]
    with pytest.raises(UserError, match="have no words"):
        tfidf_logistic_regression(wordless, [], texts("g"))
