"""Training a translator beside its peers: one network, one set of batches, and sides that are not at hand."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import translator_training as benchmark
from benchmarks import translator_training_sides as sides

WORK = sides.Work(2, 32, 64, 2, 300, dropout=0.0, batch=256, steps=4, pairs=120)


def test_the_engine_trains_on_all_batches_and_transformers_has_its_first_loss(tmp_path: Path) -> None:
    found = sides.engine(WORK)
    assert len(found.losses) > WORK.steps
    assert found.losses[WORK.steps] < found.losses[0]
    made = sides.batches(WORK, tmp_path)
    assert found.targets[: WORK.steps] == [int(made.batch(step).target_mask.sum()) for step in range(WORK.steps)]
    batch = sides._for_marian(made.batch(0))
    labels = batch.pop("labels")
    with torch.no_grad():
        logits = sides.marian(WORK)(**batch).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=sides.SMOOTHING)
    assert found.losses[0] == pytest.approx(float(loss), rel=1e-5)


def test_a_side_gives_its_rate_over_the_later_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    began = [0.0, 9.0, 18.0, 20.0, 22.0][-WORK.steps - 1 :]
    made = sides.Trained([5.0, 4.0, 3.0, 2.0, 1.0], [7, 7, 10, 30, 7], began, {"parameters": 3})
    monkeypatch.setitem(sides.SIDES, "engine", ("engine.fit", lambda _work: made))
    found = benchmark.one("engine", WORK)
    assert found == {"rate": 40 / 4, "losses": [5.0, 4.0, 3.0, 2.0], "parameters": 3}


def test_captions_are_about_twelve_tokens_of_the_vocabulary() -> None:
    work = replace(WORK, pairs=2000)
    for sentences in sides.captions(work):
        assert np.mean(list(map(len, sentences))) == pytest.approx(12, abs=0.5)
        used = set().union(*sentences)
        assert 4 <= min(used) <= max(used) < work.vocab_size


@pytest.mark.parametrize("side", ["joeynmt", "joeynmt_own"])
def test_joeynmt_is_left_out_without_a_checkout(side: str) -> None:
    missing = {"missing": "JoeyNMT is left out: give the folder of a checkout by --joeynmt"}
    assert benchmark.one(side, WORK) == missing
    assert benchmark.one(side, replace(WORK, joeynmt="nowhere")) == missing


def test_the_trainer_is_left_out_without_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    (missing,) = benchmark.one("trainer", WORK).values()
    assert missing.startswith("the Hugging Face Trainer is left out: it needs accelerate (")


@pytest.mark.parametrize("instructions", [["avx512_bf16"], []])
def test_each_peer_stands_beside_the_engine_in_each_precision(
    instructions: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def child(_module: str, *arguments: str) -> dict[str, object]:
        side, work = arguments[1], json.loads(arguments[3])
        if side == "joeynmt_own":
            return {"missing": "left out"}
        rate = {"engine": 6.0, "trainer": 3.0, "joeynmt": 2.0}[side]
        return {"rate": rate + work["bf16"], "losses": [6.0, 5.0], "parameters": 2e6, "padding": 0.05}

    monkeypatch.setattr(benchmark, "child", child)
    monkeypatch.setattr(benchmark, "instructions", lambda _device: instructions)
    made = benchmark.compare(2, WORK)
    plain = [("Hugging Face Trainer", 2.0), ("JoeyNMT", 3.0)]
    low = [("Hugging Face Trainer", 7 / 3), ("JoeyNMT", 3.5), ("Hugging Face Trainer, bf16", 7 / 4)]
    assert [(one.peer[0], one.ratio) for one in made] == plain + (low if instructions else [])
    shown = capsys.readouterr()
    assert "left out" in shown.err
    assert "engine.fit: loss 6.000 in step 1, 5.000 in step 2" in shown.out


def test_too_few_steps_are_an_error() -> None:
    with pytest.raises(SystemExit):
        benchmark.main(["--steps", str(benchmark.UNTIMED)])
