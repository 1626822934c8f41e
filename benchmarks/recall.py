"""What small models of the linear-attention family learn: to recall the value of a key, and to copy.

    python -m benchmarks.recall [MIXER...] [--steps N]

* `recall`: pairs of a key and its value, then the keys again in another order, each to be answered with its value
  (Arora et al. 2024). A state must hold all pairs and find one by its key.
* `copy`: tokens, a separator, the same tokens. A state must hold them in their order.

Every model has two layers of width 64 with two heads and is trained alike, AdamW at one rate; accuracy is over the
answers of fresh sequences. A guess is right in 1 of 32 cases for a copy, and for recall.

Shape letters: B sequences, T tokens.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch import Tensor

from lexmill.models.linear_attention.model import LinearAttention
from lexmill.models.linear_attention.rows import ROWS
from lexmill.models.linear_attention.shape import Shape

SYMBOLS = 32  # keys, and as many values
VOCABULARY = 2 * SYMBOLS + 1
SIZES: dict[str, Any] = {"n_layer": 2, "n_head": 2, "d_model": 64, "d_ffn": 128, "chunk": 32}


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


def learn(mixers: tuple[str, ...], task: str, length: int, steps: int, *, lr: float = 3e-3, rows: int = 32) -> float:
    """Train a model and return its accuracy on 256 fresh sequences."""
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(0)
    context = batch(task, 1, length, random)[0].shape[1]
    model = LinearAttention(Shape(**SIZES, context=context, mixers=mixers), VOCABULARY)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(model.parameters(), lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.1)
    for _ in range(steps):
        tokens, targets = batch(task, rows, length, random)
        loss = model.loss(tokens, targets) / (targets >= 0).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    tokens, targets = batch(task, 256, length, torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found = model(tokens).argmax(-1)
    return float((found == targets)[targets >= 0].float().mean())


def main() -> None:
    """Print a table: mixers by tasks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recall", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("mixers", nargs="*", default=list(ROWS), metavar="MIXER", help="default: all")
    parser.add_argument("--steps", type=int, default=1000, help="of each training (default 1000)")
    options = parser.parse_args()
    tasks = [("recall", 4), ("recall", 16), ("copy", 16), ("copy", 32)]
    print("| mixer |", " | ".join(f"{task} {length}" for task, length in tasks), "| seconds |")
    print("|---" * (len(tasks) + 2) + "|")
    for name in options.mixers:
        begun = time.perf_counter()
        found = [learn((name,), task, length, options.steps) for task, length in tasks]
        took = time.perf_counter() - begun
        print(f"| {name} | {' | '.join(f'{100 * one:.0f} %' for one in found)} | {took:.0f} |", flush=True)


if __name__ == "__main__":
    main()
