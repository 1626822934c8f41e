"""Badly aligned pairs: Model 1 by hand and by plain loops, wrong pairs found, and what prepare does with them."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lexmill.base import storage
from lexmill.base.strict import build
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing import alignment
from lexmill.corpora.preparing.alignment import Pair, words, worst
from lexmill.corpora.preparing.prepare import Report, prepare
from lexmill.params.corpora import Corpus
from tests.corpora.made_sources import corpus_of, make_source

PAIRS = {"format": "jsonl", "source": "s", "target": "t"}
_WORDS = """the die, a eine, light Leuchte, lamp Lampe, door Tür, window Scheibe, kitchen Küche, garden Wiese,
heater Heizung, fan Lüftung, switch Taste, sensor Sonde, turn drehe, open öffne, close schließe, check prüfe,
start starte, stop stoppe, is ist, was war, red rot, blue blau, warm warm, cold kalt, new neu, old alt, small klein,
large groß, now jetzt, later später, again wieder, today heute"""
LEXICON = dict(pair.split() for pair in _WORDS.replace("\n", " ").split(", "))


def sentences(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Different sentences, translated word by word, in another order, without a tenth of the words."""
    draw = random.Random(seed)
    english = list(LEXICON)
    found: dict[str, str] = {}
    while len(found) < count:
        chosen = draw.choices(english, [1 / (i + 2) for i in range(len(english))], k=draw.randrange(4, 10))
        german = [LEXICON[word] for word in chosen if draw.random() > 0.1]
        draw.shuffle(german)
        found[" ".join(chosen).capitalize() + "."] = " ".join(german) + "."
    return list(found.items())


def shuffled(pairs: list[tuple[str, str]], share: float) -> tuple[list[tuple[str, str]], set[int]]:
    """Exchange the targets of some pairs; return which."""
    wrong = random.Random(1).sample(range(len(pairs)), int(share * len(pairs)))
    made = list(pairs)
    for place, other in zip(wrong, [*wrong[1:], wrong[0]], strict=True):
        made[place] = (pairs[place][0], pairs[other][1])
    return made, set(wrong)


def scored(folder: Path, pairs: list[tuple[str, str]], learned: list[bool]) -> alignment._Model:
    folder.mkdir(parents=True, exist_ok=True)
    sides = (alignment._Side(folder / "source"), alignment._Side(folder / "target"))
    for pair in pairs:
        for side, text in zip(sides, pair, strict=True):
            side.add(text)
    return alignment._Model(sides, np.array(learned))


# ---------------------------------------------------------------- Model 1


def test_two_rounds_on_the_house_and_the_book_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pair twice, as words of one pair are not learned. Round 1: all links 1/3, so t(. | das) and t(. | no word)
    are the 1/2, house and book 1/4 each, and t(. | Haus) 1/2, 1/2. Round 2: `the` is shared out by 1/3, `house` by 1/4,
    1/4, 1/2, so the counts of das are 2/3, 1/4, 1/4, and those of Haus 1/3, 1/2.
    """
    monkeypatch.setattr(alignment, "_ROUNDS", 3)  # the third counts with the table that two have made
    model = scored(tmp_path, [("das Haus", "the house"), ("das Buch", "the book")] * 2, [True] * 4)
    to_english = model._directions[1]
    names = [(name // 3, name % 3) for name in model._names.tolist()]  # das, Haus, Buch with the, house, book
    table = dict(zip(names, to_english._table[:-1].tolist(), strict=True))
    das, haus, buch, the, house, book = 0, 1, 2, 0, 1, 2
    expected = {
        (das, the): Fraction(4, 7),
        (das, house): Fraction(3, 14),
        (das, book): Fraction(3, 14),
        (haus, the): Fraction(2, 5),
        (haus, house): Fraction(3, 5),
        (buch, the): Fraction(2, 5),
        (buch, book): Fraction(3, 5),
    }
    assert table == pytest.approx({link: float(value) for link, value in expected.items()}, rel=1e-12)
    assert to_english._null.tolist() == pytest.approx([4 / 7, 3 / 14, 3 / 14], rel=1e-12)


def slow_scores(pairs: list[tuple[str, str]], learned: list[bool]) -> list[float]:
    """Model 1 in dicts of words, in plain loops; each pair is scored without its own part in the counts."""
    total = [0.0] * len(pairs)
    for to in (0, 1):
        split = [(words(pair[1 - to]), words(pair[to])) for pair in pairs]
        seen = [
            Counter(w for pair, yes in zip(split, learned, strict=True) if yes for w in pair[side]) for side in (0, 1)
        ]
        known = [[[w for w in pair[side] if seen[side][w] > 1] for side in (0, 1)] for pair in split]
        even = 1 / sum(n > 1 for n in seen[1].values())
        table: dict[tuple[str | None, str], float] = {}
        for round_ in range(5):
            parts: list[dict[tuple[str | None, str], float]] = []
            for (given, made), yes in zip(known, learned, strict=True):
                part: dict[tuple[str | None, str], float] = {}
                for f in made if yes else []:
                    weights = {e: table.get((e, f), 0) if round_ else even for e in [None, *given]}
                    part |= {(e, f): weight / sum(weights.values()) for e, weight in weights.items()}
                parts.append(part)
            counts: dict[tuple[str | None, str], float] = defaultdict(float)
            of: dict[str | None, float] = defaultdict(float)
            for part in parts:
                for (e, f), value in part.items():
                    counts[e, f] += value
                    of[e] += value
            if round_ < 4:
                table = {(e, f): value / of[e] for (e, f), value in counts.items()}
        for number, ((given, made), part) in enumerate(zip(known, parts, strict=True)):
            logs = 0.0
            for f in made:
                probability = (counts[None, f] - part.get((None, f), 0)) / of[None]
                for e in given:
                    left = of[e] - sum(value for (word, _), value in part.items() if word == e)
                    if left > 1e-6:
                        probability += min(1, max(0, (counts[e, f] - part.get((e, f), 0)) / left))
                share = (seen[1][f] - learned[number]) / sum(seen[1].values())
                logs += math.log(0.9 * probability / (1 + len(given)) + 0.1 * share) - math.log(share) / 2
            total[number] += logs / max(1, len(split[number][1]))
    return total


@pytest.mark.parametrize("at_once", [1 << 20, 50])
def test_scores_are_those_of_plain_loops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(alignment, "_AT_ONCE", at_once)
    pairs, _ = shuffled([*sentences(60), ("", "nichts"), ("only here", "nur hier"), ("!", "!")], 0.1)
    learned = [place % 7 != 3 for place in range(len(pairs))]
    right, _ = scored(tmp_path, pairs, learned).scores()
    assert right.tolist() == pytest.approx(slow_scores(pairs, learned), abs=2e-6)
    assert right[60] == right[61] == 0.0  # no evidence


def test_words_of_any_script() -> None:
    assert words("Don't turn it off, OFF!") == ["don", "'", "t", "turn", "it", "off", ",", "!"]
    assert words("关灯。テレビ") == ["关", "灯", "。", "テ", "レ", "ビ"]
    assert words("ไฟ हिन्दी भाषा") == ["ไ", "ฟ", "हिन्दी", "भाषा"]
    assert words("ＡＢ１、ｃ") == ["ａｂ１", "、", "ｃ"]
    assert words("불을 켜세요") == ["불을", "켜세요"]
    assert len(words(" ".join(map(str, range(1000))))) == alignment.MOST_WORDS


# ---------------------------------------------------------------- what is found


def found(folder: Path, pairs: list[tuple[str, str]], share: float) -> tuple[set[int], dict]:
    folder.mkdir()
    keys, metrics = worst(
        (Pair(i.to_bytes(16, "big"), source, target, True) for i, (source, target) in enumerate(pairs)), share, folder
    )
    places = [int.from_bytes(key, "big") for key in keys]
    assert places == sorted(places)
    return set(places), metrics


def test_wrong_pairs_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, wrong = shuffled(sentences(1000), 0.05)
    places, metrics = found(tmp_path / "1", pairs, 0.05)
    assert len(places) == len(wrong) == 50
    assert len(places & wrong) >= 45  # precision and recall 0.9
    assert metrics["pairs"] == 1000
    assert metrics["shuffled_median"] < metrics["bound"] < metrics["median"]
    assert 0.02 < metrics["like_shuffled"] < 0.08
    monkeypatch.setattr(alignment, "MOST_LINKS", 10_000)  # learned from each sixth pair or so
    fewer, _ = found(tmp_path / "2", pairs, 0.05)
    assert fewer != places
    assert len(fewer & wrong) >= 40


def test_a_corpus_without_wrong_pairs_has_none_like_shuffled_ones(tmp_path: Path) -> None:
    _, metrics = found(tmp_path / "1", sentences(1000), 0.01)
    assert metrics["like_shuffled"] < 0.005


def test_no_pair_and_no_known_word(tmp_path: Path) -> None:
    assert found(tmp_path / "1", [], 0.5) == (set(), {"pairs": 0})
    places, metrics = found(tmp_path / "2", [("", ""), ("a", "b"), ("c", "d")], 0.3)
    assert places == {0}  # of equal scores the first
    assert metrics["median"] == 0


# ---------------------------------------------------------------- in prepare


def prepared(folder: Path, rows: dict[str, list[tuple[str, str]]], share: float, **choices) -> tuple[Report, Path]:
    files = {
        name: "".join(json.dumps({"s": source, "t": target}) + "\n" for source, target in pairs)
        for name, pairs in rows.items()
    }
    choices = {"splits": {"valid": 0.1, "test": 0.1}, **choices}
    corpus = corpus_of("parallel", PAIRS, filters={"drop_worst_aligned": share}, **choices)
    return prepare("made", corpus, make_source(folder / "source", files), folder / "made"), folder / "made"


def test_prepare_removes_the_worst_share_of_different_pairs(tmp_path: Path) -> None:
    pairs, wrong = shuffled(sentences(600), 0.05)
    report, made = prepared(tmp_path, {"a.jsonl": pairs + pairs[:100]}, 0.05)
    removed = report.metrics["removed"]
    assert list(removed) == ["min_characters", "exact_duplicates", "drop_worst_aligned", "also_in_valid_or_test"]
    assert (removed["exact_duplicates"], removed["drop_worst_aligned"]) == (100, 30)
    assert report.metrics["raw"] == report.metrics["used"] + sum(removed.values())
    assert report.metrics["alignment"]["pairs"] == 600
    left = {
        (row["source"], row["target"])
        for split in ("train", "valid", "test")
        for row in PreparedCorpus(made).records(split)
    }
    gone = {place for place, pair in enumerate(pairs) if pair not in left}
    assert len(gone & wrong) >= 27
    shown = {row["name"]: row["examples"] for row in report.samples["filters"]}["drop_worst_aligned"]
    assert len(shown) == 5
    assert {tuple(one.split(" ||| ")) for one in shown} <= {pairs[place] for place in gone}


def test_duplicates_that_stay_are_removed_with_the_pair(tmp_path: Path) -> None:
    pairs, _ = shuffled(sentences(600), 0.05)
    report, _ = prepared(tmp_path, {"a.jsonl": pairs * 2}, 0.05, deduplicate={"exact": False})
    assert report.metrics["removed"]["drop_worst_aligned"] == 60
    assert report.metrics["alignment"]["pairs"] == 600


def test_given_sets_stay_whole(tmp_path: Path) -> None:
    pairs, _ = shuffled(sentences(600), 0.05)
    test = [(source, "völlig anders hier") for source, _ in sentences(50, seed=9)]
    splits = {"valid": 0.1, "files": {"test": ["test.jsonl"]}}
    report, made = prepared(tmp_path, {"a.jsonl": pairs, "test.jsonl": test}, 0.05, splits=splits)
    assert report.metrics["alignment"]["pairs"] == 600
    assert report.metrics["removed"]["drop_worst_aligned"] == 30
    assert PreparedCorpus(made).count("test") == 50


def test_a_share_of_nothing_changes_nothing(tmp_path: Path) -> None:
    """Neither does the other order of work, by which valid and test are written after all pieces were read."""
    pairs = sentences(300)
    off, before = prepared(tmp_path / "off", {"a.jsonl": pairs}, 0.0)
    none, after = prepared(tmp_path / "none", {"a.jsonl": pairs}, 1e-9)
    assert storage.sha256_folder(before) == storage.sha256_folder(after)
    assert "alignment" not in off.metrics
    assert none.metrics["removed"] == {**off.metrics["removed"], "drop_worst_aligned": 0}


def test_only_pairs_of_a_parallel_corpus_have_a_score() -> None:
    errors: list[str] = []
    entry = {"kind": "text", "reader": {"format": "text"}, "source": {"kind": "file", "paths": ["x"]}}
    build(Corpus, {**entry, "filters": {"drop_worst_aligned": 0.1}}, errors)
    assert len(errors) == 1
    assert "only the pairs of a parallel corpus have a score; set it to 0" in errors[0]
