"""Only what was measured on the same test set and tokens is compared, by fingerprint; what is stale is marked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lexmill import params as choices_of
from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.commands import run
from lexmill.corpora.identity import MEASURED_ON, split_sha256
from lexmill.kinds import Metric, find
from lexmill.params import Params, parse
from lexmill.report import results, verdicts
from lexmill.report.measured import Measured
from lexmill.report.results import Row
from tests.report.project import Project
from tests.report.test_page import shown
from tests.report.test_results import FILE, MODEL

OLD, NEW = {"test": "old", "tokenizer": "300"}, {"test": "old", "tokenizer": "2048"}
TEST = {"bits_per_byte": 2.4, "word_perplexity": 900.0, "word_perplexity_low": 880.0, "perplexity": 40.0}
TEST |= {"word_perplexity_high": 920.0}
UNIGRAM = {"bits_per_byte": 4.0, "word_perplexity": 5000.0, "perplexity": 30.0}
BYTES = {"bits_per_byte": 2.9, "word_perplexity": 2000.0, "perplexity": 7.5}


@pytest.fixture
def params() -> Params:
    return parse(
        {
            "experiment": "demo",
            "data_seed": 1,
            "training_seed": 1,
            "corpora": {"plays": {"kind": "text", "source": FILE, "reader": {"format": "text"}}},
            "tokenizers": {"bpe": {"corpus": "plays", "kind": "bpe", "vocab_size": 300}},
            "models": {"gpt": MODEL},
        }
    )


def manifest(test: str, **further: str) -> dict[str, Any]:
    splits = {name: {"records": 1, "shards": [{"path": "a", "sha256": of}]} for name, of in further.items()}
    splits |= {name: {"records": 1, "shards": [{"path": "a", "sha256": test}]} for name in ("train", "valid", "test")}
    return {"kind": "text", "unit": "work", "languages": ["en"], "splits": splits}


def collected(
    params: Params, root: Path, model: dict[str, Any] | None, baseline: dict[str, Any] | None, **more: Any
) -> dict[str, Row]:
    """The rows by metric of a model and baselines that were measured on these (None: by an older version)."""
    ours = {MEASURED_ON: model} if model else {}
    theirs = {MEASURED_ON: baseline} if baseline else {}
    storage.write_json(root / layout.metrics("evaluate", "gpt"), {"test": TEST, **ours, **more})
    found = {"unigram": UNIGRAM, "byte_trigram": BYTES, **theirs}
    storage.write_json(root / layout.metrics("baseline", "language_model-plays-bpe"), found)
    return {row.metric if row.split == "test" else row.split: row for row in results.collect(params, root)}


def test_a_perplexity_over_2048_tokens_is_not_compared_with_one_over_300(params: Params, tmp_path: Path) -> None:
    rows = collected(params, tmp_path, NEW, OLD)
    row = rows["perplexity"]
    assert (row.baselines, row.not_compared, row.beats) == ({}, ("unigram",), False)
    assert "(not beaten)" not in results.cells(row)[4]
    assert results.cells(row)[4] == "not compared (stale): unigram"
    assert verdicts.of_row(row).state == "unknown"
    # What does not count tokens still is.
    for name in ("bits_per_byte", "word_perplexity"):
        assert rows[name].baselines.keys() == {"unigram", "byte_trigram"}
        assert rows[name].beats
    assert verdicts.of_model(list(rows.values())).words == "beats both baselines"


@pytest.mark.parametrize("baseline", [{"test": "new", "tokenizer": "300"}, None])
def test_nothing_is_compared_with_another_test_set(
    params: Params, tmp_path: Path, baseline: dict[str, Any] | None
) -> None:
    for row in collected(params, tmp_path, OLD, baseline).values():
        assert row.baselines == {}
        names = ("unigram",) if row.metric == "perplexity" else ("byte_trigram", "unigram")
        assert row.not_compared == names
        assert verdicts.of_model([row]).words.startswith("is not compared with ")


@pytest.mark.parametrize("measured_on", [OLD, None])
def test_the_same_fingerprints_or_none_are_compared(
    params: Params, tmp_path: Path, measured_on: dict[str, Any] | None
) -> None:
    rows = collected(params, tmp_path, measured_on, measured_on)
    assert [row.not_compared for row in rows.values()] == [(), (), ()]
    assert rows["perplexity"].baselines == {"unigram": 30.0}, "a perplexity a byte is no perplexity a token"
    assert results.stale_note(list(rows.values())) == ""


def test_the_name_of_a_tokenizer_does_not_matter(tmp_path: Path) -> None:
    """The same tokens under another name are the same tokens."""
    two = {"bpe": {"corpus": "plays", "kind": "bpe", "vocab_size": 300}, "bytes": {"corpus": "plays", "kind": "byte"}}
    late = {**MODEL, "data": {**MODEL["data"], "tokenizer": "bytes"}}
    corpora = {"plays": {"kind": "text", "source": FILE, "reader": {"format": "text"}}}
    seeds = {"experiment": "demo", "data_seed": 1, "training_seed": 1}
    both = parse({**seeds, "corpora": corpora, "tokenizers": two, "models": {"late": late, "gpt": MODEL}})
    storage.write_json(tmp_path / layout.metrics("evaluate", "late"), {"test": TEST, MEASURED_ON: OLD})
    other = tmp_path / layout.metrics("baseline", "language_model-plays-bpe")
    storage.write_json(other, {"unigram": UNIGRAM, MEASURED_ON: OLD})
    assert results.collect(both, tmp_path)[-1].baselines == {"unigram": 30.0}
    storage.write_json(other, {"unigram": UNIGRAM, MEASURED_ON: NEW})
    row = results.collect(both, tmp_path)[-1]
    assert (row.baselines, row.not_compared) == ({}, ()), "another tokenizer's perplexity is not stale, but another"


def test_metrics_of_an_older_test_set_are_stale(params: Params, tmp_path: Path) -> None:
    prepared = manifest("a", wiki="b", news="c")
    path = tmp_path / layout.corpus("plays") / "manifest.json"
    storage.write_json(path, prepared)
    now = {"test": split_sha256(prepared, "test"), "tests": {s: split_sha256(prepared, s) for s in ("wiki", "news")}}
    tests = {"tests": {"wiki": TEST, "news": TEST}}

    def stale() -> set[str]:
        return {name for name, row in collected(params, tmp_path, now, now, **tests).items() if row.stale}

    assert stale() == set()
    storage.write_json(path, manifest("a", wiki="moved"))
    assert stale() == {"wiki", "news"}, "one was changed, one is no longer there"
    storage.write_json(path, manifest("z", wiki="b", news="c"))
    assert stale() == {"bits_per_byte", "word_perplexity", "perplexity"}
    rows = list(collected(params, tmp_path, now, now).values())
    assert rows[0].baselines, "both are of the same older test set"
    assert results.cells(rows[0])[3] == "2.400 (stale)"
    assert results.markdown(rows).endswith("\n\n" + results.stale_note(rows) + "\n")
    assert json.loads(results.to_json(rows, "demo"))["results"][0]["stale"] is True
    path.unlink()
    assert stale() == set(), "a workspace without the corpus cannot tell"
    assert not any(row.stale for row in collected(params, tmp_path, None, None).values())


def test_metrics_of_an_older_tokenizer_are_stale(params: Params, tmp_path: Path) -> None:
    path = tmp_path / layout.tokenizer("bpe") / "tokenizer.json"
    storage.write_text(path, "{}")
    of_now = {"test": "old", "tokenizer": storage.sha256_file(path)}
    assert not any(row.stale for row in collected(params, tmp_path, of_now, of_now).values())
    storage.write_text(path, "{ }")
    assert all(row.stale for row in collected(params, tmp_path, of_now, of_now).values())


def test_a_damaged_manifest_is_named(params: Params, tmp_path: Path) -> None:
    path = tmp_path / layout.corpus("plays") / "manifest.json"
    storage.write_json(path, {**manifest("a"), "splits": {"test": {"records": 1, "shards": [{"path": "a"}]}}})
    with pytest.raises(UserError, match=r"manifest\.json: not what the stage prepare writes"):
        collected(params, tmp_path, OLD, OLD)


def test_results_say_what_the_mark_means(
    params: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = collected(params, tmp_path, NEW, OLD)
    run.show_results(list(rows.values()), "demo")
    said = " ".join(capsys.readouterr().out.split())
    assert "stale: measured on an older test set or tokenizer; `lexmill run` measures again" in said


def test_the_page_marks_what_is_stale(demo: Project) -> None:
    choices = choices_of.load(demo.root / "params.yaml")
    sentence = "`lexmill run` measures again"
    assert sentence not in shown(demo.page)
    path = demo.root / layout.metrics("evaluate", "sentiment")
    demo.json(layout.metrics("evaluate", "sentiment"), {**storage.read_json(path), MEASURED_ON: {"test": "new"}})
    text = shown(demo.page)
    assert sentence in text
    assert "stale TF-IDF + logistic regression" in text
    assert (
        "is not compared with majority and TF-IDF + logistic regression, measured on another test set or tokenizer"
        in text
    )
    demo.json(layout.corpus(choices.models["sentiment"].data.corpus) / "manifest.json", manifest("newest"))
    assert "0.842 stale" in shown(demo.page)


def test_word_perplexity_is_shown_and_compared_between_tokenizers() -> None:
    (metric,) = [one for one in find("language_model").metrics if one.name == "word_perplexity"]
    assert (metric.higher_is_better, metric.over_tokens) == (False, False)
    (row,) = results.of_metrics(find("language_model"), "gpt", "plays", {"word_perplexity": 900.0})
    assert results.cells(row)[2:4] == ("word perplexity ↓", "900.0")


def test_what_is_comparable_of_a_baseline() -> None:
    metrics = {"a": 1.0, "t": 2.0, "t_low": 1.0, "t_high": 3.0, "words": 7}
    of = [Metric("a", "a", higher_is_better=True), Metric("t", "t", higher_is_better=True, over_tokens=True)]
    assert Measured(metrics, same_test=True, same_tokens=True, own_tokens=True).comparable(of) == metrics
    other = Measured(metrics, same_test=True, same_tokens=False, own_tokens=True)
    assert other.comparable(of) == {"a": 1.0, "words": 7}
    assert Measured(metrics, same_test=False, same_tokens=True, own_tokens=True).comparable(of) == {}
