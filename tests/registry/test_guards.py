"""What must not get worse when a better model becomes champion."""

import random
from pathlib import Path
from typing import Any

import pytest

from lexmill.evaluation.bootstrap import Resampling
from lexmill.kinds.classifier import metrics as classifier
from lexmill.kinds.language_model import metrics as language_model
from lexmill.kinds.translator import metrics as translator
from lexmill.params import Guards
from lexmill.registry.guards import _holm, check_latency, check_size, check_slices
from lexmill.registry.promotion import Decision
from lexmill.registry.trial import MOST_ROUNDS, ROUNDS, interleaved
from lexmill.report.results import rounded

from .conftest import rows_of

Row = dict[str, Any]
HOW = Resampling(200, 0.95, 1)


class Clock:
    """Time that passes only where a model says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_both_are_timed_in_turns_and_noise_that_passes_is_left_out() -> None:
    clock, order = Clock(), list[str]()
    noise = iter([0.0, 5.0, 0.0, 0.0, 7.0, 0.0] * 100)

    def model(name: str, seconds: float) -> Any:
        def answer(text: str) -> None:
            order.append(name)
            clock.now += seconds * len(text) + next(noise)

        return answer

    champion, challenger = interleaved(model("old", 1.0), model("new", 2.0), ["a", "bb", "cc"], clock)
    assert champion == [1.0, 2.0, 2.0]
    assert challenger == [2.0, 4.0, 4.0]
    timed = order[4:]  # behind the warm-up
    assert len(timed) == 2 * 3 * ROUNDS
    assert timed[:6] == ["old", "new"] * 3
    assert timed[6:12] == ["new", "old"] * 3


@pytest.mark.parametrize(
    ("old", "new", "worse"),
    [
        ([1.0] * 20, [1.4] * 20, [False, False]),
        ([1.0] * 20, [1.6] * 20, [True, True]),
        ([1.0] * 20, [1.0] * 18 + [3.0] * 2, [False, True]),  # only the slowest answers
    ],
)
def test_median_and_slowest_answers_have_a_limit(old: list[float], new: list[float], worse: list[bool]) -> None:
    found = check_latency(Guards(), Path("a"), Path("b"), lambda *_: {"champion": old, "challenger": new})
    assert [guard.worse for guard in found] == worse
    assert [guard.name for guard in found] == ["median latency", "95th percentile latency"]
    assert "times (at most 1.5)" in found[0].words
    assert f"median latency {rounded(1000 * new[0])} ms against 1,000 ms" in found[0].words
    assert check_latency(Guards(latency=0), Path("a"), Path("b"), lambda *_: {}) == []


def test_a_disturbance_that_does_not_come_again_holds_nothing_back() -> None:
    runs = iter([{"champion": [1.0], "challenger": [9.0]}, {"champion": [1.0], "challenger": [1.1]}])
    assert not any(guard.worse for guard in check_latency(Guards(), Path("a"), Path("b"), lambda *_: next(runs)))


def test_a_disturbance_of_the_slowest_answers_alone_is_measured_again_in_the_same_order() -> None:
    """Of the second measurement counts what it says, about the same two."""
    slow = {"champion": [1.0] * 20, "challenger": [1.0] * 18 + [9.0] * 2}
    asked: list[tuple[Path, Path]] = []

    def times(champion: Path, challenger: Path) -> dict[str, Any]:
        asked.append((champion, challenger))
        return slow if len(asked) == 1 else {"champion": [2.0], "challenger": [3.0]}

    found = check_latency(Guards(), Path("a"), Path("b"), times)
    assert asked == [(Path("a"), Path("b"))] * 2
    assert [(guard.champion, guard.challenger, guard.limit, guard.worse) for guard in found] == [
        (2.0, 3.0, 3.0, False)  # just as much as is allowed
    ] * 2


def test_the_median_and_the_95th_percentile_by_hand() -> None:
    """Of 0, 1 ... 20 the one is 10 and the other 19."""
    times = {"champion": [float(second) for second in range(21)], "challenger": [0.0] * 21}
    median, slowest = check_latency(Guards(), Path("a"), Path("b"), lambda *_: times)
    assert (median.champion, slowest.champion) == (10.0, 19.0)


def test_quick_answers_are_timed_more_often() -> None:
    counted: list[str] = []
    interleaved(counted.append, counted.append, ["a"], lambda: 0.0)
    assert len(counted) == 2 * (1 + MOST_ROUNDS)


def test_a_model_that_does_not_answer_is_held_back_and_a_champion_that_does_not_holds_nothing_back() -> None:
    for failed in ("challenger", "champion", "both"):
        (guard,) = check_latency(
            Guards(), Path("a"), Path("b"), lambda *_, f=failed: {"failed": f, "why": "KeyError: x"}
        )
        assert guard.worse == (failed == "challenger")
        said = {
            "challenger": "it does not answer",
            "champion": "latency not compared: the champion does not answer",
            "both": "latency could not be measured",
        }
        assert guard.words == f"{said[failed]} (KeyError: x)"


def test_the_model_folder_has_a_limit(tmp_path: Path) -> None:
    for name, count in (("old", 100), ("same", 150), ("large", 151)):
        (tmp_path / name / "model" / "tokenizer").mkdir(parents=True)
        (tmp_path / name / "model" / "tokenizer" / "w").write_bytes(b"x" * count)
        (tmp_path / name / "rows.jsonl").write_bytes(b"x" * 10_000)  # the test grows, not the model
    worse = [check_size(Guards(), tmp_path / "old", tmp_path / name)[0].worse for name in ("same", "large")]
    assert worse == [False, True]
    (guard,) = check_size(Guards(), tmp_path / "old", tmp_path / "large")
    assert (guard.champion, guard.challenger, guard.limit) == (100.0, 151.0, 150.0)
    assert guard.words.endswith(" MB, 1.51 times (at most 1.5)")
    # Its limit is not that of the latency.
    assert check_size(Guards(latency=1.0, size=2.0), tmp_path / "old", tmp_path / "large")[0].limit == 200.0
    (tmp_path / "old" / "model" / "weights").write_bytes(b"x" * 999_900)
    (guard,) = check_size(Guards(), tmp_path / "old", tmp_path / "old")
    assert f"size {rounded(1.0)} MB against {rounded(1.0)} MB" in guard.words
    (tmp_path / "empty").mkdir()
    assert "inf times" in check_size(Guards(), tmp_path / "empty", tmp_path / "old")[0].words
    assert check_size(Guards(size=0), tmp_path / "old", tmp_path / "large") == []


def test_the_parts_of_a_test_split() -> None:
    tickets = classifier.TEST.slices(rows_of("tickets", 0.5))
    assert {name: len(places) for name, places in tickets.items()} == {"label billing": 30, "label other": 30}
    pairs = rows_of("en_de", 0.5)
    for i, row in enumerate(pairs):
        row["source"] = "x" * (i % 30)
    thirds = translator.TEST.slices(pairs)
    assert list(thirds) == ["short items", "middle items", "long items"]
    assert sorted(i for places in thirds.values() for i in places) == list(range(60))
    assert max(len(pairs[i]["source"]) for i in thirds["short items"]) <= 10
    plays = rows_of("gpt", 0.5)
    assert list(language_model.TEST.slices(plays)) == list(thirds)  # thirty groups
    for i, row in enumerate(plays):
        row["group"] = f"play {i % 3}"
    assert list(language_model.TEST.slices(plays)) == ["play 0", "play 1", "play 2"]
    assert translator.TEST.slices(pairs[:1]) == {"short items": [0]}


def _tickets(right: dict[str, float], seed: int = 0) -> list[Row]:
    """600 tickets of four queues; how often each queue's are right."""
    draw, labels = random.Random(seed), list(right)
    rows = []
    for i in range(600):
        label = labels[i % len(labels)]
        predicted = label if draw.random() < right[label] else "none"
        rows.append({"id": f"t{i}", "group": f"g{i}", "label": label, "predicted": predicted, "probabilities": {}})
    return rows


def test_a_label_that_got_worse_is_found_behind_a_better_mean() -> None:
    old = _tickets({"a": 0.5, "b": 0.5, "c": 0.5, "d": 0.9})
    new = _tickets({"a": 0.9, "b": 0.9, "c": 0.9, "d": 0.5}, seed=1)
    found = {guard.name: guard for guard in check_slices(classifier.TEST, new, old, 0.05, HOW)}
    assert {name for name, guard in found.items() if guard.worse} == {"slice label d"}
    assert found["slice label d"].words.startswith("accuracy on label d 0.")
    decision = Decision(True, "better: accuracy ...").guarded(list(found.values()))
    assert not decision.promote
    assert decision.reason.startswith("a guarded metric got worse: accuracy on label d")
    assert decision.reason.endswith("the test itself said better: accuracy ...")
    assert len(decision.plain()["guards"]) == 4
    kept = Decision(True, "better").guarded([found["slice label a"]])
    assert (kept.promote, kept.reason, kept.guards) == (True, "better", (found["slice label a"],))


def test_holms_method_by_hand() -> None:
    """The smallest p against level / 4, the next against level / 3, and so on, up to the first that is too large."""
    found = _holm({"a": 0.02, "b": 0.005, "c": 0.04, "d": 0.01}, 0.05)
    assert found == pytest.approx({"b": 0.0125, "d": 0.05 / 3, "a": 0.025, "c": 0.05})
    assert _holm({"a": 0.03, "b": 0.01, "c": 0.04}, 0.05) == pytest.approx({"b": 0.05 / 3})
    assert _holm({"a": 0.02, "b": 0.03}, 0.05) == pytest.approx({"a": 0.025, "b": 0.05})
    assert _holm({"a": 0.03, "b": 0.03}, 0.05) == {}
    assert _holm({"a": 0.025, "b": 0.03}, 0.05) == {}  # p must be below


def test_one_part_is_the_whole_and_no_guard() -> None:
    assert check_slices(classifier.TEST, _tickets({"a": 0.1}), _tickets({"a": 0.9}), 0.05, HOW) == []


def test_a_part_of_many_can_be_found_with_few_swaps() -> None:
    """20 / 0.05 swaps give no p below 1 / 401, and the first of 25 parts needs one below 0.05 / 25."""
    right = dict.fromkeys("abcdefghijklmnopqrstuvwxy", 1.0)
    found = check_slices(classifier.TEST, _tickets({**right, "t": 0.0}), _tickets(right), 0.05, HOW)
    assert [(guard.name, guard.limit) for guard in found if guard.worse] == [("slice label t", 0.05 / 25)]
    assert {guard.limit for guard in found if not guard.worse} == {None}


def test_equal_models_are_rarely_held_back_by_one_of_many_parts() -> None:
    """Holm's method: with 8 labels and no difference, at most 5 of 100 comparisons may find a worse one."""
    right = {chr(97 + i): 0.7 for i in range(8)}
    held = 0
    for night in range(30):
        old, new = _tickets(right, 2 * night), _tickets(right, 2 * night + 1)
        held += any(
            guard.worse for guard in check_slices(classifier.TEST, new, old, 0.05, Resampling(200, 0.95, night))
        )
    assert held <= 4  # 0.75 are to be expected (half of the differences are for the better); more than 4: p < 0.002
