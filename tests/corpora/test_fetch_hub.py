"""Data sets as `datasets.load_dataset` gives them: from a local folder, with every kind of column."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lexmill.base.errors import RetryableError, UserError
from lexmill.params.corpora import HubSource
from tests.support.fetching import bring, nothing_left


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import datasets

    # The library fixes its cache when it is first imported, perhaps by another test.
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    return tmp_path


def save(workspace: Path, features: Any, splits: dict[str, list[dict[str, Any]]]) -> None:
    """A data set folder as one finds it on the hub: parquet files and their features in a README."""
    import datasets

    folder = workspace / "data set"
    folder.mkdir()
    for split, rows in splits.items():
        data = datasets.Dataset.from_list(rows, features=datasets.Features(features))
        data.to_parquet(str(folder / f"{split}.parquet"))


def lines(text: bytes) -> list[Any]:
    return [json.loads(line) for line in text.decode().split("\n")[:-1]]


def test_text_and_labels_are_written_as_names(workspace: Path) -> None:
    import datasets

    features = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["bad", "good"])}
    rows = [{"text": f"Sätze {i}\u2028zwei", "label": i % 2} for i in range(2500)]
    save(workspace, features, {"train": rows, "test": [{"text": "?", "label": -1}]})
    found = bring(HubSource("hub", "data set", splits=("train", "test")), workspace)
    assert sorted(found) == ["test.jsonl", "train.jsonl"]
    assert lines(found["train.jsonl"]) == [{**row, "label": ["bad", "good"][row["label"]]} for row in rows]
    assert lines(found["test.jsonl"]) == [{"text": "?", "label": None}]
    assert bring(HubSource("hub", "data set", splits=("train", "test")), workspace) == found


def test_nested_columns_are_joined_by_dots_and_values_become_json(workspace: Path) -> None:
    import datasets

    features = {
        "translation": datasets.Translation(["de", "en"]),
        "tags": datasets.List(datasets.ClassLabel(names=["O", "B"])),
        "score": datasets.Value("float64"),
        "day": datasets.Value("date32"),
    }
    import datetime

    row = {"translation": {"de": "ja", "en": "yes"}, "tags": [0, 1], "score": 0.5, "day": datetime.date(2020, 1, 2)}
    save(workspace, features, {"train": [row, {**row, "score": float("nan")}]})
    found = lines(bring(HubSource("hub", "data set"), workspace)["train.jsonl"])
    expected = {"translation.de": "ja", "translation.en": "yes", "tags": ["O", "B"], "score": 0.5, "day": "2020-01-02"}
    assert found == [expected, {**expected, "score": None}]


def test_pictures_are_refused_by_column(workspace: Path) -> None:
    import datasets

    save(
        workspace,
        {"text": datasets.Value("string"), "raw": datasets.Value("binary")},
        {"train": [{"text": "", "raw": b""}]},
    )
    with pytest.raises(UserError, match="hub data set data set: column 'raw' is of the kind Value of binary"):
        bring(HubSource("hub", "data set"), workspace)
    assert nothing_left(workspace)


def test_a_missing_split_or_subset_is_the_users_to_mend(workspace: Path) -> None:
    import datasets

    save(workspace, {"text": datasets.Value("string")}, {"train": [{"text": "x"}]})
    with pytest.raises(UserError, match=r"split 'dev' cannot be loaded: .*dev"):
        bring(HubSource("hub", "data set", splits=("train", "dev")), workspace)
    with pytest.raises(UserError, match=r"cannot be loaded: .*other"):
        bring(HubSource("hub", "data set", subset="other"), workspace)
    (workspace / "data set" / "train.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match="cannot be loaded"):
        bring(HubSource("hub", "data set"), workspace)
    assert nothing_left(workspace)


def test_a_folder_without_data_and_one_that_is_not_there(workspace: Path) -> None:
    (workspace / "empty").mkdir()
    with pytest.raises(UserError, match="cannot be loaded"):
        bring(HubSource("hub", "empty"), workspace)
    with pytest.raises(UserError, match="cannot be loaded"):
        bring(HubSource("hub", "./not there"), workspace)


@pytest.mark.parametrize(
    "error",
    [ConnectionError("Couldn't reach 'x' on the Hub"), TimeoutError("slow"), OSError("offline mode is enabled")],
)
def test_a_hub_that_cannot_be_reached_is_worth_another_try(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    import datasets

    def unreachable(*_args: object, **_kwargs: object) -> None:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(RetryableError, match="hub data set someone/some"):
        bring(HubSource("hub", "someone/some"), workspace)
    assert nothing_left(workspace)


def test_a_full_disk_and_an_error_of_our_own_are_not_the_users(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    errors: list[Exception] = [OSError(28, "No space left on device"), KeyError("a bug")]

    def broken(*_args: object, **_kwargs: object) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(datasets, "load_dataset", broken)
    with pytest.raises(RetryableError, match="the disk is full"):
        bring(HubSource("hub", "some"), workspace)
    with pytest.raises(KeyError, match="a bug"):
        bring(HubSource("hub", "some"), workspace)


def test_a_home_that_cannot_be_written_does_no_harm(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    save(workspace, {"text": datasets.Value("string")}, {"train": [{"text": "x"}]})
    (workspace / "no folder").write_bytes(b"")
    monkeypatch.delenv("HF_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace / "no folder"))
    assert lines(bring(HubSource("hub", "data set"), workspace)["train.jsonl"]) == [{"text": "x"}]
    assert os.environ.pop("HF_HOME").endswith(".lexmill/downloads/huggingface")
