"""The texts most worth labelling, and labels that are probably wrong: by hand, and on planted errors."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.kinds.classifier import command, label_errors, label_next
from lexmill.kinds.verbs import Use
from tests.support.prepared import write_prepared


class _Answers:
    """Labels that depend on a number in the text."""

    def texts(self, given: list[str] | None) -> list[str]:
        return given or []

    def model(self, kind: str, name: str | None) -> _Answers:
        return self

    def predict(self, texts: list[str]) -> list[dict[str, Any]]:
        return [
            {"label": "a", "score": float(text), "scores": {"a": float(text), "b": 1 - float(text)}} for text in texts
        ]

    def show(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(line)


def run(*arguments: str) -> list[str]:
    app = typer.Typer()
    command.add(app, cast(Use, _Answers()))
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout.splitlines()


def test_the_most_unsure_text_comes_first_and_once() -> None:
    found = run("label-next", "0.9", "0.55", " ", "0.7", "0.55", "-n", "2")
    assert found == ["0.9000\ta\t0.55", "0.6000\ta\t0.7"]
    assert run("label-next", " ") == []


def test_three_ways_to_be_unsure() -> None:
    chances = np.array([[0.5, 0.5, 0.0], [0.4, 0.3, 0.3], [1.0, 0.0, 0.0]])
    assert label_next.uncertainty(chances, "margin").tolist() == pytest.approx([1, 0.9, 0])
    assert label_next.uncertainty(chances, "least").tolist() == pytest.approx([0.5, 0.6, 0])
    entropy = -(0.4 * math.log(0.4) + 0.6 * math.log(0.3)) / math.log(3)
    assert label_next.uncertainty(chances, "entropy").tolist() == pytest.approx([math.log(2) / math.log(3), entropy, 0])


def test_confident_learning_by_hand() -> None:
    given = np.array([0, 0, 0, 1, 1])
    chances = np.array([[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.3, 0.7], [0.2, 0.8]])
    # Thresholds: (.9 + .8 + .1) / 3 = .6 and .75. Only the third text reaches another label's.
    assert label_errors.doubtful(given, chances) == [label_errors.Doubt(2, 1, pytest.approx(0.8))]
    # The fourth reaches no threshold, so nothing is known of it.
    assert label_errors.doubtful(np.array([0, 0, 0, 0, 1]), chances) == [label_errors.Doubt(2, 1, pytest.approx(0.8))]


def planted(tmp_path: Path) -> set[str]:
    """Write a corpus in which 6 of 120 labels are wrong; return the ids of those."""
    random = np.random.default_rng(0)
    words = {"good": ["fine", "bright", "warm", "kind"], "bad": ["dull", "cold", "grim", "vile"]}
    texts, wrong = [], set()
    for i in range(120):
        label = ["good", "bad"][i % 2]
        text = " ".join([*random.choice(words[label], 4), *random.choice(["the", "film", "plot"], 3), str(i)])
        if i % 20 == 7:
            label = {"good": "bad", "bad": "good"}[label]
            wrong.add(i)
        texts.append({"text": text, "label": label})
    write_prepared(layout.corpus("reviews"), "labelled", {"train": texts, "valid": texts[:2], "test": texts[:2]})
    return {texts[i]["text"] for i in wrong}


def test_planted_errors_are_listed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = planted(tmp_path)
    found = [line.split("\t") for line in run("label-errors", "reviews")]
    assert {row[4] for row in found[:5]} < wrong  # one text says nothing of its label to the other folds
    assert all({row[1], row[2]} == {"good", "bad"} for row in found)
    margins = [float(row[3]) for row in found]
    assert margins == sorted(margins, reverse=True)
    assert len(run("label-errors", "reviews", "-n", "3")) == 3
    with pytest.raises(UserError, match="fewer than two labels of 5 texts"):
        label_errors.lines("reviews", "valid", 5)


def test_both_texts_of_a_doubtful_pair_are_shown_and_texts_without_words_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pairs = [{"text": f"{mark} {i}", "second": "b", "label": mark} for mark in ("fine", "grim") for i in range(9)]
    pairs.append({"text": "fine 9", "second": "other", "label": "grim"})
    write_prepared(layout.corpus("pairs"), "labelled", {"train": pairs, "valid": pairs[:1], "test": pairs[:1]})
    assert label_errors.lines("pairs", "train", 1)[0][4] == "fine 9 ||| other"
    signs = [{"text": "!" * (1 + i), "label": "ab"[i % 2]} for i in range(20)]
    write_prepared(layout.corpus("signs"), "labelled", {"train": signs, "valid": signs[:1], "test": signs[:1]})
    with pytest.raises(UserError, match="have no words"):
        label_errors.lines("signs", "train", 1)
