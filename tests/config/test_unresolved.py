"""`${...}` that refers to nothing is named with file, line and key; written as text it is text, also where derived."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from lexmill.base.errors import UserErrors
from lexmill.config.compose import compose, register
from lexmill.config.unresolved import literal

ROOT = Path(__file__).parents[2]
MODEL = "conf/model/decoder_ngrams.yaml"
HOW = "`${...}` refers to another key; as text it is written `\\${...}`"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    return tmp_path


def prompt(project: Path, text: str) -> int:
    """Let the GPT be evaluated on a prompt; give the line."""
    path = project / MODEL
    lines = path.read_text(encoding="utf-8").split("\n")
    line = next(i for i, one in enumerate(lines) if one.startswith("  prompts:"))
    lines[line] = f"  prompts: ['{text}']"
    path.write_text("\n".join(lines), encoding="utf-8")
    return line + 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo ${HOME}", "'echo ${HOME}': Interpolation key 'HOME' not found"),
        ("echo ${x", "no viable alternative at input '${x'"),
        ("a ${nosuch:x}", "'a ${nosuch:x}': Unsupported interpolation type nosuch"),
    ],
)
def test_it_is_named_with_file_line_and_key(text: str, reason: str, project: Path) -> None:
    line = prompt(project, text)
    with pytest.raises(UserErrors) as raised:
        compose((), project)
    assert raised.value.errors == [f"{MODEL}:{line}: evaluate.prompts[0]: {reason}; {HOW}"]


def test_of_an_override_the_override_is_named(project: Path) -> None:
    override = "models.gpt.evaluate.prompts=['echo ${HOME}']"
    with pytest.raises(
        UserErrors, match=re.escape(f"{override}: 'echo ${{HOME}}': Interpolation key 'HOME' not found")
    ):
        compose([override], project)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("echo \\${HOME}", "echo ${HOME}"),
        ("my \\${experiment}", "my ${experiment}"),  # a key that there is
        ("my ${experiment}", "my demo"),
        ("a \\\\\\${b}", "a \\${b}"),
    ],
)
def test_text_stays_text_in_the_model_and_in_what_follows_from_it(written: str, wanted: str, project: Path) -> None:
    prompt(project, written)
    made = yaml.safe_load(compose((), project))
    assert made["models"]["gpt"]["evaluate"]["prompts"] == [wanted]
    texts = [text for one in made["baselines"].values() for text in one["settings"].get("samples", ())]
    assert wanted in texts


@pytest.mark.parametrize("text", ["${HOME}", "a\\${b}", "a\\\\${b} ${c}", "no reference \\ $ {", "${}"])
def test_what_init_writes_is_read_as_it_was(text: str) -> None:
    register()
    config = OmegaConf.create({"a": [literal(text)]})
    assert OmegaConf.to_container(config, resolve=True) == {"a": [text]}
