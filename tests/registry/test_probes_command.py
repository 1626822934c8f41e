"""`lexmill minimal-pairs` and `lexmill last-words` on registered models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from lexmill import cli, kinds
from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.registry.loader import load_package

from .plain import plain_params


@pytest.fixture
def here(
    published: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execution: Execution
) -> Path:
    """A copy of the published workspace, with its params and settings as files."""
    where = tmp_path / "copy"
    shutil.copytree(published[0], where)
    (where / "params.yaml").write_text(yaml.safe_dump(plain_params()))
    settings = tmp_path / "execution.yaml"
    settings.write_text(f"accelerator: cpu\nthreads: 1\ntracking_uri: {execution.tracking_uri}\n")
    monkeypatch.setenv("LEXMILL_EXECUTION", str(settings))
    monkeypatch.chdir(where)
    return where


def said(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.mark.usefixtures("here")
def test_pairs_and_last_words_of_a_language_model() -> None:
    good, bad = ["To be", "Who left?", "a b"], ["To bes", "Left who?", "b a"]
    lines = [f"{one}\t{two}\t{'order' if i else 'form'}\n" for i, (one, two) in enumerate(zip(good, bad, strict=True))]
    Path("pairs.tsv").write_text("yes\tno\twhat\n" + "".join(lines))
    asked = ["minimal-pairs", "gpt", "pairs.tsv", "--good", "yes", "--bad", "no", "--phenomenon", "what"]
    found = json.loads(said(*asked, "--json", "--rows", "rows.jsonl"))["metrics"]
    model = load_package("artifacts/packages/gpt")
    values = kinds.find("language_model").module("sentences").log_probabilities(model, [*good, *bad])
    right = [one > other for one, other in zip(values, values[3:], strict=False)]
    assert found["all"]["accuracy"] == pytest.approx(sum(right) / 3)
    assert (found["form"]["pairs"], found["order"]["pairs"]) == (1, 2)
    rows = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert [row["good"] for row in rows] == pytest.approx(values[:3], rel=1e-5)
    assert "phenomenon" in said(*asked)
    with pytest.raises(UserError, match=r"'gpt' reads from the left only; recipe\.method: hybrid"):
        said(*asked, "--masked")
    Path("texts.txt").write_text("To be or not\nthe end\n")
    words = json.loads(said("last-words", "gpt", "texts.txt", "--json"))["metrics"]
    assert words["words"] == 2
    assert words["nats_per_word"] > 0
    assert "nats a word" in said("last-words", "gpt", "texts.txt")
    with pytest.raises(UserError, match="'tickets' is a classifier, which gives sentences no probabilities; take an"):
        said("last-words", "tickets", "texts.txt")
