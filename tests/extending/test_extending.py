"""A family and a kind are a folder and a file of conf/ each: added to a copy of the project, everything takes them.

The IndRNN of tests/models/indrnn and the kind of this folder are what docs/extending.md builds step by step. No
file of the project is changed; the choices come from `lexmill init` on a file of the user's and from `lexmill compose`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import urllib.request
from pathlib import Path

import pytest

from tests.e2e.conftest import Project, copy_project
from tests.support.once import made_once
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
WORDS = ["the", "mill", "turns", "slowly", "in", "the", "wind", "and", "grinds", "corn", "to", "flour", "for", "bread"]
ADDED = ("+model@models.indrnn=indrnn_tiny", "+model@models.lengths=length_bucket_tiny")
SETTINGS = "accelerator: cpu\nthreads: 1\n"


def _files(root: Path) -> dict[str, str]:
    listed = [path for room in ("pipeline", "flows") for path in (root / room).rglob("*") if path.is_file()]
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in listed
        if "__pycache__" not in path.parts
    }


def _make(folder: Path) -> Project:
    root = folder / "a project"
    root.mkdir()
    copy_project(root)
    before = _files(root)
    shutil.copytree(HERE.parent / "models" / "indrnn", root / "pipeline" / "lexmill" / "models" / "indrnn")
    shutil.copytree(HERE / "length_bucket", root / "pipeline" / "lexmill" / "kinds" / "length_bucket")
    shutil.copytree(HERE / "conf", root / "conf", dirs_exist_ok=True)
    assert before.items() <= _files(root).items(), "no file that exists is changed"
    lines = [" ".join(WORDS[(i * k) % 13] for k in range(1, 2 + i % 9)) + f" {i}" for i in range(240)]
    (root / "rows.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    project = Project(root, {})
    (folder / "one-thread.yaml").write_text(SETTINGS)
    project.git("init", "-q")
    project.lexmill("init", "lm", "rows.txt")
    project.lexmill("compose", *ADDED, "~models.rows_gpt", "tokenizers.rows_bpe.vocab_size=300")
    project.git("add", "-A")
    project.git("commit", "-q", "-m", "start")
    return project


@pytest.fixture(scope="session")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The copy after `lexmill check` and one run of everything by `lexmill run`."""

    def make(folder: Path) -> None:
        project = _make(folder)
        assert "are in order" in project.lexmill("check")
        project.lexmill("run")
        (folder / "run").write_text("")

    folder = made_once(tmp_path_factory, "extended", make)
    return Project(folder / "a project", {})


def _results(project: Project) -> dict[tuple[str, str], dict[str, object]]:
    found = json.loads(project.lexmill("results", "--json"))["results"]
    return {(row["model"], row["metric"]): row for row in found}


def test_both_are_trained_evaluated_and_stand_beside_their_baselines(extended: Project) -> None:
    rows = _results(extended)
    assert {"token_trigram", "byte_trigram"} <= rows["indrnn", "bits_per_byte"]["baselines"].keys()
    assert set(rows["lengths", "accuracy"]["baselines"]) == {"majority"}
    assert rows["lengths", "accuracy"]["beats"], "it learns which texts are long"
    page = (extended.root / "reports" / "index.html").read_text(encoding="utf-8")
    assert "Texts and buckets" in page
    assert "long from" in page
    card = (extended.root / "artifacts" / "packages" / "lengths" / "card.md").read_text(encoding="utf-8")
    assert "A length classifier that says whether a text is short or long." in card
    assert "lexmill bucket --model lengths" in card


def test_the_verbs_use_their_champions(extended: Project) -> None:
    long = "the mill turns slowly in the wind and grinds corn"
    assert extended.lexmill("bucket", "the", long) == "short\nlong\n"
    assert extended.lexmill("generate", "the mill", "--max-tokens", "3", "--seed", "1").startswith("the mill")
    assert "bucket" in extended.lexmill("--help")
    assert "models.NAME.data.long_from" in extended.lexmill("params")


def test_it_is_planned(extended: Project) -> None:
    (plan,) = json.loads(extended.lexmill("plan", "indrnn", "--json"))
    weights = extended.root / "artifacts" / "models" / "indrnn"
    assert (
        plan["sizes"]["parameters"]
        == json.loads((extended.root / "metrics/train/indrnn.json").read_text())["parameters"]
    )
    assert weights.is_dir()


def test_dvc_has_nothing_to_do_and_the_flow_makes_the_same_bytes(extended: Project, tmp_path: Path) -> None:
    assert "up to date" in extended.run("-m", "dvc", "status").stdout
    root = tmp_path / "a project"
    shutil.copytree(extended.root, root, symlinks=True)
    copy = Project(root, {})
    (tmp_path / "one-thread.yaml").write_text(SETTINGS)
    made = [root / "artifacts" / "models" / name / "model.safetensors" for name in ("indrnn", "lengths")]
    before = [path.read_bytes() for path in made]
    for path in made:
        shutil.rmtree(path.parent)
    shutil.rmtree(root / ".dvc" / "cache")
    copy.run("-m", "flows", "run", "train@indrnn", "train@lengths")
    assert [path.read_bytes() for path in made] == before


def test_a_killed_training_of_the_kind_goes_on_to_the_same_bits(extended: Project, tmp_path: Path) -> None:
    root = tmp_path / "a project"
    shutil.copytree(extended.root, root, symlinks=True)
    copy = Project(root, {})
    (tmp_path / "one-thread.yaml").write_text(f"{SETTINGS}checkpoint_seconds: 0\npublish: false\n")
    path = root / "artifacts" / "models" / "lengths" / "model.safetensors"
    undisturbed = path.read_bytes()
    train = ("-m", "dvc", "repro", "-s", "--force", "--no-run-cache", "train@lengths")
    with copy.start(*train) as process:
        marks = root / ".lexmill" / "checkpoints"
        wait_for(lambda: list(marks.glob("train-lengths-*/step-*/COMPLETE")), alive=process)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert not path.exists()
    copy.run(*train)
    assert path.read_bytes() == undisturbed


def test_it_is_served(extended: Project) -> None:
    with extended.start("-m", "lexmill.cli", "serve", "lengths", "--port", "0") as process:
        assert process.stdout is not None
        said = re.search(r"http://\S+/invocations", process.stdout.readline())
        assert said is not None
        body = json.dumps({"inputs": ["the", "the mill turns slowly in the wind"]}).encode()
        request = urllib.request.Request(said[0], body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert json.loads(reply.read())["predictions"] == ["short", "long"]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def test_only_what_uses_changed_code_is_dirty(extended: Project, tmp_path: Path) -> None:
    """A comment and new files change nothing; a change of one family's equations only what is made of it."""
    root = tmp_path / "a project"
    shutil.copytree(extended.root, root, symlinks=True)
    copy = Project(root, {})
    (tmp_path / "one-thread.yaml").write_text(SETTINGS)
    package = root / "pipeline" / "lexmill"
    before = (root / "code.json").read_bytes()
    for room in ("models/common", "training", "kinds"):
        (package / room / "brand_new.py").write_text("X = 1\n")
    loop = package / "training" / "loop.py"
    loop.write_text(loop.read_text().replace('"""', '"""Another word.\n\n', 1) + "\n# a comment\n")
    copy.run("-m", "dvc", "repro", "code")
    assert (root / "code.json").read_bytes() == before
    model = package / "models" / "indrnn" / "model.py"
    model.write_text(model.read_text().replace("tanh", "sigmoid"))
    copy.run("-m", "dvc", "repro", "code")
    said = copy.run("-m", "dvc", "status").stdout
    assert "train@indrnn" in said
    assert "train@lengths" not in said
