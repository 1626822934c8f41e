"""`lexmill run --why`: which stages would run, and why each."""

from __future__ import annotations

import pytest

from lexmill.commands import run as command
from lexmill.runner.graph import Plan, Stage

PLAN = Plan(
    (
        Stage("fetch@a", (), ()),
        Stage("prepare@a", ("fetch@a",), ("param corpora.a modified",)),
        Stage("encode@a", ("prepare@a",), ()),
        Stage("train@x", ("encode@a",), ("param a modified", "param b modified", "input c changed", "input d changed")),
        Stage("report", ("train@x",), ()),
    )
)


def test_each_stage_is_reported_with_its_reasons_and_those_it_follows() -> None:
    assert command.reasons_text(PLAN).split("\n") == [
        "prepare@a: param corpora.a modified",
        "encode@a: follows prepare@a",
        "train@x: param a modified; param b modified; input c changed; input d changed; 1 more",
        "report: follows train@x",
        "4 stages to run, 1 unchanged",
    ]


def test_the_command_prints_them_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "preflight", lambda: None)
    monkeypatch.setattr(command.params, "load", lambda *_: None)
    monkeypatch.setattr(command, "changed_files", lambda *_: {})
    monkeypatch.setattr(command, "read", lambda **_: PLAN)
    command.show_reasons(())
    assert capsys.readouterr().out.endswith("4 stages to run, 1 unchanged\n")
