"""Any key, as the label of a text, becomes a name that MLflow takes, and no two keys the same one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.entities import Metric, Param
from mlflow.utils.validation import _validate_metric_name

from lexmill.tracking import store
from lexmill.tracking.names import LONGEST, MOST_CLASSES, entity_name, key_of, metric_name, numbers_in

from .test_points import URI, client_of

LABELS = (
    *("/Arts & Entertainment", "C#", "C+", "C", "a//b", "a/b", "a/", ".", "..", "", "a\nb", "a\tb", "a\\b", "_x0041_"),
    *("_x_", "_x", "A", "é", "日本", "NaN", "1e5", "TRUE", "x" * 300, "x" * 301, "\udc80", "../../etc", "./a", " "),
)
KEYS = st.text(st.sampled_from("ab/._xAF05 #\n\\é"), max_size=8) | st.text(max_size=5) | st.sampled_from(LABELS)


def test_plain_keys_stay_as_they_are() -> None:
    assert metric_name(("test", "bits_per_byte")) == "test/bits_per_byte"
    assert metric_name(("loss",)) == "loss"
    assert metric_name(("confusion", "so-so as very good")) == "confusion/so-so as very good"
    assert metric_name(("confusion", "a/b as e.g. c")) == "confusion/a/b as e.g. c"
    assert metric_name(("a", "b", "c")) == "a/b.c"
    assert entity_name("corpus.splits.pinned.The Tempest") == "corpus.splits.pinned.The Tempest"


def test_what_mlflow_does_not_take_is_written_as_its_code() -> None:
    assert metric_name(("confusion", "C# as C+")) == "confusion/C_x0023_ as C_x002B_"
    assert metric_name(("confusion", "/Arts & Entertainment as /News")) == (
        "confusion/_x002F_Arts _x0026_ Entertainment as _x002F_News"
    )
    assert metric_name(("confusion", "..")) == "confusion/_x002E_."
    assert entity_name("corpus.splits.pinned.a\nb") == "corpus.splits.pinned.a_x000A_b"


@settings(max_examples=300, deadline=None)
@given(st.lists(KEYS, min_size=2, max_size=2, unique=True), KEYS)
def test_no_two_keys_share_a_name_and_mlflow_takes_each(keys: list[str], first: str) -> None:
    for paths in ([(key,) for key in keys], [(first, key) for key in keys], [(key, first) for key in keys]):
        one, other = map(metric_name, paths)
        assert one != other
        for name in (one, other, *map(entity_name, keys)):
            _validate_metric_name(f"train/{name}")
            _validate_metric_name(name)
            assert len(name) <= LONGEST


@settings(max_examples=300, deadline=None)
@given(KEYS.filter(lambda key: len(key) < 30))
def test_a_name_is_read_back(key: str) -> None:
    assert key_of(entity_name(key)) == key
    assert key_of(metric_name(("confusion", key)).removeprefix("confusion/")) == key


def test_mlflow_keeps_a_metric_of_each_label(root: Path) -> None:
    counts = {label: number for number, label in enumerate(LABELS)}
    measured = list(numbers_in({"confusion": counts}))
    with store.opened(URI, root) as client:
        run_id = client.create_run("0").info.run_id
        client.log_batch(
            run_id,
            metrics=[Metric(name, value, 0, 0) for name, value in measured],
            params=[Param(entity_name(label), "1") for label in LABELS],
        )
    kept = client_of(root).get_run(run_id).data
    assert sorted(kept.metrics.values()) == sorted(counts.values())
    assert len(kept.params) == len(LABELS)


@pytest.mark.parametrize("labels", [("C#", "C+"), ("x" * 300, "x" * 300 + "y")])
def test_the_number_of_each_label_is_its_own(labels: tuple[str, str]) -> None:
    found = dict(numbers_in({"per_class": {labels[0]: {"f1": 0.25}, labels[1]: {"f1": 0.75}}}))
    assert sorted(found.values()) == [0.25, 0.75]


def test_the_classes_are_logged_unless_they_are_too_many() -> None:
    for number, logged in ((MOST_CLASSES, MOST_CLASSES), (MOST_CLASSES + 1, 0)):
        metrics = {"test": {"accuracy": 0.5}, "per_class": {str(i): {"f1": 0.5} for i in range(number)}}
        found = [name for name, _ in numbers_in(metrics)]
        assert "test/accuracy" in found
        assert len(found) == 1 + logged
