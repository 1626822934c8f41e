"""A family is one folder: put into a copy of the package, it is built, initialised, trained and planned."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lexmill

HERE, PACKAGE = Path(__file__).parent, Path(lexmill.__file__).parent
USE = """
import torch
from lexmill import models
from lexmill.commands.plan import planning
from lexmill.params import Params
from lexmill.params.length import Length
from lexmill.params.optimizers import AdamW, CosineSchedule, Muon
from lexmill.params.recipe import Recipe
from lexmill.kinds.language_model import Data, Evaluate, LanguageModel
from lexmill.training import optimizers

assert "indrnn" in models.families("causal")
shape = models.family("indrnn").shape(2, 16, 12)
module = models.build({"family": "indrnn", "shape": vars(shape), "vocab_size": 23})
tokens = torch.randint(23, (4, 13))
for settings in (AdamW("adamw", lr=0.02), Muon("muon", lr=0.02)):
    built, losses = optimizers.build(module, settings), []
    for _ in range(40):
        loss = module.loss(tokens[:, :-1], tokens[:, 1:]) / tokens[:, 1:].numel()
        loss.backward()
        built.step()
        module.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0], losses

recipe = Recipe("gradient", AdamW("adamw", lr=0.1), CosineSchedule("cosine"), Length(10, "steps"), batch=96)
model = LanguageModel("language_model", "indrnn", shape, Data("c", "c", "t"), "r", recipe, Evaluate())
params = Params.__new__(Params)
object.__setattr__(params, "models", {"m": model})
plan = planning.plan(params, "m", planning.Machine(2, 0, 1e12, 0.4, True), 23)
assert plan.sizes.parameters == module.count_parameters()
assert {row.strategy for row in plan.memory} == {"single", "ddp", "fsdp"}
assert all(row.total for row in plan.memory)
assert "tensor_parallel" in plan.cannot
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PYTHONPATH where the package has one folder more."""
    root = tmp_path_factory.mktemp("package")
    shutil.copytree(PACKAGE, root / "lexmill", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(HERE / "indrnn", root / "lexmill" / "models" / "indrnn")
    return str(root)


def test_it_is_built_trained_and_planned(path: str) -> None:
    done = subprocess.run([sys.executable, "-c", USE], env={**os.environ, "PYTHONPATH": path}, check=False)
    assert done.returncode == 0


def test_the_tests_of_all_families_hold_for_it(path: str) -> None:
    """Initialisation by each recipe, causality, cache, documents, loss, counts: `test_families`."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "indrnn"]
    done = subprocess.run(
        [*command, "tests/models/test_families.py"],
        env={**os.environ, "PYTHONPATH": path},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None
    assert int(found[1]) >= 15, done.stdout
