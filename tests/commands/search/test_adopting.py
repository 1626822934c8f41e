"""The line and the file that take what was found give those values, and keep all else as it stands."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from lexmill import params
from lexmill.base.yaml_file import read_yaml
from lexmill.commands.search import adopting, space
from lexmill.config.compose import compose, write_params
from lexmill.params.derived import derive

ROOT = Path(__file__).parents[3]
FOUND: dict[str, space.Value] = {"recipe.optimizer.lr": 0.05, "shape.n_layer": 2, "recipe.length": "9 steps"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    write_params(["experiment=smoke", "models.gpt.recipe.optimizer.lr=0.5", "evaluation.overlap=0.25"], tmp_path)
    return tmp_path


def target(root: Path, model: str = "gpt") -> space.Target:
    params.load(root / "params.yaml")
    return space.Target(model, read_yaml(root / "params.yaml"))


def composed(line: str, root: Path) -> object:
    command, what, *overrides = shlex.split(line)
    assert (command, what) == ("lexmill", "compose")
    return yaml.safe_load(compose(overrides, root))


def test_the_line_gives_the_values_and_keeps_all_else(root: Path) -> None:
    about = target(root)
    assert composed(adopting.command(about, FOUND, root), root) == about.with_values(FOUND)


def test_the_choice_does_so_too_where_the_experiment_sets_the_same_keys(root: Path) -> None:
    about = target(root)
    path, line = adopting.adopt("mine", about, FOUND, root)
    assert path == root / "conf" / "model" / "mine_found.yaml"
    assert read_yaml(path) == about.with_values(FOUND)["models"]["gpt"]
    assert "model@models.gpt=mine_found" in line
    assert "models.gpt.shape.n_layer=2" in line  # smoke would set it back to 1
    assert composed(line, root) == about.with_values(FOUND)


def test_a_choice_brings_the_checkpoint_that_came_with_the_one_before(root: Path) -> None:
    about, found = target(root, "sentiment"), {"recipe.optimizer.lr": 0.0005}
    _, line = adopting.adopt("mine", about, found, root)
    assert "model@models.sentiment=mine_found" in line
    assert "+model" not in line
    assert composed(line, root) == about.with_values(found)
    checkpoint = root / "conf" / "checkpoint" / "minilm.yaml"  # changed since params.yaml was composed
    checkpoint.write_text(checkpoint.read_text().replace("Apache-2.0", "another"))
    _, line = adopting.adopt("mine", about, found, root)
    assert composed(line, root) == about.with_values(found)


def test_where_params_are_no_composition_their_lines_are_reported(root: Path) -> None:
    data = read_yaml(root / "params.yaml")
    del data["models"]["lstm"]
    data |= derive(data)
    (root / "params.yaml").write_text(yaml.safe_dump(data))
    message = adopting.command(target(root), FOUND, root)
    assert message.startswith("set in params.yaml")
    assert "  models.gpt.recipe.optimizer.lr: 0.05" in message
