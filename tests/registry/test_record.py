"""What goes into a run costs few calls, and needs no git."""

import subprocess
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from lexmill.base import checkout, layout, storage
from lexmill.corpora.identity import split_sha256
from lexmill.params import Params
from lexmill.registry import package, record

from .conftest import make


def test_a_long_curve_costs_a_few_calls(params: Params, tmp_path: Path) -> None:
    """Thousands of single calls were seen to slow a training down; here they come in batches."""
    make(params, tmp_path, "en_de")
    steps = 2500
    lines = ["step,tokens,epoch,train_loss,valid_loss,lr,grad_norm", *(f"{i},1,,2.5,,," for i in range(steps))]
    storage.write_text(tmp_path / layout.curve("en_de"), "\n".join(lines) + "\n")
    folder = package.write(params, "en_de", tmp_path)
    client, run = MagicMock(), MagicMock(inputs=None)
    run.info.run_id, run.info.start_time = "1", 0
    record.fill(client, run, folder, package.read(folder), tmp_path)
    assert not client.log_metric.called
    batches = [call.kwargs["metrics"] for call in client.log_batch.call_args_list if "metrics" in call.kwargs]
    assert len(batches) <= 1 + 2 * steps // 1000
    losses = [point for batch in batches for point in batch if point.key == "curves/train_loss"]
    assert [point.step for point in losses] == list(range(steps))


def test_equal_states_of_dvc_lock_have_one_tag(params: Params, tmp_path: Path) -> None:
    """The same hash as in the run of the pipeline, this run's parent."""
    make(params, tmp_path, "en_de")
    folder = package.write(params, "en_de", tmp_path)
    run = MagicMock(inputs=None)
    run.info.run_id, run.info.start_time = "1", 0

    def described() -> str | None:
        client = MagicMock()
        record.fill(client, run, folder, package.read(folder), tmp_path)
        tags = [tag for call in client.log_batch.call_args_list for tag in call.kwargs.get("tags", [])]
        return next((tag.value for tag in tags if tag.key == "lexmill.dvc_lock"), None)

    assert described() is None
    (tmp_path / "dvc.lock").write_text("stages: {one: {cmd: x}, two: {cmd: y}}\n")
    first = described()
    assert first == checkout.dvc_lock_digest(tmp_path)
    (tmp_path / "dvc.lock").write_text("stages: {two: {cmd: y}, one: {cmd: x}}\n")
    assert described() == first


def test_the_tags_say_what_a_model_was_measured_on(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    path, manifest = tmp_path / layout.metrics("evaluate", "gpt"), tmp_path / layout.corpus("plays") / "manifest.json"
    present = split_sha256(storage.read_json(manifest), "test")
    run = MagicMock(inputs=None)
    run.info.run_id, run.info.start_time = "1", 0

    def logged(test: str) -> tuple[dict[str, str], set[str]]:
        measured_on = {"test": test, "tests": {"C#": "w"}, "tokenizer": "t"}
        storage.write_json(path, {"test": {"bits_per_byte": 2.5}, "measured_on": measured_on})
        folder = package.write(params, "gpt", tmp_path)
        client = MagicMock()
        record.fill(client, run, folder, package.read(folder), tmp_path)
        calls = [call.kwargs for call in client.log_batch.call_args_list]
        tags = {tag.key: tag.value for call in calls for tag in call.get("tags", [])}
        return tags, {one.key for call in calls for one in call.get("metrics", [])}

    tags, metrics = logged(present)
    assert (tags["lexmill.test_sha256"], tags["lexmill.tokenizer"]) == (present, "t")
    assert tags["lexmill.test_sha256.C_x0023_"] == "w"
    assert tags["lexmill.not_compared"] == "byte_trigram, unigram", "those of the fixture say nothing"
    assert not [key for key in metrics | tags.keys() if "measured_on" in key]
    assert tags["lexmill.stale"] == "true", "there is no such further test set now"
    tags, _ = logged("old")
    assert (tags["lexmill.test_sha256"], tags["lexmill.stale"]) == ("old", "true")
    make(params, tmp_path, "gpt")
    folder, client = package.write(params, "gpt", tmp_path), MagicMock()
    record.fill(client, run, folder, package.read(folder), tmp_path)
    tags = {tag.key: tag.value for call in client.log_batch.call_args_list for tag in call.kwargs.get("tags", [])}
    assert tags["lexmill.stale"] == "false"
    assert "lexmill.not_compared" not in tags


def test_without_git_or_a_repository_there_is_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert record.git_state(tmp_path) == {}
    git(tmp_path, "init", "-q")
    assert record.git_state(tmp_path) == {}
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    assert record.git_state(tmp_path) != {}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert record.git_state(tmp_path) == {}


def git(root: Path, *arguments: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    done = subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_the_commit_and_whether_the_files_are_its_own_are_reported(tmp_path: Path) -> None:
    """What was made from changed files cannot be made again from its commit; a file that git does not know is none."""
    git(tmp_path, "init", "-q")
    (tmp_path / "params.yaml").write_text("a: 1\n")
    (tmp_path / "inner").mkdir()
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    first = git(tmp_path, "rev-parse", "HEAD")
    assert len(first) == 40
    clean = {"mlflow.source.git.commit": first, "lexmill.git_dirty": "false"}
    assert record.git_state(tmp_path) == record.git_state(tmp_path / "inner") == clean
    (tmp_path / "mlflow.db").write_text("not added")
    assert record.git_state(tmp_path) == clean
    (tmp_path / "params.yaml").write_text("a: 2\n")
    assert record.git_state(tmp_path) == {**clean, "lexmill.git_dirty": "true"}
    git(tmp_path, "add", "params.yaml")
    assert record.git_state(tmp_path) == {**clean, "lexmill.git_dirty": "true"}
    git(tmp_path, "commit", "-q", "-m", "second")
    assert record.git_state(tmp_path) == {**clean, "mlflow.source.git.commit": git(tmp_path, "rev-parse", "HEAD")}


def test_labels_and_groups_of_any_spelling_are_logged_each_by_its_own_name(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "tickets")
    folder = package.write(params, "tickets", tmp_path)
    described = package.read(folder)
    described["metrics"]["tests"] = {"news": {"accuracy": 0.5}}
    described["metrics"]["test"] = {"C# as C+": 1, "C+ as C#": 2, "/Arts as a//b": 3}
    described["metrics"]["per_class"] = {"C#": {"f1": 0.25}, "C+": {"f1": 0.75, "roc_auc": 0.5}}
    described["params"]["corpus"]["splits"]["pinned"] = {"/Arts": "test", "C#": "train", "C+": "valid"}
    client, run = MagicMock(), MagicMock(inputs=None)
    run.info.run_id, run.info.start_time = "1", 0
    record.fill(client, run, folder, described, tmp_path)
    calls = client.log_batch.call_args_list
    metrics = {one.key: one.value for call in calls for one in call.kwargs.get("metrics", [])}
    pinned = {one.key: one.value for call in calls for one in call.kwargs.get("params", []) if "pinned" in one.key}
    assert {key: value for key, value in metrics.items() if key.startswith("test/")} == {
        "test/C_x0023_ as C_x002B_": 1,
        "test/C_x002B_ as C_x0023_": 2,
        "test/_x002F_Arts as a_x002F__x002F_b": 3,
    }
    assert metrics["test.news/accuracy"] == 0.5
    assert {key: value for key, value in metrics.items() if key.startswith("per_class/")} == {
        "per_class/C_x0023_.f1": 0.25,
        "per_class/C_x002B_.f1": 0.75,
        "per_class/C_x002B_.roc_auc": 0.5,
    }
    assert pinned == {
        "corpus.splits.pinned./Arts": "test",
        "corpus.splits.pinned.C_x0023_": "train",
        "corpus.splits.pinned.C_x002B_": "valid",
    }


def test_the_metrics_of_each_class_are_those_of_the_evaluation(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "tickets")
    path = tmp_path / layout.metrics("evaluate", "tickets")
    measured = {"C#": {"items": 3, "recall": 0.5}}
    storage.write_json(path, {**storage.read_json(path), "per_class": measured})
    assert package.read(package.write(params, "tickets", tmp_path))["metrics"]["per_class"] == measured


def test_word_perplexity_goes_along_with_those_of_the_baselines() -> None:
    metrics = {"test": {"word_perplexity": 900.0}, "baselines": {"byte_trigram": {"word_perplexity": 2000.0}}}
    assert record._metrics(metrics)[0] == {
        "test/word_perplexity": 900.0,
        "baseline.byte_trigram/word_perplexity": 2000.0,
    }
