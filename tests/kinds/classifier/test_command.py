"""What `lexmill classify` prints: one line a text, two columns a line, whatever the labels are."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, cast

import typer
from typer.testing import CliRunner

from lexmill.kinds.classifier import command
from lexmill.kinds.verbs import Use

LABELS = ["two\nlines", "a\ttab", "a\\backslash", "a\rreturn", "\\n", "/Arts & Entertainment", "TRUE"]


class _Labels:
    """Answers the i-th text with the i-th label."""

    def texts(self, given: list[str] | None) -> list[str]:
        return given or []

    def model(self, kind: str, name: str | None) -> _Labels:
        return self

    def predict(self, texts: list[str]) -> list[dict[str, Any]]:
        return [{"label": LABELS[int(text)], "score": 0.75, "scores": {LABELS[int(text)]: 0.75}} for text in texts]

    def show(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(line)


def classify(*options: str) -> list[str]:
    app = typer.Typer()
    command.add(app, cast(Use, _Labels()))
    texts = [str(i) for i in range(len(LABELS))]
    result = CliRunner().invoke(app, ["classify", *texts, *options], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout_bytes.decode().removesuffix("\n").split("\n")


def test_a_label_is_one_column_of_one_line() -> None:
    columns = [line.split("\t") for line in classify()]
    assert [score for _, score in columns] == ["0.7500"] * len(LABELS)
    assert [label.encode().decode("unicode_escape") for label, _ in columns] == LABELS
    assert columns[-2][0] == "/Arts & Entertainment"


def test_as_json_labels_are_as_they_are() -> None:
    found = [json.loads(line) for line in classify("--json")]
    assert found == [{"label": label, "score": 0.75, "scores": {label: 0.75}} for label in LABELS]
