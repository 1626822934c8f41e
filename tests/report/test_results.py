"""Results beside their baselines: which baselines count, who beats them, and the same JSON every time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.params import Params, parse
from lexmill.report import results

ROOT = Path(__file__).parents[2]
MODEL: dict[str, Any] = {
    "kind": "language_model",
    "family": "gpt",
    "shape": {"n_layer": 1, "n_head": 1, "d_model": 8, "context": 8},
    "data": {"corpus": "plays", "train": "plays", "tokenizer": "bpe"},
    "start": "conf/initialization/gpt2.yaml",
    "recipe": {
        "method": "gradient",
        "optimizer": {"name": "adamw", "lr": 0.1},
        "schedule": {"name": "cosine"},
        "length": "1 steps",
        "batch": 8,
    },
    "evaluate": {"prompts": [""], "ngrams": {}},
}
FILE = {"kind": "file", "paths": ["a.txt"]}


@pytest.fixture
def params() -> Params:
    return parse(
        {
            "experiment": "demo",
            "data_seed": 1,
            "training_seed": 1,
            "corpora": {"plays": {"kind": "text", "source": FILE, "reader": {"format": "text"}}},
            "tokenizers": {
                "bpe": {"corpus": "plays", "kind": "bpe", "vocab_size": 300},
                "bytes": {"corpus": "plays", "kind": "byte"},
            },
            "models": {"gpt": MODEL, "late": {**MODEL, "data": {**MODEL["data"], "tokenizer": "bytes"}}},
        }
    )


def write(root: Path, stage: str, name: str, value: Any) -> None:
    storage.write_json(root / layout.metrics(stage, name), value)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    test = {"bits_per_byte": 2.4, "bits_per_byte_low": 2.3, "bits_per_byte_high": 2.5, "perplexity": 40.0}
    write(tmp_path, "evaluate", "gpt", {"test": test})
    own = {
        "unigram": {"bits_per_byte": 4.0, "perplexity": 300.0},
        "byte_trigram": {"bits_per_byte": 2.9, "perplexity": 7.5},
        "token_trigram": {"bits_per_byte": 2.1, "perplexity": 35.0},
    }
    write(tmp_path, "baseline", "language_model-plays-bpe", own)
    other = {"unigram": {"bits_per_byte": 9.9, "perplexity": 1.1}}
    write(tmp_path, "baseline", "language_model-plays-bytes", other)
    return tmp_path


def test_each_metric_stands_beside_the_baselines_of_its_unit(params: Params, workspace: Path) -> None:
    bits, perplexity = results.collect(params, workspace)
    assert (bits.model, bits.metric, bits.value, bits.low, bits.high) == ("gpt", "bits_per_byte", 2.4, 2.3, 2.5)
    # The baseline with the model's own tokenizer goes before one with another.
    assert bits.baselines == {"unigram": 4.0, "byte_trigram": 2.9, "token_trigram": 2.1}
    # A perplexity a byte is no perplexity a token.
    assert perplexity.baselines == {"unigram": 300.0, "token_trigram": 35.0}
    assert (perplexity.low, perplexity.high) == (None, None)
    assert [bits.beats_baseline(name) for name in bits.baselines] == [True, True, False]
    assert not bits.beats
    assert results.missing(params, workspace) == ["late"]


def test_the_json_and_the_table(params: Params, workspace: Path) -> None:
    rows = results.collect(params, workspace)
    text = results.to_json(rows, "demo")
    assert text == results.to_json(results.collect(params, workspace), "demo")
    assert json.loads(text)["results"][0]["baselines"]["byte_trigram"] == 2.9
    _, _, metric, value, baselines = results.cells(rows[0])
    assert (metric, value) == ("bits per byte ↓", "2.400 [2.300, 2.500]")
    assert baselines.split("\n")[2] == "> 2.100 token trigram (not beaten)"
    assert results.markdown(rows).count("\n") == 4


def test_further_test_sets_follow_without_baselines(params: Params, workspace: Path) -> None:
    tests = {"wiki": {"bits_per_byte": 3.1, "bits_per_byte_low": 3.0, "bits_per_byte_high": 3.2}}
    write(workspace, "evaluate", "gpt", {"test": {"bits_per_byte": 2.4}, "tests": tests})
    test, further = results.collect(params, workspace)
    assert (test.split, further.split, further.value, further.baselines) == ("test", "wiki", 3.1, {})
    assert results.cells(further)[:4] == ("gpt", "plays: wiki", "bits per byte ↓", "3.100 [3.000, 3.200]")
    assert json.loads(results.to_json([further], "demo"))["results"][0]["split"] == "wiki"


def test_a_file_that_is_no_json_is_named(params: Params, workspace: Path) -> None:
    (workspace / layout.metrics("evaluate", "gpt")).write_text("{")
    with pytest.raises(UserError, match=r"gpt\.json: not valid JSON"):
        results.collect(params, workspace)


def test_a_tie_does_not_beat(params: Params, workspace: Path) -> None:
    write(workspace, "evaluate", "gpt", {"test": {"bits_per_byte": 2.9}})
    (row,) = results.collect(params, workspace)
    assert not row.beats_baseline("byte_trigram")


@pytest.mark.parametrize("door", ["from lexmill.cli import main", "from flows.__main__ import main"])
def test_they_are_shown_in_any_locale(door: str) -> None:
    """Arrows and texts are no ASCII; a run of hours must not end in a traceback for that."""
    code = f"""
import sys
from lexmill.commands import run
from lexmill.report.results import Row
row = Row("gpt", "plays", "language_model", "bits_per_byte", 2.0, None, None, False, {{"unigram": 4.0}})
run.print_results = lambda as_json: run.show_results([row], "demo")
run.run_nothing = lambda targets, jobs: run.show_results([row], "demo") or True
run.preflight = lambda: None
{door}
sys.argv = ["x", "results" if "cli" in {door!r} else "run"]
main()
"""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, env=environment, cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
    assert "bits per byte ↓" in done.stdout.decode("utf-8")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.8561, "0.856"), (20.264, "20.26"), (132.96, "133.0"), (4825.8, "4,826"), (-344259.7, "-344,260")],
)
def test_metrics_have_about_four_digits(value: float, text: str) -> None:
    assert results.rounded(value) == text
