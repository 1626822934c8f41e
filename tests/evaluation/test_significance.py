"""Paired tests: better, worse, tie; the same test items or none at all."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from scipy.stats import binomtest

from lexmill import kinds
from lexmill.base.errors import UserError
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import write_rows
from lexmill.evaluation.significance import Comparison, compare
from lexmill.kinds.translator.metrics import translator_rows

TESTS = {kind.name: kind.module("metrics").TEST for kind in kinds.every()}
HOW = Resampling(samples=400, confidence=0.95, seed=5)


def lm(nats: np.ndarray, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"d/{i}", "group": "d", "nats": float(n), "targets": 10, "bytes": 30, "words": 6, "unknown": 0}
        | {"text_sha256": f"{i}"}
        | more
        for i, n in enumerate(nats)
    ]


def classifier(right: np.ndarray) -> list[dict[str, Any]]:
    return [
        {"id": f"{i}", "group": f"{i}", "label": "a", "predicted": "a" if r else "b", "probabilities": {}}
        for i, r in enumerate(right)
    ]


def translator(hypotheses: list[str]) -> list[dict[str, Any]]:
    generator = np.random.default_rng(7)
    references = [" ".join(generator.choice(list("abcdefgh"), 8)) for _ in hypotheses]
    records = [{"id": f"{i}", "group": f"{i}", "source": "s", "target": r} for i, r in enumerate(references)]
    return translator_rows(records, [h or r for h, r in zip(hypotheses, references, strict=True)])


BASE = np.random.default_rng(0).normal(20, 4, 60)


def test_a_better_language_model_has_fewer_bits_a_byte() -> None:
    found = compare(TESTS["language_model"], lm(BASE - 1), lm(BASE), HOW)
    assert found.metric == "bits_per_byte"
    assert found.difference == pytest.approx(-1 / np.log(2) / 30)
    assert found.low <= found.difference <= found.high < 0
    # No swap comes near, and the data as they are count as one: a p-value is never 0.
    assert found.p_value == pytest.approx(1 / (HOW.samples + 1))
    assert found.better
    assert not found.worse


@pytest.mark.parametrize(("gained", "lost"), [(9, 3), (14, 3), (6, 6)])
def test_the_p_value_of_accuracy_is_that_of_mcnemars_exact_test(gained: int, lost: int) -> None:
    both = [True] * 40 + [False] * 10
    new = np.array([*both, *[True] * gained, *[False] * lost])
    old = np.array([*both, *[False] * gained, *[True] * lost])
    found = compare(TESTS["classifier"], classifier(new), classifier(old), Resampling(4000, 0.95, 5))
    exact = binomtest(gained, gained + lost).pvalue
    assert found.p_value == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4000) + 1 / 4001)


def test_a_worse_one_is_worse_with_the_same_p() -> None:
    better = compare(TESTS["language_model"], lm(BASE - 1), lm(BASE), HOW)
    worse = compare(TESTS["language_model"], lm(BASE), lm(BASE - 1), HOW)
    assert worse.difference == pytest.approx(-better.difference)
    assert worse.p_value == pytest.approx(better.p_value, abs=0.01)
    assert worse.worse
    assert not worse.better


def test_a_tie_is_no_evidence() -> None:  # equal rows in another order
    rows = lm(BASE)
    found = compare(TESTS["language_model"], rows[::-1], rows, HOW)
    assert (found.difference, found.p_value, found.better, found.worse) == (0, 1, False, False)


def test_noise_is_no_evidence_and_its_p_is_uniform() -> None:
    values = []
    for seed in range(40):
        first, second = np.random.default_rng(seed).normal(20, 4, (2, 30))
        values.append(compare(TESTS["language_model"], lm(first), lm(second), Resampling(100, 0.95, seed)).p_value)
    assert 0.35 < np.mean(values) < 0.65
    assert np.mean(np.array(values) < 0.1) < 0.25


def test_the_sign_test_by_hand() -> None:
    # 5 of 5 discordant items in favour: of the 2^5 swaps 2 give a difference as large, so p is 2/32.
    first = np.array([1] * 5 + [0] * 20)
    found = compare(TESTS["classifier"], classifier(first), classifier(np.zeros(25)), Resampling(4000, 0.95, 1))
    assert found.metric == "accuracy"
    assert found.difference == pytest.approx(0.2)
    assert found.p_value == pytest.approx(2 / 32, abs=0.02)


def test_bleu_agrees_with_the_paired_test_of_sacrebleu() -> None:
    generator = np.random.default_rng(1)
    guesses = ["" if generator.random() < 0.5 else "a b c d e f g h" for _ in range(60)]
    others = ["" if generator.random() < 0.42 else "b a c d h f g e" for _ in range(60)]
    challenger, champion = translator(guesses), translator(others)
    found = compare(TESTS["translator"], challenger, champion, Resampling(2000, 0.95, 1))
    reference = [[row["reference"] for row in champion]]
    systems = [("champion", [r["hypothesis"] for r in champion]), ("other", [r["hypothesis"] for r in challenger])]
    _, scores = PairedTest(systems, {"BLEU": BLEU()}, reference, test_type="ar", n_samples=2000)()
    theirs = scores["BLEU"]
    assert [found.champion, found.challenger] == pytest.approx([theirs[0].score, theirs[1].score])
    assert found.p_value == pytest.approx(theirs[1].p_value, abs=0.04)


def test_other_metrics_of_a_translator() -> None:
    challenger, champion = translator([""] * 30), translator(["a b"] * 30)
    assert compare(TESTS["translator"], challenger, champion, HOW, metric="chrf").better
    lower = compare(TESTS["translator"], challenger, champion, HOW, metric="ter")
    assert lower.difference < 0
    assert lower.better
    with pytest.raises(ValueError, match=r"'accuracy' is not a known metric; known: bleu, chrf, ter"):
        compare(TESTS["translator"], challenger, champion, HOW, metric="accuracy")


def test_units_are_groups_where_there_are_enough() -> None:
    rows = [row | {"group": f"g{i % 25}"} for i, row in enumerate(classifier(np.ones(100)))]
    found = compare(TESTS["classifier"], rows, rows, HOW)
    assert (found.units, found.unit) == (25, "group")


def test_the_seed_decides() -> None:
    other = lm(BASE + np.random.default_rng(1).normal(0, 1, 60))
    first, second = (compare(TESTS["language_model"], other, lm(BASE), HOW) for _ in range(2))
    assert first == second


def test_files_of_rows(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", lm(BASE))
    write_rows(tmp_path / "b.jsonl", lm(BASE + 1))
    found = compare(TESTS["language_model"], tmp_path / "a.jsonl", tmp_path / "b.jsonl", HOW)
    assert found.better


def test_other_test_items_are_refused() -> None:
    rows = lm(BASE)
    with pytest.raises(UserError, match="60 and 59 rows, 1 only of the challenger, 0 only of the champion"):
        compare(TESTS["language_model"], rows, rows[:-1], HOW)
    with pytest.raises(UserError, match="'text_sha256' of item d/0 differs"):
        compare(TESTS["language_model"], rows, lm(BASE, text_sha256="another text"), HOW)
    with pytest.raises(UserError, match="occurs twice"):
        compare(TESTS["language_model"], [*rows, rows[0]], rows, HOW)
    with pytest.raises(UserError, match="no test rows"):
        compare(TESTS["classifier"], [], [], HOW)
    changed = [row | {"label": "b"} for row in classifier(np.ones(3))]
    with pytest.raises(UserError, match="'label' of item 0 differs"):
        compare(TESTS["classifier"], changed, classifier(np.ones(3)), HOW)


def test_unknown_tokens_compare_only_with_their_own_tokenizer() -> None:
    rows = lm(BASE, unknown=1)
    assert compare(TESTS["language_model"], rows, lm(BASE + 1, unknown=1), HOW).metric == "nats_per_token"
    with pytest.raises(UserError, match="cannot be compared"):
        compare(TESTS["language_model"], rows, lm(BASE, targets=12), HOW)


def test_a_small_level_gets_as_many_swaps_as_it_needs() -> None:
    """With 400 swaps no p-value is below 1/401, and a level of 1e-4 could never be reached."""
    level = 1e-4
    clear = compare(TESTS["language_model"], lm(BASE - 1), lm(BASE), HOW, level=level)
    assert clear.p_value == pytest.approx(1 / (20 / level + 1))
    noise = np.random.default_rng(3).normal(0, 1, 60)
    unclear = compare(TESTS["language_model"], lm(BASE + noise), lm(BASE), HOW, level=level)
    plain = compare(TESTS["language_model"], lm(BASE + noise), lm(BASE), HOW)
    assert unclear.p_value == pytest.approx(plain.p_value)  # decided after the first 400
    middling = compare(TESTS["language_model"], lm(BASE + noise - 0.5), lm(BASE), HOW, level=level)
    many = compare(TESTS["language_model"], lm(BASE + noise - 0.5), lm(BASE), Resampling(40_000, 0.95, 6))
    assert middling.p_value == pytest.approx(many.p_value, rel=0.6)


def test_the_standard_error_is_that_of_the_mean_difference() -> None:
    noise = np.random.default_rng(4).normal(0, 3, 60)
    found = compare(TESTS["language_model"], lm(BASE + noise), lm(BASE), Resampling(2000, 0.95, 1))
    wanted = noise.std() / np.sqrt(60) / np.log(2) / 30  # bits a byte, 30 bytes a row
    assert found.standard_error == pytest.approx(wanted, rel=0.1)


def test_power_and_the_least_gain_by_hand() -> None:
    comparison = Comparison("accuracy", 0.8, 0.8, 0.0, 0.0, 0.0, 0.01, 1.0, 500, "text", higher_is_better=True)
    # z of 0.975 is 1.960, of 0.8 0.842: a gain of 2.802 standard errors is found with a chance of 0.8.
    assert comparison.least_gain(0.05) == pytest.approx(0.02802, abs=1e-5)
    assert comparison.power(0.02802, 0.05) == pytest.approx(0.8, abs=1e-3)
    assert comparison.power(0.0196, 0.05) == pytest.approx(0.5, abs=1e-3)
    assert comparison.power(0.02802, 0.05 / 365) < 0.2
    same = dataclasses.replace(comparison, standard_error=0.0)
    assert (same.power(0.01, 0.05), same.power(0.0, 0.05)) == (1.0, 0.0)


def test_not_worse_by_more_than_a_margin_by_hand() -> None:
    worse = Comparison("accuracy", 0.790, 0.800, -0.010, 0.0, 0.0, 0.01, 1.0, 500, "text", higher_is_better=True)
    assert worse.loss == pytest.approx(0.010)
    # The one-sided upper limit of the loss at 0.05: 0.010 + 1.645 * 0.01 = 0.02645.
    assert worse.no_worse_than(0.0265, 0.05)
    assert not worse.no_worse_than(0.0264, 0.05)
    bits = dataclasses.replace(worse, metric="bits_per_byte", difference=0.010, higher_is_better=False)
    assert bits.loss == pytest.approx(0.010)
    assert dataclasses.replace(worse, difference=0.02).no_worse_than(0.0, 0.05)  # surely better
