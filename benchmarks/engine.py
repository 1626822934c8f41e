"""Training steps: `lexmill.training.engine.fit` beside a plain torch loop.

Both sides: the same GPT from the same weights on the same batches in the same order, AdamW (fused) at the same constant
rate, gradients clipped to norm 1, float32, no dropout, all cores this process may use; each repetition in a process of
its own. Both keep freed memory (`training/engine.py`) and take the model's own loss, so that what lies between them is
the engine and Fabric under it. The engine writes no checkpoint and validates only after the last step, which is not
timed. For an LSTM and a GRU the plain side is torch's own layers, stacked, with the same weights and torch's loss.
Milliseconds a step: the median over the steps after the first ones, from the moment that a step's batch is
asked for to the next such moment. Both must end at the same loss.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Comparison, child, cores, in_turn


@dataclass(frozen=True)
class Size:
    """A model and how long it trains."""

    n_layer: int
    d_model: int
    context: int
    vocab_size: int
    batch_tokens: int
    steps: int

    family: str = "gpt"
    untimed: int = 3  # steps before the clock starts: first touches of memory, kernel choice


SMALL = Size(4, 128, 128, 2048, 4096, 25)  # 1.1 million parameters
LARGE = Size(6, 320, 256, 8192, 4096, 11)  # 10 million
RECURRENT = [Size(2, 256, 128, 2048, 2048, 25, name) for name in ("lstm", "gru")]
LR = 1e-3


def compare(repetitions: int, size: Size = SMALL) -> list[Comparison]:
    """Measure both sides at a size."""
    text = json.dumps(asdict(size))
    losses: set[tuple[str, float]] = set()

    def side(name: str) -> dict[str, float]:
        found = child("engine", name, text)
        losses.add((name, found.pop("loss")))
        return found

    ours, peer = in_turn(lambda: side("engine"), lambda: side("plain"), repetitions)
    first = min(loss for _, loss in losses)
    if not all(math.isclose(loss, first, rel_tol=1e-4) for _, loss in losses):
        raise RuntimeError(f"the sides did not do the same work: {sorted(losses)}")
    what = f"{size.family.upper()} of {ours['parameters'][0] / 1e6:.1f} M parameters, {size.batch_tokens} tokens a step"
    one, other = statistics.median(ours["ms"]), statistics.median(peer["ms"])
    print(f"engine: {what}: its own cost is {one - other:+.2f} ms a step, {100 * (one / other - 1):+.1f} %")
    return [Comparison("engine", what, "ms a step", ("engine.fit", ours["ms"]), ("plain torch loop", peer["ms"]))]


def _task(size: Size, folder: Path) -> Any:
    """The language-model task on made tokens, with a clock: `task.asked` is when each step's batch was asked for."""
    import torch

    from lexmill import models
    from lexmill.data.shards import TokenShards
    from lexmill.kinds.language_model.next_token import LanguageModelTask

    class Clocked(LanguageModelTask):
        asked: list[float]

        def batch(self, step: int, rank: int, world: int) -> Mapping[str, np.ndarray]:
            self.asked.append(time.perf_counter())
            return super().batch(step, rank, world)

    _write_tokens(size, folder)
    torch.manual_seed(0)
    shape = {"n_layer": size.n_layer, "d_model": size.d_model, "context": size.context}
    shape |= {"n_head": 4} if size.family == "gpt" else {}
    module = models.build({"family": size.family, "shape": shape, "vocab_size": size.vocab_size})
    splits = TokenShards(folder, "train"), TokenShards(folder, "valid")
    task = Clocked(module, *splits, context=size.context, batch_tokens=size.batch_tokens, data_seed=0)
    task.asked = []
    return task


def _write_tokens(size: Size, folder: Path) -> None:
    from lexmill.base.storage import write_json
    from lexmill.data.shards import VERSION, ShardWriter

    tokenizer, corpus = "a" * 64, "b" * 64
    manifest: dict[str, Any] = {
        "version": VERSION,
        "kind": "text",
        "tokenizer_fingerprint": tokenizer,
        "corpus_fingerprint": corpus,
        "vocab_size": size.vocab_size,
        "special": {"pad": 0, "unk": None, "bos": 2, "eos": 3},
        "splits": {},
    }
    random = np.random.default_rng(0)
    for split, count in (("train", 50 * size.batch_tokens), ("valid", size.context)):
        writer = ShardWriter(folder, split, "text", vocab_size=size.vocab_size, tokenizer=tokenizer, corpus=corpus)
        # Frequencies fall as in text, so that there is something to learn.
        ids = 5 + (random.pareto(1.0, count) % (size.vocab_size - 5)).astype(np.int64)
        writer.add(np.append(ids, 3))
        manifest["splits"][split] = {"text": {**writer.close(), "bytes": count, "unknown": 0}}
    write_json(folder / "manifest.json", manifest)


def _run_engine(task: Any, size: Size, folder: Path) -> float:
    from lexmill.compute.execution import Execution
    from lexmill.params.optimizers import AdamW, ConstantSchedule
    from lexmill.training.engine import fit
    from lexmill.training.settings import TrainingSettings

    settings = TrainingSettings(
        optimizer=AdamW("adamw", LR, weight_decay=0.0),
        schedule=ConstantSchedule("constant"),
        steps=size.steps + 1,
        seed=0,
        validate_every=size.steps + 1,
        keep="last",
    )
    execution = Execution(checkpoint_root=str(folder / "checkpoints"), checkpoint_seconds=1e9)
    return fit(task, settings, execution, name="benchmark", identity={}).train_loss


def _run_plain(task: Any, size: Size) -> float:
    import torch
    from torch import nn

    from lexmill.compute.memory import keep_freed_memory

    keep_freed_memory()
    torch.set_num_threads(cores())
    module, loss = _plain_module(task.module, size), torch.tensor(0.0)
    optimizer = torch.optim.AdamW(module.parameters(), LR, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    for step in range(size.steps + 1):
        batch = task.batch(step, 0, 1)
        inputs, targets = torch.from_numpy(batch["inputs"]), torch.from_numpy(batch["targets"])
        loss = module.loss(inputs, targets) / targets.numel()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    return float(loss)


def _plain_module(module: Any, size: Size) -> Any:
    """Return the module that the plain side trains: the same one, or torch's own recurrent layers with its weights."""
    if size.family == "gpt":
        return module
    from torch import Tensor, nn

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(size.vocab_size, size.d_model)
            kind = nn.LSTM if size.family == "lstm" else nn.GRU
            self.layers = kind(size.d_model, size.d_model, size.n_layer, batch_first=True)

        def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
            """(B, T) int64 twice -> the summed nats."""
            hidden, _ = self.layers(self.embedding(inputs))
            logits = nn.functional.linear(hidden, self.embedding.weight)
            return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    plain = Plain()
    weights = {"embedding.weight": module.embedding.weight}
    for index, block in enumerate(module.blocks):
        for name, value in block.kernel.named_parameters():
            weights[f"layers.{name.removesuffix('0')}{index}"] = value
    plain.load_state_dict(weights)
    return plain


def main(side: str, size: Size) -> dict[str, float]:
    """One side, once: the median milliseconds of the timed steps, its last loss, the number of parameters."""
    with tempfile.TemporaryDirectory() as folder:
        task = _task(size, Path(folder))
        loss = _run_engine(task, size, Path(folder)) if side == "engine" else _run_plain(task, size)
    # One step more than is timed was asked for: its start is the end of the last timed one.
    took = np.diff(task.asked[size.untimed : size.steps + 1])
    return {"ms": 1000 * float(np.median(took)), "loss": loss, "parameters": task.module.count_parameters()}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Size(**json.loads(sys.argv[2])))))
