"""Code as an input of DVC's stages: a comment runs nothing but `code`, a changed network its own models, and why."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lexmill.base import code_history
from lexmill.base.errors import UserError
from lexmill.runner.graph import Plan, read
from tests.support.once import init_repository
from tests.support.small_project import ROOT

STAGES = """\
stages:
  code:
    cmd: python -m lexmill.stages.code
    deps: [pipeline/lexmill]
    outs:
      - code.json: {cache: false}
  train:
    foreach: ${models}
    do:
      cmd: echo ${key} ${item.family} > ${key}.out
      params:
        - code.json: ['train.language_model.${item.family}']
      outs: ['${key}.out']
  prepare:
    cmd: echo prepared > prepare.out
    params:
      - code.json: [prepare]
    outs: [prepare.out]
  page:
    cmd: cat a.out b.out > page.out
    params:
      - code.json: [train]
    deps: [a.out, b.out]
    outs: [page.out]
"""


class Workspace:
    """A copy of the package under a DVC of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.package = root, root / "pipeline" / "lexmill"
        if not self.package.is_dir():
            self._make(root)

    def _make(self, root: Path) -> None:
        shutil.copytree(ROOT / "pipeline" / "lexmill", self.package, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / ".dvcignore", root)
        (root / "params.yaml").write_text("models: {a: {family: gpt}, b: {family: lstm}}\n")
        (root / "dvc.yaml").write_text(STAGES)
        init_repository(root)

    def dvc(self, *arguments: str) -> str:
        here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": here, "PYTHONPATH": str(self.package.parent)}
        command = [sys.executable, "-m", "dvc", *arguments]
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=True
        ).stdout

    def ran(self, *targets: str) -> set[str]:
        """Reproduce these stages; which of them ran."""
        said = self.dvc("repro", *targets).split("\n")
        return {line.split("'")[1] for line in said if line.startswith("Running stage")}

    def edit(self, place: str, old: str, new: str) -> None:
        path = self.package / place
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def plan(self, *targets: str) -> Plan:
        return read(self.root, targets)


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("reproduced") / "a project"
    root.mkdir()
    assert Workspace(root).ran() == {"code", "train@a", "train@b", "prepare", "page"}
    return root


@pytest.fixture
def made(reproduced: Path, tmp_path: Path) -> Workspace:
    made = Workspace(Path(shutil.copytree(reproduced, tmp_path / "a project", symlinks=True)))
    assert made.plan().todo == ()
    return made


def test_a_changed_network_runs_its_own_models_and_a_comment_none(made: Workspace) -> None:
    before = (made.root / "code.json").read_bytes()
    made.edit("models/common/norms.py", '"""', '"""Words. ')
    made.edit("training/loop.py", "\n\n", "\n\n# A comment.\n")
    (made.package / "training" / "new.py").write_text("x = 1\n")
    assert made.plan().reasons() == {"code": ("input pipeline/lexmill modified",)}
    assert made.ran() == {"code"}
    assert (made.root / "code.json").read_bytes() == before
    assert made.plan().todo == ()

    made.edit("models/lstm/model.py", "return 28 * ", "return 29 * ")
    why = "code changed: lexmill/models/lstm/model.py: Layer.gradient_bytes"
    assert made.plan().reasons() == {
        "code": ("input pipeline/lexmill modified",),
        "train@b": (why,),
        "page": (why, "follows train@b"),
    }
    assert made.ran("train@b") == {"code", "train@b"}  # what it needs, `code` too
    assert made.plan().reasons() == {"page": (why,)}  # also when code.json is written
    assert made.ran() == {"page"}
    assert json.loads(made.dvc("status", "--json")) == {}


def test_what_changed_is_not_reported_where_it_is_not_known(made: Workspace) -> None:
    shutil.rmtree(made.root / code_history.FOLDER)
    made.edit("stages/prepare.py", "\n\ndef main", "\n\nLIMIT = 3\n\n\ndef main")
    assert made.plan("prepare").reasons()["prepare"] == ("its code changed",)
    made.edit("stages/prepare.py", "LIMIT = 3", "LIMIT = 4")
    assert made.plan("prepare").reasons()["prepare"] == ("its code changed",)


def test_what_was_read_once_can_be_explained(made: Workspace) -> None:
    """A fresh clone has no memory of the code; the first reading of an unchanged graph makes one."""
    shutil.rmtree(made.root / code_history.FOLDER)
    assert made.plan().todo == ()
    made.edit("stages/prepare.py", "\n\ndef main", "\n\nLIMIT = 3\n\n\ndef main")
    assert made.plan("prepare").reasons()["prepare"] == ("code changed: lexmill/stages/prepare.py: LIMIT",)


def test_a_stage_of_before_code_json_has_none_recorded(made: Workspace) -> None:
    text = (made.root / "dvc.lock").read_text()
    start = text.index("  prepare:")
    end = text.index("    outs:", start)
    lock = text[:start] + "  prepare:\n    cmd: echo prepared > prepare.out\n" + text[end:]
    (made.root / "dvc.lock").write_text(lock)
    assert made.plan("prepare").reasons() == {"prepare": ("code not recorded yet",)}


def test_code_that_is_no_python_is_reported(made: Workspace) -> None:
    made.edit("models/gpt/model.py", "from __future__", "def f(:\nfrom __future__")
    with pytest.raises(UserError, match=r"models/gpt/model\.py:\d+: not Python: invalid syntax"):
        made.plan()


def test_a_lost_code_json_is_made_again_and_nothing_else(made: Workspace) -> None:
    (made.root / "code.json").unlink()
    assert [stage.name for stage in made.plan().todo] == ["code"]
    assert made.ran() == {"code"}
