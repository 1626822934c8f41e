"""Pieces as mapped tasks of Prefect, here, on Dask and on Ray: the bytes of one process, and nothing left behind."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from flows import shards
from lexmill.base import layout, storage
from lexmill.base.errors import RetryableError, UserError, UserErrors
from lexmill.compute.workers import identity
from lexmill.compute.workers.cluster import Cluster
from lexmill.compute.workers.executor import Executor
from lexmill.compute.workers.processes import Processes
from lexmill.compute.workers.settings import DataWorkers
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.prepare import Report, prepare
from lexmill.data.encoding import encode_corpus
from lexmill.data.encoding_pieces import encode_pieces
from lexmill.stages import encode as encode_stage
from lexmill.stages import prepare as prepare_stage
from lexmill.tokenizers import load
from lexmill.tokenizers.saving import save
from lexmill.tokenizers.training import train
from tests.compute.workers import made_work
from tests.corpora.made_sources import corpus_of, make_source
from tests.flows.conftest import PROJECT
from tests.flows.made_clusters import CLUSTERS, RAY_LOGIN
from tests.support.small_project import MODEL, whole
from tests.support.waiting import wait_for

pytestmark = pytest.mark.e2e

CORPUS = corpus_of(
    "text",
    {"format": "jsonl", "text": "text", "group": "group"},
    splits={"valid": 0.2, "test": 0.2},
    deduplicate={"near": True, "shingle": 2, "permutations": 32, "threshold": 0.7},
    filters={"min_words": 2, "drop_urls": True},
)


@pytest.fixture
def server(prefect_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PREFECT_API_URL", f"{prefect_url}/api")
    return prefect_url


@contextmanager
def cluster(kind: Any, address: str = "", name: str = "made", piece_bytes: int = 10_000) -> Iterator[Cluster]:
    with Cluster(name, DataWorkers(workers=kind, address=address), 2, piece_bytes) as workers:
        yield workers


def below() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))


# ---------------------------------------------------------------- equal bytes


def made_files() -> dict[str, str]:
    """Files with duplicates and near duplicates of each other, odd documents; larger than a piece, and an empty one."""
    draw = random.Random(7)
    words = [f"w{i}" for i in range(200)] + ["ä", "e\u0301", "</s>", "http://x", "\u2028", "tab\t", "😀"]
    seen = ["", " ", "one", "w" * 5000]
    files = {}
    for shard in range(5):
        rows = []
        for _ in range(60):
            text = " ".join(draw.choices(words, k=draw.randrange(25)))
            text = draw.choice(seen) if draw.random() < 0.3 else text
            seen.append(text + " tail" if draw.random() < 0.3 else text)
            rows.append({"text": seen[-1], "group": f"g{draw.randrange(30)}"})
        files[f"part{shard}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
    files["part3.jsonl"] = ""
    return files


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large")
    make_source(root / "source", made_files())
    (root / "tokenizer").mkdir()
    save(train("bpe", lambda: ["w1 w2 w3 w12 </s>"], vocab_size=270), root / "tokenizer")
    return root


def both_stages(made: Path, target: Path, executor: Executor) -> tuple[str, str, Report]:
    """Prepare and encode; hashes of both folders, and what prepare tells."""
    report = prepare("made", CORPUS, made / "source", target / "corpus", executor)
    corpus, tokens = PreparedCorpus(target / "corpus"), target / "tokens"
    with storage.new_folder(tokens) as folder, storage.scratch_folder(tokens) as scratch:
        encode_pieces(folder, corpus, made / "tokenizer", "d" * 64, executor=executor, scratch=scratch)
    assert sorted(path.name for path in target.iterdir()) == ["corpus", "tokens"]
    return storage.sha256_folder(corpus.folder), storage.sha256_folder(tokens), report


@pytest.fixture(scope="module")
def one_process(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Report]:
    target = tmp_path_factory.mktemp("one")
    report = prepare("made", CORPUS, made / "source", target / "corpus")
    corpus = PreparedCorpus(target / "corpus")
    removed = report.metrics["removed"]
    assert min(removed[name] for name in ("exact_duplicates", "near_duplicates", "drop_urls", "min_words")) > 0
    (target / "tokens").mkdir()
    records = {split: corpus.records(split) for split in sorted(corpus.manifest["splits"])}
    encode_corpus(target / "tokens", corpus.kind, dict(records), load(made / "tokenizer"), "d" * 64)
    return storage.sha256_folder(target / "corpus"), storage.sha256_folder(target / "tokens"), report


def test_processes_give_the_bytes_of_one(made: Path, one_process: Any, tmp_path: Path) -> None:
    with Processes(2, 10_000) as pool:
        assert both_stages(made, tmp_path, pool) == one_process


@pytest.mark.parametrize("kind", ["prefect", "dask", "ray"])
def test_mapped_tasks_give_the_bytes_of_one_process_though_a_worker_is_killed(
    made: Path, one_process: Any, tmp_path: Path, server: str, kind: str
) -> None:
    before = below()
    (tmp_path / "stages").mkdir()
    with cluster(kind, name=f"made on {kind}") as workers:
        if kind != "prefect":  # there a lost process ends the stage
            items = [{"x": x} for x in range(6)]
            found = workers.map(made_work.killed, {"scratch": str(tmp_path)}, items, lambda _: None)
            assert list(found) == [{"square": x**2} for x in range(6)]
            assert (tmp_path / "killed").exists()
        assert both_stages(made, tmp_path / "stages", workers) == one_process
    assert below() <= before
    run = run_named(server, f"made on {kind}")
    assert run["state_type"] == "COMPLETED"
    tasks = tasks_of(server, run)
    assert len(tasks) > 30  # each file was cut
    assert {task["state_type"] for task in tasks} == {"COMPLETED"}


def ask(server: str, what: str, **body: Any) -> list[dict[str, Any]]:
    """The server's answer to a filter."""
    request = urllib.request.Request(
        f"{server}/api/{what}/filter", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return list(json.load(reply))


def run_named(server: str, name: str) -> dict[str, Any]:
    return ask(server, "flow_runs", sort="START_TIME_DESC", flow_runs={"name": {"any_": [name]}})[0]


def tasks_of(server: str, run: dict[str, Any]) -> list[dict[str, Any]]:
    return ask(server, "task_runs", task_runs={"flow_run_id": {"any_": [run["id"]]}})


# ---------------------------------------------------------------- what goes wrong


def test_an_error_of_the_user_is_reported_of_all_pieces_and_only_what_may_pass_is_tried_again(
    tmp_path: Path, server: str
) -> None:
    common = {"scratch": str(tmp_path)}
    with cluster("prefect", name="tries") as workers:
        items = [{"x": x} for x in (2, 3, 9)]
        with pytest.raises(UserErrors) as caught:
            list(workers.map(made_work.faulty, common, items, lambda _: None))
        assert caught.value.errors == ["a.txt:3: odd", "a.txt:9: odd"]
        found = list(workers.map(made_work.once_busy, common, items[:1], lambda _: None))
        assert found == [{"square": 4}]
        with pytest.raises(RuntimeError, match=r"(?s)made_work.py.*ZeroDivisionError"):
            list(workers.map(made_work.buggy, common, [{"x": 0}], lambda _: None))
    run = run_named(server, "tries")
    assert run["state_type"] == "FAILED"
    tasks = sorted((task["state_type"], task["run_count"]) for task in tasks_of(server, run))
    assert tasks == [("COMPLETED", 1), ("COMPLETED", 2), ("FAILED", 1), ("FAILED", 1), ("FAILED", 1)]


STAGE = """
import sys
from lexmill.compute.workers.cluster import Cluster
from lexmill.compute.workers.settings import DataWorkers
from tests.compute.workers import made_work
from lexmill.stages.entry import terminate
import signal
signal.signal(signal.SIGTERM, terminate)
with Cluster("slow", DataWorkers(workers="dask"), 2, 1) as workers:
    items = [{"x": 1, "seconds": 600}] * 3
    list(workers.map(made_work.slow, {"scratch": sys.argv[1]}, items, lambda _: None))
"""


@pytest.mark.parametrize(
    ("who", "number"), [("stage", signal.SIGKILL), ("stage", signal.SIGTERM), ("child", signal.SIGKILL)]
)
def test_a_stage_that_is_ended_leaves_nothing_behind(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch, who: str, number: int
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    stage = subprocess.Popen([sys.executable, "-c", STAGE, str(tmp_path)], cwd=PROJECT)
    try:
        wait_for(lambda: len(list(tmp_path.glob("pid-*"))) >= 2, alive=stage)
        processes = psutil.Process(stage.pid).children(recursive=True)
        assert len(processes) >= 3
    finally:
        ended = psutil.Process(stage.pid) if who == "stage" else psutil.Process(stage.pid).children()[0]
        ended.send_signal(number)
    stage.wait(100)
    assert not psutil.wait_procs(processes, timeout=60)[1]
    assert not list(temporary.glob("lexmill-*"))


# ---------------------------------------------------------------- a cluster that others have started


@pytest.mark.parametrize("kind", CLUSTERS)
def test_the_stages_use_the_cluster_at_the_address_of_the_settings(
    made: Path, tmp_path: Path, workspace: Any, server: str, *, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    root = workspace.root
    workspace.environment |= RAY_LOGIN
    (root / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    shutil.copytree(made / "source", root / layout.source("plays"))
    shutil.copytree(made / "tokenizer", root / layout.tokenizer("made"))
    (root / "conf/execution/alone.yaml").write_text("data: {workers: local}\n")
    monkeypatch.chdir(root)
    monkeypatch.setenv("LEXMILL_EXECUTION", "alone")
    folders = [root / layout.corpus("plays"), root / layout.tokens("plays", "made")]
    prepare_stage.main("plays")
    encode_stage.main("plays-made")
    wanted = [storage.sha256_folder(folder) for folder in folders]
    for folder in folders:
        shutil.rmtree(folder)
    with CLUSTERS[kind](tmp_path / "there") as address:
        settings = {"publish": False, "data": {"workers": kind, "address": address, "count": 2, "from_bytes": 0}}
        (root / "conf/execution/local.yaml").write_text(yaml.safe_dump(settings))
        for stage, name in (("prepare", "plays"), ("encode", "plays-made")):
            code, output = workspace.run("-m", f"lexmill.stages.{stage}", name)
            assert code == 0, output
            run = run_named(workspace.url, f"{stage} {name}")
            assert run["state_type"] == "COMPLETED"
            assert len(tasks_of(workspace.url, run)) > 10
        if kind == "dask":
            workers_of_other_code_are_refused(made, address, tmp_path / "second", monkeypatch)
    assert [storage.sha256_folder(folder) for folder in folders] == wanted


def workers_of_other_code_are_refused(made: Path, address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr(identity, "code_fingerprint", lambda: "of another day")
    folder.mkdir()
    with (
        cluster("dask", address) as workers,
        pytest.raises(UserErrors, match=r"the worker on .* has other code of lexmill \(in .*/lexmill\)"),
    ):
        both_stages(made, folder, workers)
    assert not list(folder.iterdir())


def test_a_cluster_that_does_not_answer_is_worth_another_try() -> None:
    with pytest.raises(RetryableError, match=r"the ray cluster at ray://127.0.0.1:9 does not answer"):
        Cluster("made", DataWorkers(workers="ray", address="ray://127.0.0.1:9"), 2, 1)


@pytest.mark.parametrize("failures", [0, 2, 3])
def test_a_head_of_ray_that_fails_to_start_what_we_need_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    import ray

    asked: list[str] = []

    def init(address: str, **_options: Any) -> None:
        asked.append(address)
        if len(asked) <= failures:
            raise ConnectionAbortedError("Initialization failure from server")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: asked.append("shut down"))
    if failures == 3:
        with (
            pytest.raises(RetryableError, match=r"did not let us in \(Initialization failure"),
            shards._ray(2, "ray://h:1"),
        ):
            raise AssertionError("it let us in")
    else:
        with shards._ray(2, "ray://h:1"):
            pass
        assert asked == ["ray://h:1"] * (failures + 1) + ["shut down"]


def test_workers_elsewhere_must_reach_the_server(server: str) -> None:
    shards._check_server("tcp://127.0.0.1:8786")
    with pytest.raises(UserError, match=r"cannot reach the Prefect server at http://127.0.0.1"):
        shards._check_server("tcp://10.0.0.1:8786")
    os.environ["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    with pytest.raises(RetryableError, match="does not answer"):
        shards._check_server("")


# ---------------------------------------------------------------- the stages


PARAMS = whole(
    {
        "experiment": "made",
        "data_seed": 1,
        "training_seed": 1,
        "corpora": {
            "plays": {
                "kind": "text",
                "source": {"kind": "file", "paths": ["plays.txt"]},
                "reader": {"format": "jsonl", "text": "text", "group": "group"},
                "splits": {"valid": 0.2, "test": 0.2},
            }
        },
        "tokenizers": {"made": {"corpus": "plays", "kind": "bpe", "vocab_size": 270}},
        "models": {"toy": MODEL | {"data": {"corpus": "plays", "train": "plays", "tokenizer": "made"}}},
    }
)


def test_the_stage_takes_its_workers_from_the_execution_settings(workspace: Any) -> None:
    root, lines = workspace.root, made_files()
    (root / "params.yaml").write_text(yaml.safe_dump(PARAMS))
    (root / "conf/execution/local.yaml").write_text(
        yaml.safe_dump({"data": {"workers": "prefect", "count": 2, "from_bytes": 0}})
    )
    source = root / layout.source("plays")
    make_source(source, lines)
    code, output = workspace.run("-m", "lexmill.stages.prepare", "plays")
    assert code == 0, output
    assert (root / layout.corpus("plays") / "manifest.json").exists()
    make_source(source, {**lines, "part1.jsonl": "no json\n", "part4.jsonl": '{"text": 3, "group": "x"}\n'})
    code, output = workspace.run("-m", "lexmill.stages.prepare", "plays")
    assert code == 2, output
    message = [line for line in output.split("\n") if "artifacts/" in line]
    assert message == [
        "artifacts/sources/plays/part1.jsonl:1: not valid JSON: Expecting value (column 1)",
        "artifacts/sources/plays/part4.jsonl:1: 'text' holds 3, not text",
        "artifacts/sources/plays/ holds copies: repair your own files, then `lexmill run`",
    ]
    assert "Traceback" not in output
    assert [path.name for path in (root / layout.corpus("plays")).parent.iterdir()] == ["plays"]
