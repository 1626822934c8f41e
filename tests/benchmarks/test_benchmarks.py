"""Each benchmark runs, at tiny sizes, and its metrics have the right shape. No metric is judged.

Those that start a Prefect server and many processes are part of `make torture`, but for one.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from benchmarks import __main__ as command
from benchmarks import (
    beam,
    cancel,
    encode,
    engine,
    generate,
    linear_attention,
    noop,
    prefect,
    shards,
    tinyshakespeare,
    training,
    training_sides,
    watching,
)
from benchmarks.measure import Comparison, child, in_turn, machine, machine_text, table
from lexmill.data.shards import TokenShards
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.models.transformer.shape import Shape as TransformerShape

WORK = training_sides.Work(1, 2, 16, 16, 30, rows=4, micro_rows=2, steps=4)
TINY: dict[str, Callable[[], list[Comparison]]] = {
    "noop": lambda: noop.compare(1, stages=3),
    "prefect": lambda: prefect.compare(1, stages=2),
    "cancel": lambda: cancel.compare(1, deaf=False),
    "engine": lambda: engine.compare(1, engine.Size(1, 16, 16, 64, 64, steps=5)),
    "training": lambda: training.compare(1, WORK, curve=0),
    "encode": lambda: encode.compare(1, megabytes=0.1),
    "shards": lambda: shards.compare(1, megabytes=0.1),
    "beam": lambda: beam.compare(2, 3, 6, TransformerShape(1, 1, 2, 16, 32, dropout=0.0)),
    "generate": lambda: generate.compare(1, GPTShape(2, 2, 16, 24), 64, prompt=5, new=12),
    "watching": lambda: watching.compare(1, engine.Size(1, 16, 16, 64, 64, steps=7), block=2),
    "linear_attention": lambda: linear_attention.compare(1, 1, 9, 16),
}


def test_every_benchmark_is_tried() -> None:
    assert list(TINY) == list(command.BENCHMARKS)


@pytest.fixture(scope="module")
def prefect_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the benchmarks that start one each."""
    with prefect.server(tmp_path_factory.mktemp("prefect")) as url:
        yield url


MARKS = {"cancel": (pytest.mark.e2e,), "prefect": (pytest.mark.torture,), "shards": (pytest.mark.torture,)}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in TINY])
def test_a_benchmark_gives_both_sides(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "shards":
        monkeypatch.setattr(shards, "FILES", 3)
    if name in ("prefect", "cancel"):
        url = request.getfixturevalue("prefect_url")
        monkeypatch.setattr(f"benchmarks.{name}.server", lambda _folder: nullcontext(url))
    comparisons = TINY[name]()
    assert comparisons
    for one in comparisons:
        assert one.benchmark == name
        assert len(one.ours[1]) == len(one.peer[1]) == (2 if name == "beam" else 1)
        values = [*one.ours[1], *one.peer[1], one.ratio]
        assert all(map(math.isfinite, values))
        # A difference of two times may be below nothing on a busy machine.
        assert min(values) > 0 or (name, one.what) == ("prefect", "a stage")
        assert one.ours[0] != one.peer[0]
    assert table(comparisons).count("\n") == len(comparisons) + 1


def test_encoding_tells_its_memory_and_its_speed_in_two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    (metrics,) = encode.memory([0.05])
    assert metrics["peak_mib"] > metrics["before_mib"] > 0
    assert metrics["megabytes"] == pytest.approx(0.05, abs=0.01)
    monkeypatch.setattr(encode, "cores", lambda: 2)
    assert [one.unit for one in encode.compare(1, megabytes=0.05)] == ["MB/s", "MiB", "MiB", "MB/s"]


def test_the_engine_and_a_plain_loop_have_one_loss_curve() -> None:
    found, began = training_sides.engine(WORK)
    assert len(found) == WORK.steps
    assert len(began) == WORK.steps + 1
    assert found == pytest.approx(training_sides.plain(WORK)[0], rel=1e-5)


@pytest.mark.parametrize("family", ["lstm", "gru"])
def test_a_recurrent_model_trains_as_torchs_own_layers_do(family: str) -> None:
    size = engine.Size(2, 16, 16, 64, 64, steps=4, family=family)
    found = [engine.main(side, size) for side in ("engine", "plain")]
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-5)


def test_a_peer_that_is_not_there_is_reported() -> None:
    assert training.main("nanogpt", WORK) == {
        "missing": "nanoGPT is left out: give the folder of a checkout by --nanogpt"
    }


def test_the_trainer_is_left_out_without_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock file has none: the rest of lexmill needs none."""
    monkeypatch.setitem(sys.modules, "accelerate", None)
    (missing,) = training.main("trainer", WORK).values()
    assert missing.startswith("the Hugging Face Trainer is left out: it needs accelerate (")


@pytest.mark.parametrize("found", [["avx512_bf16"], [], None])
def test_bf16_is_left_out_on_a_processor_without_it(
    found: list[str] | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, bool]] = []

    def side(_module: str, name: str, work: str) -> dict[str, object]:
        asked.append((name, json.loads(work)["bf16"]))
        if name in ("nanogpt", "litgpt", "trainer"):
            return {"missing": f"{name} is left out"}
        return {"rate": 2.0, "matrix": 1.0, "flops": 3, "parameters": 4, "losses": [1.0]}

    monkeypatch.setattr(training, "child", side)
    monkeypatch.setattr(training, "instructions", lambda _device: found)
    comparisons = training.compare(1, WORK, curve=1)
    assert any(bf16 for _, bf16 in asked) == bool(found)
    assert any("bf16" in f"{one.what}{one.ours}{one.peer}" for one in comparisons) == bool(found)
    assert {name for name, _ in asked} == set(training_sides.SIDES)
    assert (training.NO_BF16 in capsys.readouterr().err) == (not found)


def test_a_split_is_scored_in_whole_windows_and_to_its_end() -> None:
    valid = np.arange(12)  # 11 targets: two windows of 4, and 3 more
    seen: list[tuple[list[list[int]], list[list[int]]]] = []

    def nats(inputs: Tensor, targets: Tensor) -> float:
        seen.append((inputs.tolist(), targets.tolist()))
        return float(targets.sum())

    assert tinyshakespeare.score(nats, valid, 4) == [(8, 36 / 8), (11, 66 / 11)]
    assert seen == [([[0, 1, 2, 3], [4, 5, 6, 7]], [[1, 2, 3, 4], [5, 6, 7, 8]]), ([[8, 9, 10]], [[9, 10, 11]])]


def test_the_characters_become_shards_that_a_training_reads(tmp_path: Path) -> None:
    tinyshakespeare._write_shards(tmp_path / "tokens", {"train": np.array([2, 0, 1]), "valid": np.array([1])}, 8)
    shards = TokenShards(tmp_path / "tokens", "train")
    assert list(shards.tokens[0:4]) == [7, 5, 6, 3]
    assert shards.vocab_size == 8


def test_another_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("To be")
    with pytest.raises(ValueError, match="is another text"):
        tinyshakespeare.read(tmp_path / "text")


def test_the_sides_take_turns() -> None:
    order: list[str] = []

    def side(name: str) -> Callable[[], dict[str, float]]:
        return lambda: order.append(name) or {"x": float(len(order))}

    assert in_turn(side("a"), side("b"), 2) == ({"x": [1.0, 3.0]}, {"x": [2.0, 4.0]})
    assert order == ["a", "b", "a", "b"]


def test_medians_and_the_ratio() -> None:
    one = Comparison("name", "what", "s", ("we", [3.0, 1.0, 8.0]), ("they", [2.0, 1500.0, 1.0]))
    assert one.ratio == 1.5
    assert one.as_json()["peer"] == {"name": "they", "values": [2.0, 1500.0, 1.0], "median": 2.0}
    assert "| name | what | we: 3 (1 to 8) s | they: 2 (1 to 1,500) s | 1.50 |" in table([one])


def test_the_machine_is_named() -> None:
    assert all(value not in ("", None) for value in machine().values())
    assert str(machine()["torch"]) in machine_text(machine())


def test_the_command_prints_and_writes_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Comparison("beam", "what", "s", ("we", [1.0]), ("they", [2.0]))
    monkeypatch.setitem(command.BENCHMARKS, "beam", lambda repetitions: [made] * repetitions)
    command.main(["beam", "--repetitions", "2", "--json", str(tmp_path / "found.json")])
    assert "| beam | what | we: 1 (1 to 1) s |" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert [one["ratio"] for one in found["comparisons"]] == [0.5, 0.5]
    assert found["machine"]["cores"] >= 1
    with pytest.raises(SystemExit):
        command.main(["baem"])


def test_a_child_that_fails_is_reported() -> None:
    with pytest.raises(RuntimeError, match=r"benchmarks\.engine"):
        child("engine", "plain", "{}")
