"""The files of conf/ for optimizers and schedules, and the commands that docs/optimizers.md shows."""

import re
import shlex
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml

from lexmill.base.errors import UserErrors
from lexmill.base.strict import build
from lexmill.config.compose import compose
from lexmill.params import parse
from lexmill.params.optimizers import Optimizer, Schedule

PAGE = Path("docs/optimizers.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("group", "kind"), [("optimizer", Optimizer), ("schedule", Schedule)])
def test_each_file_spells_out_every_field_of_its_choice(group: str, kind: Any) -> None:
    files = sorted(Path("conf", group).glob("*.yaml"))
    names = set()
    for file in files:
        data, errors = yaml.safe_load(file.read_text(encoding="utf-8")), list[str]()
        found = build(kind, data, errors)
        assert errors == [], file
        assert set(data) == set(vars(found)), file
        names.add(data["name"])
        assert f"`{file.stem}`" in PAGE, f"{file} is not on the page"
    members = get_args(kind)
    assert names == {choice for member in members for choice in get_args(get_type_hints(member)["name"])}


def commands() -> list[list[str]]:
    """The overrides of each command on the page."""
    found = []
    for line in re.findall(r"^dvc exp run (.+)$|`lexmill compose ([^`]+)`", PAGE, re.MULTILINE):
        found.append([word for word in shlex.split(line[0] or line[1], comments=True) if word != "-S"])
    return found


@pytest.mark.parametrize("overrides", commands(), ids=" ".join)
def test_the_pages_commands_compose(overrides: list[str]) -> None:
    assert parse(yaml.safe_load(compose(overrides)))


def test_the_page_has_commands() -> None:
    assert len(commands()) == 5


@pytest.mark.parametrize("name", ["gpt", "en_de"])
def test_a_linear_probe_is_for_classifiers_only(name: str) -> None:
    with pytest.raises(UserErrors, match=rf"models\.{name}\.recipe\.method: "):
        compose([f"models.{name}.recipe.method=linear_probe"])


@pytest.mark.parametrize("name", ["gpt", "lstm", "en_de", "sentiment"])
@pytest.mark.parametrize("choice", sorted(path.stem for path in Path("conf/optimizer").glob("*.yaml")))
def test_another_optimizer_takes_nothing_over_from_the_one_before(name: str, choice: str) -> None:
    composed = yaml.safe_load(compose([f"optimizer@models.{name}.recipe.optimizer={choice}"]))
    file = Path("conf/optimizer", f"{choice}.yaml")
    assert composed["models"][name]["recipe"]["optimizer"] == yaml.safe_load(file.read_text(encoding="utf-8"))
