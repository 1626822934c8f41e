"""The stage: params.yaml and fetched files in, corpus, metrics and samples out; a user's error ends with 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.stages import prepare
from tests.corpora.made_sources import make_source

PARAMS = """
experiment: made
data_seed: 1
training_seed: 1
encodings: {}
imported_tokenizers: {}
baselines: {}
inputs: {}
translation_inputs: {}
corpora:
  tickets:
    kind: labelled
    source: {kind: file, paths: [tickets.csv]}
    reader: {format: csv, text: body, label: queue}
    splits: {valid: 0.2, test: 0.2}
"""


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(PARAMS)
    execution = Path("conf/execution")
    execution.mkdir(parents=True)
    (execution / "local.yaml").write_text("accelerator: cpu\n")
    return tmp_path


def fetched(rows):
    make_source(layout.source("tickets"), {"tickets.csv": "body,queue\n" + rows})


def run(key):
    env = {name: value for name, value in os.environ.items() if name not in ("DVC_STAGE", "LEXMILL_EXECUTION")}
    command = [sys.executable, "-m", "lexmill.stages.prepare", key]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_it_writes_corpus_metrics_and_samples(workspace):
    fetched("".join(f"text {i % 90},{'ab'[i % 2]}\n" for i in range(100)))
    done = run("tickets")
    assert done.returncode == 0, done.stderr
    assert "100 records, without exact_duplicates 10: 90 used" in done.stderr
    metrics = storage.read_json(layout.metrics("prepare", "tickets"))
    made = PreparedCorpus(layout.corpus("tickets"))
    assert metrics["records"] == {split: made.count(split) for split in ("train", "valid", "test")}
    samples = storage.read_json(layout.samples("prepare-tickets"))
    assert {row["name"]: row["removed"] for row in samples["filters"]} == metrics["removed"]


def test_wrong_files_end_with_2_file_and_line_and_no_traceback(workspace):
    fetched("fine,a\nno label,\nthree,fields,here\n")
    done = run("tickets")
    assert done.returncode == 2
    assert "tickets.csv:3: the label in 'queue' is empty" in done.stderr
    assert "tickets.csv:4: 3 fields where 2 were expected" in done.stderr
    assert "Traceback" not in done.stderr
    assert not layout.corpus("tickets").exists()
    assert not layout.metrics("prepare", "tickets").exists()


def test_an_unknown_corpus(workspace):
    with pytest.raises(UserError, match=r"corpora\.ticket is not in params.yaml, did you mean 'tickets'"):
        prepare.main("ticket")


def test_an_error_in_a_copy_sends_the_user_to_the_own_file(workspace):
    fetched("".join(f"text {i},a\n" for i in range(30)) + "broken\n")
    done = run("tickets")
    assert done.returncode == 2
    assert done.stderr == (
        "artifacts/sources/tickets/tickets.csv:32: 1 fields where 2 were expected\n"
        "artifacts/sources/tickets/ holds copies: repair your own files, then `lexmill run`\n"
    )
