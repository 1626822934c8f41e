"""Random states survive a checkpoint wherever the drawing stands: normals come in pairs, and the second one is kept."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lexmill.training import random_states
from lexmill.training.checkpoints import CheckpointFolder


def drawn() -> list[float]:
    """The next numbers of each generator: normals first, so that a kept one counts."""
    python = [random.gauss(0, 1), random.random(), random.gauss(0, 1), random.gauss(0, 1)]
    numpy = [*np.random.normal(size=3).tolist(), float(np.random.random())]
    return [*python, *numpy, *torch.randn(3).tolist(), float(torch.rand(()))]


def seed(value: int, normals: int) -> None:
    """Seed all generators, and draw so many normals of each."""
    random.seed(value)
    np.random.seed(value)
    torch.manual_seed(value)
    for _ in range(normals):
        random.gauss(0, 1)
        np.random.normal()
        torch.randn(())


@pytest.fixture(autouse=True)
def as_before() -> Any:
    states, rest = random_states.tensors(), random_states.plain()
    yield
    random_states.restore(states, rest)


@pytest.mark.parametrize("normals", [0, 1, 2, 701])
@pytest.mark.parametrize("others", [0, 1])
def test_what_is_drawn_next_is_the_same(normals: int, others: int, tmp_path: Path) -> None:
    """Through a checkpoint's files, into generators that have, or have not, a normal to give."""
    seed(3, normals)
    folder = CheckpointFolder(tmp_path, "x", {})
    with folder.locked():
        folder.save(1, {"random": random_states.plain()}, {"random": random_states.tensors()})
    wanted = drawn()
    seed(4, others)
    assert drawn() != wanted
    seed(4, others)
    saved = folder.open(1)
    random_states.restore(saved.read("random"), saved.state["random"])
    assert drawn() == wanted


def test_a_kept_normal_is_in_the_state() -> None:
    seed(3, 0)
    second = np.random.RandomState(3).normal(size=2)[1]
    twin = random.Random(3)
    pair = [twin.gauss(0, 1), twin.gauss(0, 1)]
    empty = random_states.plain()
    assert (empty["python"][2], empty["numpy"]["has_gauss"]) == (None, 0)
    seed(3, 1)
    full = json.loads(json.dumps(random_states.plain()))
    assert full["python"][2] == pair[1]
    assert (full["numpy"]["has_gauss"], full["numpy"]["gauss"]) == (1, second)
