"""Records in another language: what the classifier says, which sides are asked, and what prepare counts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lexmill.base.language_identification import probability, unknown
from lexmill.base.strict import build
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing import filters
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.record import Record
from lexmill.params.corpora import Corpus
from tests.corpora.made_sources import corpus_of, make_source

ENGLISH = "The light in the kitchen could not be turned on."
GERMAN = "Das Licht in der Küche konnte nicht eingeschaltet werden."
FRENCH = "La lumière de la cuisine n'a pas pu être allumée."
BOUND = {"min_language_probability": 0.01}
LINES = {"format": "text", "document": "line"}
PAIRS = {"format": "jsonl", "source": "s", "target": "t"}


def test_a_text_is_most_probably_in_its_language() -> None:
    texts = {"en": ENGLISH, "de": GERMAN, "fr": FRENCH}
    for language, text in texts.items():
        assert probability(text, [language]) > 0.9
        assert all(probability(text, [other]) < 0.01 for other in texts if other != language)


def test_probabilities_are_those_of_the_library() -> None:
    """But for the rounded weights; and a text in no language at all counts as one in any."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    plain = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    for text in (ENGLISH, GERMAN, FRENCH, "12:30", "Home", "", "電源"):
        expected = dict(plain.rank(text))
        for language in ("en", "de", "zh"):
            assert probability(text, [language]) == pytest.approx(expected[language] + expected["zxx"], rel=1e-3)


def test_sums_are_exact_in_any_order() -> None:
    """So that a decision does not depend on how a machine adds: products of 24 and 16 bits, up to 2^12 of them."""
    from lexmill.base.language_identification import _identifier

    weights = _identifier().nb_ptc * 4096
    assert weights.dtype == np.float64
    assert np.all(weights == np.round(weights))
    assert np.abs(weights).max() < 2**16


def test_tags_of_the_library_and_of_bcp_47() -> None:
    assert unknown(["en", "de-AT", "zh-Hans", "nb", "nn", "no", "fil", "ki"]) == []
    assert unknown(["en", "tlh", "zxx"]) == ["tlh", "zxx"]
    assert probability("在厨房里打开灯。", ["zh-Hant"]) > 0.5
    assert probability("Lyset på kjøkkenet kunne ikke slås på.", ["nb"]) > 0.5


@pytest.mark.parametrize(
    ("source", "target", "hit"),
    [
        (ENGLISH, GERMAN, False),
        (GERMAN, ENGLISH, True),
        (ENGLISH, ENGLISH, True),
        (GERMAN, GERMAN, True),
        (ENGLISH, FRENCH, True),
        ("Home", "Home", False),
        ("12:30", "12:30", False),
    ],
)
def test_each_side_of_a_pair_is_in_its_own_language(source: str, target: str, hit: bool) -> None:
    hits = filters.active(corpus_of("parallel", PAIRS, filters=BOUND))["min_language_probability"]
    assert hits(Record("x", None, source, target)) == hit


def test_a_text_is_in_one_of_the_corpus_s_languages() -> None:
    texts = [ENGLISH, GERMAN, FRENCH]
    removed = []
    for languages in (["en"], ["en", "fr"]):
        corpus = corpus_of("text", LINES, filters=BOUND, languages=languages)
        hits = filters.active(corpus)["min_language_probability"]
        removed.append([hits(Record("x", None, text)) for text in texts])
    assert removed == [[False, True, True], [False, True, False]]


def test_prepare_counts_what_is_removed_and_keeps_given_sets_whole(tmp_path: Path) -> None:
    files = {"a.txt": f"{ENGLISH}\n{GERMAN}\nAnother plain English line.\n", "test.txt": f"{FRENCH}\n"}
    splits = {"valid": 0, "files": {"test": ["test.txt"]}}
    corpus = corpus_of("text", LINES, filters=BOUND, splits=splits)
    report = prepare("made", corpus, make_source(tmp_path / "source", files), tmp_path / "made")
    assert report.metrics["removed"]["min_language_probability"] == 1
    shown = {row["name"]: row["examples"] for row in report.samples["filters"]}
    assert shown["min_language_probability"] == [GERMAN]
    made = PreparedCorpus(tmp_path / "made")
    assert [record["text"] for record in made.records("train")] == [ENGLISH, "Another plain English line."]
    assert [record["text"] for record in made.records("test")] == [FRENCH]


def test_a_language_that_the_library_does_not_know_is_refused() -> None:
    errors: list[str] = []
    entry = {"kind": "parallel", "reader": PAIRS, "source": {"kind": "file", "paths": ["x"]}}
    build(Corpus, json.loads(json.dumps({**entry, "languages": ["en", "tlh"], "filters": BOUND})), errors)
    assert [error for error in errors if "Klingon (tlh)" in error and "set it to 0" in error] == errors != []
    errors = []
    build(Corpus, {**entry, "languages": ["en", "tlh"]}, errors)
    assert errors == []
