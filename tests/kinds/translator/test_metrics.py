"""Scores of translations are sacrebleu's, to the last digit, for any choice of rows."""

from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.translator.baselines import copy_source
from lexmill.kinds.translator.metrics import METRICS, score_sums, signature, summarise, translator_rows

HOW = Resampling(samples=100, confidence=0.95, seed=1)
PAIRS = [
    ("Turn on the light.", "Schalte das Licht ein.", "Schalte das Licht aus."),
    ("", "", ""),
    ("Open the door, please!", "Bitte öffne die Tür!", "Bitte die Tür öffnen!"),
    ("It rains.", "Es regnet.", ""),
    ("", "", "Ja."),
    ("a b c d e f", "a b c d e f", "a b c d e f"),
    ("  spaces ", " zwei  Leerzeichen ", "zwei Leerzeichen"),
    ("No.", "Nein.", "Nein"),
]


def make(pairs: list[tuple[str, str, str]] = PAIRS) -> list[dict[str, Any]]:
    records = [
        {"id": f"{i}", "group": f"{i // 2}", "source": source, "target": target}
        for i, (source, target, _) in enumerate(pairs)
    ]
    return translator_rows(records, [hypothesis for _, _, hypothesis in pairs], "de")


def theirs(rows: list[dict[str, Any]]) -> dict[str, float]:
    hypotheses, references = [row["hypothesis"] for row in rows], [[row["reference"] for row in rows]]
    metrics = {"bleu": BLEU(), "chrf": CHRF(), "ter": TER()}
    return {name: metric.corpus_score(hypotheses, references).score for name, metric in metrics.items()}


def test_the_whole_corpus() -> None:
    rows = make()
    found = summarise(rows, "component", HOW, "de")
    assert {name: found[name] for name in METRICS} == theirs(rows)
    assert found["items"] == len(PAIRS)


def test_any_resample_equals_scoring_its_text() -> None:
    rows = make()
    generator = np.random.default_rng(0)
    for _ in range(20):
        picks = generator.integers(0, len(rows), len(rows))
        weights = np.bincount(picks, minlength=len(rows))
        sums = {name: weights @ np.array([row[f"{name}_stats"] for row in rows]) for name in METRICS}
        drawn = theirs([rows[i] for i in picks])
        assert {name: score_sums(name, sums[name]) for name in METRICS} == pytest.approx(drawn, abs=1e-12)


def test_hypothesis_and_reference_are_not_swapped() -> None:
    # A hypothesis shorter than its reference pays the brevity penalty; one that is longer does not.
    short = make([("x", "eins zwei drei vier fünf sechs sieben acht", "eins zwei drei vier")])
    assert short[0]["bleu_stats"][:2] == [4, 8]
    assert summarise(short, "component", HOW)["bleu"] == pytest.approx(100 * np.exp(1 - 8 / 4))


def test_signatures_are_those_of_sacrebleu() -> None:
    found = summarise(make(), "component", HOW, "de")
    reference = BLEU()
    reference.corpus_score(["a"], [["a"]])
    assert found["bleu_signature"] == str(reference.get_signature())
    assert "tok:13a" in str(found["bleu_signature"])
    assert str(found["chrf_signature"]).startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0")
    assert "tok:zh" in signature("bleu", "zh")
    assert "tok:char" in signature("bleu", "ja")


def test_everything_empty() -> None:
    found = summarise(make([("a", "", ""), ("b", "", "")]), "component", HOW, "de")
    assert [found[name] for name in METRICS] == [0.0, 0.0, 0.0]
    found = summarise(make([("a", "b", ""), ("b", "c", "")]), "component", HOW, "de")
    assert (found["bleu"], found["chrf"], found["ter"]) == (0.0, 0.0, 100.0)


def test_intervals_hold_the_scores() -> None:
    found = summarise(make(PAIRS * 8), "component", HOW, "de")
    for name in METRICS:
        assert float(found[f"{name}_low"]) <= float(found[name]) <= float(found[f"{name}_high"])


def test_copying_the_source() -> None:
    records = [{"id": "1", "group": "g", "source": "Home Assistant 2", "target": "Home Assistant 2"}]
    (row,) = copy_source(records, "de")
    assert row["hypothesis"] == row["source"]
    assert row["chrf_stats"][0] == row["chrf_stats"][2]


def test_errors() -> None:
    with pytest.raises(UserError, match="test split is empty"):
        summarise([], "component", HOW)
    with pytest.raises(ValueError, match="1 records but 2 hypotheses"):
        translator_rows([{"id": "1", "group": "g", "source": "a", "target": "b"}], ["a", "b"])
    assert translator_rows([], []) == []
