"""`lexmill compose --keep`: what follows from params.yaml is brought up to date, and no choice in it is touched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base.errors import UserErrors
from lexmill.config.compose import compose, write_params, write_stages
from lexmill.params import load
from lexmill.params.derived import PARTS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    write_params((), tmp_path)
    return tmp_path


def test_nothing_stale_nothing_written(project: Path) -> None:
    before = (project / "params.yaml").read_bytes()
    write_stages((), project)
    assert (project / "params.yaml").read_bytes() == before == compose((), project).encode()


def test_a_hand_written_model_gets_what_follows_and_all_else_stays_to_the_letter(project: Path) -> None:
    path = project / "params.yaml"
    text = path.read_text()
    model = text[text.index("  lstm:\n") : text.index("  sentiment:\n")]
    added = model.replace("  lstm:\n", "  again:  # another draw\n").replace("warmup: 50", "warmup: 60")
    edited = "# Ours.\n" + text.replace(model, model + added).replace("data_seed: 1337", "data_seed:   0x539")
    path.write_text(edited)
    with pytest.raises(UserErrors, match="inputs: it is not what the models need; `lexmill compose --keep` writes it"):
        load(path)
    write_stages((), project)
    params = load(path)
    assert params.inputs["again"] == params.inputs["lstm"]
    new = path.read_text()
    last = "    data: artifacts/tokens/shakespeare-shakespeare_bpe\n"
    start = new.index("  again:\n")  # among the inputs: the model has a comment
    end = new.index(last, start) + len(last)
    assert new[:start] + new[end:] == edited


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("how", ["missing", "null", "another", "on one line", "with a comment in it"])
def test_whatever_stands_in_a_parts_place_is_mended(project: Path, part: str, how: str) -> None:
    path = project / "params.yaml"
    whole = path.read_text()
    data: dict[str, Any] = yaml.safe_load(whole)
    start = whole.index(f"\n{part}:") + 1
    end = start + len(yaml.safe_dump({part: data[part]}, sort_keys=False))
    rest = whole[end:].lstrip("\n") if how != "missing" else whole[end:]
    written = {
        "missing": "",
        "null": f"{part}:\n",
        "another": f"{part}:\n  none: {{}}\n",
        "on one line": f"{part}: {{none: {{}}}}\n",
        "with a comment in it": f"{part}:\n  none: {{}}\n# A word.\n  more: {{}}\n",
    }[how]
    path.write_text(whole[:start] + written + rest)
    with pytest.raises(UserErrors):
        load(path)
    write_stages((), project)
    load(path)
    assert yaml.safe_load(path.read_text()) == data


@pytest.mark.parametrize("group", ["translations", "mixtures"])
def test_a_mapping_that_an_earlier_version_did_not_have_is_added(project: Path, group: str) -> None:
    path = project / "params.yaml"
    whole = path.read_text()
    path.write_text("# Ours.\n" + whole.replace(f"{group}: {{}}\n", ""))
    assert group not in yaml.safe_load(path.read_text())
    write_stages((), project)
    assert yaml.safe_load(path.read_text()) == yaml.safe_load(whole)
    assert path.read_text().startswith("# Ours.\n")


def test_errors_of_the_choices_are_reported_and_nothing_is_written(project: Path) -> None:
    path = project / "params.yaml"
    broken = path.read_text().replace("tokenizer: home_assistant_bpe", "tokenizer: home_assistant_bp", 1)
    path.write_text(broken)
    with pytest.raises(UserErrors) as caught:
        write_stages((), project)
    assert ["did you mean 'home_assistant_bpe'" in error for error in caught.value.errors] == [True]
    assert path.read_text() == broken
