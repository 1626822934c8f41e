"""Scores of translations are sacrebleu's, to the last digit, for any choice of rows."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.translator.baselines import copy_source
from lexmill.kinds.translator.metrics import (
    METRICS,
    PLAIN,
    score_sums,
    signature,
    splitter,
    statistics,
    summarise,
    translator_rows,
)
from lexmill.kinds.translator.segments import PLACEHOLDER

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
    return translator_rows(records, [hypothesis for _, _, hypothesis in pairs])


def theirs(rows: list[dict[str, Any]]) -> dict[str, float]:
    hypotheses, references = [row["hypothesis"] for row in rows], [[row["reference"] for row in rows]]
    metrics = {"bleu": BLEU(), "chrf": CHRF(), "ter": TER()}
    return {name: metric.corpus_score(hypotheses, references).score for name, metric in metrics.items()}


def test_the_whole_corpus() -> None:
    rows = make()
    found = summarise(rows, "component", HOW)
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


def test_a_tokenised_corpus_is_scored_by_its_own_words_with_subwords_joined() -> None:
    made = ["ein mann ist@@ t ein bro@@ t@@ chen .", "sie geht-@@ t ."]
    right = ["ein mann isst ein brot@@ chen .", "sie geht !"]
    words = [["ein mann istt ein brotchen .", "sie geht-t ."], [["ein mann isst ein brotchen .", "sie geht !"]]]
    splits = splitter("de", tokenized=True)
    records = [{"id": str(i), "group": "g", "source": "a@@ b", "target": text} for i, text in enumerate(right)]
    rows = translator_rows(records, made, splits)
    assert [(row["source"], row["reference"], row["hypothesis"]) for row in rows] == [
        ("a@@ b", reference, hypothesis) for hypothesis, reference in zip(words[0], words[1][0], strict=True)
    ]
    found = summarise(rows, "sentence pair", HOW, splits)
    assert found["bleu"] == BLEU(tokenize="none", force=True).corpus_score(*words).score
    assert statistics("bleu", ["a@@"], ["a"], splits) == statistics("bleu", ["a"], ["a"], splits)


def test_signatures_are_those_of_sacrebleu() -> None:
    found = summarise(make(), "component", HOW)
    reference = BLEU()
    reference.corpus_score(["a"], [["a"]])
    assert found["bleu_signature"] == str(reference.get_signature())
    assert "tok:13a" in str(found["bleu_signature"])
    assert str(found["chrf_signature"]).startswith("nrefs:1|case:mixed|eff:yes|nc:6|nw:0")
    assert "tok:zh" in signature("bleu", splitter("zh-Hant"))
    assert "tok:char" in signature("bleu", splitter("ja"))
    assert "tok:none" in signature("bleu", splitter("de", tokenized=True))


def test_everything_empty() -> None:
    found = summarise(make([("a", "", ""), ("b", "", "")]), "component", HOW)
    assert [found[name] for name in METRICS] == [0.0, 0.0, 0.0]
    found = summarise(make([("a", "b", ""), ("b", "c", "")]), "component", HOW)
    assert (found["bleu"], found["chrf"], found["ter"]) == (0.0, 0.0, 100.0)


def test_intervals_hold_the_scores() -> None:
    found = summarise(make(PAIRS * 8), "component", HOW)
    for name in METRICS:
        assert float(found[f"{name}_low"]) <= float(found[name]) <= float(found[f"{name}_high"])


def test_copying_the_source() -> None:
    records = [{"id": "1", "group": "g", "source": "Home Assistant 2", "target": "Home Assistant 2"}]
    (row,) = copy_source(records, PLAIN)
    assert row["hypothesis"] == row["source"]
    assert row["chrf_stats"][0] == row["chrf_stats"][2]


def test_errors() -> None:
    with pytest.raises(UserError, match="test split is empty"):
        summarise([], "component", HOW)
    with pytest.raises(ValueError, match="1 records but 2 hypotheses"):
        translator_rows([{"id": "1", "group": "g", "source": "a", "target": "b"}], ["a", "b"])
    assert translator_rows([], []) == []


def test_the_parts_of_bleu_are_sacrebleus_and_make_it_up() -> None:
    rows = make()
    found, reference = summarise(rows, "component", HOW), BLEU()
    score = reference.corpus_score([row["hypothesis"] for row in rows], [[row["reference"] for row in rows]])
    assert [found[f"bleu_{n}"] for n in range(1, 5)] == pytest.approx(score.precisions)
    assert (found["brevity_penalty"], found["length_ratio"]) == (pytest.approx(score.bp), score.sys_len / score.ref_len)
    product = np.prod([float(found[f"bleu_{n}"]) for n in range(1, 5)]) ** 0.25
    assert float(found["brevity_penalty"]) * product == pytest.approx(float(found["bleu"]))


def test_the_example_of_the_page_has_the_pages_numbers() -> None:
    page = Path("docs/evaluation.md").read_text(encoding="utf-8")
    example = re.search(r"> reference: (.+)  \n> translation: (.+)\n", page)
    assert example
    found = summarise(make([("x", example[1], example[2])]), "component", HOW)
    for n, (right, total) in enumerate(((8, 9), (5, 8), (3, 7), (1, 6)), start=1):
        assert found[f"bleu_{n}"] == pytest.approx(100 * right / total)
        assert f"| {n} | {right} of {total} | {100 * right / total:.1f} |" in page
    assert found["brevity_penalty"] == pytest.approx(np.exp(1 - 10 / 9))
    assert f"exp(1 - 10/9) = {found['brevity_penalty']:.3f}" in page
    assert f"BLEU {found['bleu']:.1f}" in page


def test_scores_by_length_are_those_of_each_third() -> None:
    rows = make([(f"{'x' * i} y", "das ist ein Satz hier", "das ist ein Satz" + " da" * (i % 3)) for i in range(9)])
    found = summarise(rows, "component", HOW)
    for name, some in (("short", rows[:3]), ("middle", rows[3:6]), ("long", rows[6:])):
        assert found[f"bleu_of_{name}_items"] == pytest.approx(theirs(some)["bleu"])


def test_what_a_program_reads_must_be_kept() -> None:
    kept = [
        ("Hello {name}!", "Hallo {name}!"),
        ("<b>%s</b> of 5", "<b>%s</b> von 5"),
        ("See https://a.example/x.", "Siehe https://a.example/x."),
    ]
    lost = [
        ("Hello {name}!", "Hallo {Name}!"),
        ("{a} and {a}", "{a}"),
        ("plain {x}", "{x} und {y}"),
        ("<b>bold</b>", "<b>fett"),
    ]
    rows = make([(source, "r", made) for source, made in [*kept, *lost, ("nothing 7", "{x} 8"), ("same", "same")]])
    found = summarise(rows, "component", HOW)
    assert (found["with_placeholders"], found["kept_placeholders"]) == (7, pytest.approx(3 / 7))
    assert (found["with_numbers"], found["kept_numbers"]) == (2, 0.5)
    assert found["copied"] == pytest.approx(1 / 9)
    none = summarise(make([("a", "b", "c")]), "component", HOW)
    assert not {"kept_placeholders", "with_numbers"} & none.keys()


def test_what_counts_as_a_placeholder() -> None:
    text = "%s %d %1$s %(n)i %.1f %03d ${total} {name} <b>x</b> 50%ige 5%, % d https://a.org/b."
    found = ["%s", "%d", "%1$s", "%(n)i", "%.1f", "%03d", "${total}", "{name}", "<b>", "</b>", "https://a.org/b"]
    assert PLACEHOLDER.findall(text) == found
