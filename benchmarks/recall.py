"""What small causal models learn: to recall the value of a key, and to copy.

    python -m benchmarks.recall [NAME...] [--steps N] [--seed N]

A name is a family, or a mixer of the family `linear_attention`.

* `recall`: pairs of a key and its value, then the keys again in another order, each to be answered with its value
  (Arora et al. 2024). A state must hold all pairs and find one by its key.
* `copy`: tokens, a separator, the same tokens. A state must hold them in their order.

Every model has two layers of width 64, with two heads where it has heads, and is trained alike: Muon at one constant
rate (a reservoir: AdamW), no dropout. Accuracy is over the answers of 256 fresh sequences; a guess is right in 1 of 16
cases.

Shape letters: B sequences, T tokens.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import Tensor

from lexmill import models
from lexmill.compute.memory import keep_freed_memory
from lexmill.models.common.rows import ROWS
from lexmill.params.optimizers import AdamW, Muon
from lexmill.training import optimizers

SYMBOLS = 16  # keys, and as many values
VOCABULARY = 2 * SYMBOLS + 1
TASKS = (("recall", 8), ("copy", 16))
MUON, ADAMW = Muon("muon", lr=0.02, adamw_lr=0.003), AdamW("adamw", lr=0.01)
WIDTHS: dict[str, Any] = {"n_layer": 2, "d_model": 64}
TRANSFORMER: dict[str, Any] = {**WIDTHS, "n_head": 2, "n_kv_head": 2, "d_ffn": 128}
SIZES: dict[str, dict[str, Any]] = {
    **{name: WIDTHS for name in ("elman", "gru", "lstm", "reservoir")},
    "gpt": {**WIDTHS, "n_head": 2},
    **{name: TRANSFORMER for name in ("llama", "decoder")},
}
"""Of each family but `linear_attention`."""


def batch(task: str, rows: int, length: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return tokens and targets, (B, T) int64; -100 where nothing is asked.

    Args:
        task: `recall` or `copy`.
        length: pairs to recall, or tokens to copy.
    """
    values = torch.randint(SYMBOLS, 2 * SYMBOLS, (rows, length), generator=random)
    if task == "copy":
        separator = torch.full((rows, 1), 2 * SYMBOLS)
        whole = torch.cat([values, separator, values], 1)
        targets = whole[:, 1:].clone()
        targets[:, :length] = -100
        return whole[:, :-1], targets
    keys = torch.rand(rows, SYMBOLS, generator=random).argsort(1)[:, :length]
    order = torch.rand(rows, length, generator=random).argsort(1)
    pairs = torch.stack([keys, values], 2).flatten(1)
    asked = torch.stack([keys.gather(1, order), values.gather(1, order)], 2).flatten(1)
    whole = torch.cat([pairs, asked], 1)
    targets = whole[:, 1:].clone()
    targets[:, : 2 * length] = -100
    targets[:, 1::2] = -100  # a key follows, which cannot be known
    return whole[:, :-1], targets


def network(name: str, context: int) -> Any:
    """Return a family's network, or one of a mixer."""
    if name in SIZES:
        return models.build({"family": name, "shape": {**SIZES[name], "context": context}, "vocab_size": VOCABULARY})
    shape = {**WIDTHS, "n_head": 2, "d_ffn": 128, "chunk": 32, "mixers": [name], "context": context}
    return models.build({"family": "linear_attention", "shape": shape, "vocab_size": VOCABULARY})


def learn(name: str, task: str, length: int, steps: int, *, seed: int = 0, rows: int = 32) -> float:
    """Train a model and return its accuracy on 256 fresh sequences; first weights and sequences follow the seed."""
    torch.manual_seed(seed)
    random = torch.Generator().manual_seed(seed)
    model = network(name, batch(task, 1, length, random)[0].shape[1])
    optimizer = optimizers.build(model, ADAMW if name == "reservoir" else MUON)
    for _ in range(steps):
        tokens, targets = batch(task, rows, length, random)
        loss = model.loss(tokens, targets) / (targets >= 0).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        model.zero_grad()
    tokens, targets = batch(task, 256, length, torch.Generator().manual_seed(seed + 1))
    with torch.inference_mode():
        found = model(tokens).argmax(-1)
    return float((found == targets)[targets >= 0].float().mean())


def main() -> None:
    """Print a table: models by tasks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", default=[*SIZES, *ROWS], metavar="NAME", help="default: all")
    parser.add_argument("--steps", type=int, default=500, help="of each training (default 500)")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    keep_freed_memory()
    print("| model |", " | ".join(f"{task} {length}" for task, length in TASKS), "| processor's seconds |")
    print("|---" * (len(TASKS) + 2) + "|")
    for name in options.names:
        begun = time.process_time()
        found = [learn(name, task, length, options.steps, seed=options.seed) for task, length in TASKS]
        took = time.process_time() - begun
        print(f"| {name} | {' | '.join(f'{100 * one:.0f} %' for one in found)} | {took:.0f} |", flush=True)


if __name__ == "__main__":
    main()
