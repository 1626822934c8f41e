"""The curve, seeds, the code's fingerprint."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from lexmill.base.code import Code, digests
from lexmill.training import identity, random_states, seeding
from lexmill.training.curve import COLUMNS, Curve, write_csv


def test_a_curves_loss_is_that_of_all_targets_since_the_row_before(tmp_path: Path) -> None:
    curve = Curve(every=3)
    assert (curve.due(2), curve.due(3)) == (False, True)
    for loss, count in [(10.0, 2), (30.0, 10), (2.0, 1)]:
        curve.add(loss, count)
    curve.skip(4)
    curve.row(3, 0.5, 0.01, 1.5, None)
    curve.row(3, 0.5, 0.01, None, 2.25)
    write_csv(tmp_path / "c.csv", curve.rows)
    assert (tmp_path / "c.csv").read_text(encoding="utf-8").split("\n") == [
        ",".join(COLUMNS),
        "3,17,0.5,3.2307692,,0.01,1.5,1",
        "3,17,0.5,,2.25,0.01,,1",
        "",
    ]
    again = Curve()
    again.restore(curve.state())
    assert again == curve
    assert again.last("valid_loss") == 2.25
    assert again.last("train_loss") == pytest.approx(42 / 13)


def test_a_long_curve_grows_thinner_and_loses_no_target() -> None:
    """Step s has s targets of loss 1 / s each but for every tenth, which is skipped; a look every 700 steps."""
    curve = Curve()
    for step in range(1, 3001):
        if step % 10:
            curve.add(1.0, step)
        else:
            curve.skip(step)
        if step % 700 == 0 or curve.due(step):
            curve.row(step, 0.0, 0.1, 1.0, 2.0 if step % 700 == 0 else None)
    assert curve.every == 4
    assert 400 <= len(curve.rows) <= 804
    steps = [int(row["step"]) for row in curve.rows]
    assert steps == [step for step in range(1, 3001) if step % 4 == 0 or step % 700 == 0]
    for before, row in zip([0, *steps], curve.rows, strict=False):
        taken = [step for step in range(before + 1, int(row["step"]) + 1) if step % 10]
        assert row["train_loss"] == pytest.approx(len(taken) / sum(taken))


def test_seeds_are_unrelated_and_stable() -> None:
    assert seeding.derive(0, "step", 1, 0, 0) == seeding.derive(0, "step", 1, 0, 0)
    seeds = {
        seeding.derive(s, "step", i, j, r) for s in range(3) for i in range(30) for j in range(3) for r in range(3)
    }
    assert len(seeds) == 810
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    assert seeding.derive(1, 2, 3) != seeding.derive(1, 23)


def test_random_states_come_back() -> None:
    import random

    import numpy as np

    def draw() -> list[Any]:
        return [torch.rand(3).tolist(), np.random.standard_normal(3).tolist(), random.gauss(0, 1)]

    seeding.seed_all(4)
    draw()
    tensors, rest = random_states.tensors(), random_states.plain()
    wanted = draw()
    draw()
    random_states.restore(tensors, rest)
    assert draw() == wanted


def test_a_trainings_code_is_what_code_json_has_for_it() -> None:
    written = digests(Code().closures())["train"]
    assert isinstance(written, dict)
    found = written["language_model"]
    assert isinstance(found, dict)
    assert identity.code("language_model", "gpt") == found["gpt"] != identity.code("language_model", "lstm")
    for wrong in (("nothing", "gpt"), ("language_model", "nothing")):
        with pytest.raises(ValueError, match=r"there is no (kind|family) nothing"):
            identity.code(*wrong)
    assert torch.__version__.startswith(identity.libraries("gpt")["torch"].split("+")[0])
    assert "tokenizers" not in identity.libraries("gpt")
    assert identity.libraries("bert")["tokenizers"] == version("tokenizers"), "a checkpoint's ids come from it"
