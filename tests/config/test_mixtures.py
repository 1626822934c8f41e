"""Mixtures in params.yaml and dvc.yaml: refused where names do not fit, written out for DVC, run by it."""

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill import params
from lexmill.base import layout, storage
from lexmill.base.code import Code, digests
from lexmill.base.errors import UserError
from lexmill.config.compose import write_params, write_stages
from lexmill.config.mixtures import MARK, check_mixtures, with_mixtures
from lexmill.data.mixture import open_train, open_valid
from lexmill.runner import graph
from tests.data.made_shards import random_documents, write_shards
from tests.support.small_project import errors_of, whole, whole_with
from tests.test_dag import SOURCE

ROOT = Path(__file__).parents[2]
DAG = "stages:\n  report:\n    cmd: python -m lexmill.stages.report\n"
MIXTURES = {"both": {"tokenizer": "bpe", "members": {"plays": 0.8, "poems": 0.2}}}


def choices(**changes: Any) -> dict[str, Any]:
    """The committed choices with a second corpus, and a model that learns from a mixture of both."""
    data: dict[str, Any] = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    data["corpora"]["poems"] = copy.deepcopy(data["corpora"]["shakespeare"])
    data["mixtures"] = {"both": {"tokenizer": "shakespeare_bpe", "members": {"shakespeare": 0.8, "poems": 0.2}}}
    data["models"]["gpt"]["data"]["train"] = "both"
    return whole_with(data, changes)


def errors(**changes: Any) -> list[str]:
    return errors_of(choices(**changes))


def test_a_mixture_and_a_model_that_learns_from_it_are_fine() -> None:
    """Its members are encoded with its tokenizer, without a word in params.yaml."""
    assert errors() == []
    found = params.parse(choices())
    assert {"shakespeare-shakespeare_bpe", "poems-shakespeare_bpe"} <= found.encodings.keys()
    assert found.inputs["gpt"].data == "artifacts/tokens/both-shakespeare_bpe"
    alone = choices()
    alone["models"]["gpt"]["data"]["train"] = "shakespeare"
    assert "poems-shakespeare_bpe" in params.parse(whole(alone)).encodings  # whether a model learns from it or not


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"mixtures__both__members": {"shakespeare": 1, "poem": 1}},
            "members.poem: there is no corpus 'poem', did you",
        ),
        (
            {"mixtures__both__members": {"shakespeare": 1, "movie_reviews": 1}},
            "a labelled corpus, a text one is needed",
        ),
        ({"mixtures__both__members": {"shakespeare": 1}}, "a mixture has two corpora or more"),
        ({"mixtures__both__members": {"shakespeare": 1, "poems": 0}}, "must be above 0"),
        ({"mixtures__both__tokenizer": "none"}, "mixtures.both.tokenizer: there is no tokenizer or checkpoint 'none'"),
        ({"mixtures__both__tokenizer": "home_assistant_bpe"}, "is encoded with 'home_assistant_bpe'"),
        ({"mixtures": {}}, "there is no corpus or mixture 'both'"),
        ({"models__gpt__data__train": "poems"}, "it is 'shakespeare' (its corpus) or a mixture"),
        ({"models__gpt__data__corpus": "movie_reviews"}, "no member 'movie_reviews'"),
        ({"mixtures__poems": {"tokenizer": "shakespeare_bpe", "members": {"shakespeare": 1, "poems": 1}}}, "poems"),
    ],
)
def test_names_that_do_not_fit_together_are_reported(changes: dict[str, Any], message: str) -> None:
    assert any(message in error for error in errors(**changes)), errors(**changes)


def test_the_stages_stand_at_the_end_and_go_when_the_mixtures_go() -> None:
    made = with_mixtures(DAG, MIXTURES)
    assert made.startswith(DAG)
    stage = yaml.safe_load(made)["stages"]["mix-both"]
    assert stage["cmd"] == "python -m lexmill.stages.mix both"
    assert stage["params"] == ["mixtures.both", {"code.json": ["mix"]}]
    assert stage["deps"] == ["artifacts/tokens/plays-bpe", "artifacts/tokens/poems-bpe"]
    assert stage["outs"] == ["artifacts/tokens/both-bpe"]
    assert with_mixtures(made, MIXTURES) == made
    two = with_mixtures(made, {**MIXTURES, "more": MIXTURES["both"]})
    assert list(yaml.safe_load(two)["stages"]) == ["report", "mix-both", "mix-more"]
    assert with_mixtures(two, {}) == DAG


def test_the_committed_dag_has_the_mixtures_of_the_committed_params() -> None:
    check_mixtures(ROOT)


def test_compose_writes_the_stages_and_a_difference_is_reported(tmp_path: Path) -> None:
    import shutil

    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "dvc.yaml").write_text(DAG)
    write_params((), tmp_path)
    assert (tmp_path / "dvc.yaml").read_text() == DAG
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(choices()))
    with pytest.raises(UserError, match="`lexmill compose --keep` writes them"):
        check_mixtures(tmp_path)
    with pytest.raises(UserError, match="stages of mixtures differ"):
        graph.read(tmp_path)
    write_stages((), tmp_path)
    check_mixtures(tmp_path)
    assert "mix-both" in (tmp_path / "dvc.yaml").read_text()
    with pytest.raises(UserError, match="would change nothing"):
        write_stages(("experiment=full",), tmp_path)
    write_params((), tmp_path)
    assert MARK not in (tmp_path / "dvc.yaml").read_text()


def test_dvc_reads_the_stage_and_makes_the_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "a project"
    root.mkdir()
    monkeypatch.chdir(root)
    data = choices()
    Path("params.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    storage.write_json(layout.CODE, digests(Code().closures()))
    encode = "  encode:\n    foreach: ${encodings}\n    do:\n      cmd: 'true'\n      outs:\n"
    encode += "        - artifacts/tokens/${item.corpus}-${item.tokenizer}\n"
    Path("dvc.yaml").write_text("stages:\n" + encode)
    write_stages()
    (root / "conf" / "execution").mkdir(parents=True)
    (root / "conf" / "execution" / "local.yaml").write_text("accelerator: cpu\n")
    for number, encoding in enumerate(data["encodings"].values()):
        splits = {split: {"text": random_documents(9, number)} for split in ("train", "valid")}
        write_shards(layout.tokens(encoding["corpus"], encoding["tokenizer"]), splits)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("DVC_", "LEXMILL_"))}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(SOURCE),
        "HOME": str(tmp_path),
        "DVC_NO_ANALYTICS": "1",
        "DVC_SITE_CACHE_DIR": str(tmp_path / "site"),
    }

    def dvc(*arguments: str) -> str:
        command = [sys.executable, "-m", "dvc", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    dvc("init", "-q", "--no-scm")
    dvc("commit", "-q", "-f", "encode")
    plan = graph.read(root, ["mix-both"])
    assert [stage.name for stage in plan.todo] == ["mix-both"]
    assert set(plan.stages[-1].needs) == {"encode@shakespeare-shakespeare_bpe", "encode@poems-shakespeare_bpe"}
    cached = sum(
        1 for path in (root / ".dvc" / "cache" / "files").rglob("*") if path.is_file() and path.suffix != ".dir"
    )
    dvc("repro", "-q", "-s", "mix-both")
    assert graph.read(root, ["mix-both"]).todo == ()
    folder = layout.tokens("both", "shakespeare_bpe")
    train = open_train(folder)
    assert train.weights == {"shakespeare": 0.8, "poems": 0.2}
    assert len(open_valid(folder, "poems")) == 9
    after = sum(
        1 for path in (root / ".dvc" / "cache" / "files").rglob("*") if path.is_file() and path.suffix != ".dir"
    )
    assert after == cached + 1  # the mixture's own manifest: the members' bytes were there
