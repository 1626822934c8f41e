"""Measure unpadded sequences in `modern_encoder` (ModernBERT's way) beside padded ones.

    python -m benchmarks.unpadded [--repetitions N]

Padded batches are masked; unpadded ones lay their texts end to end, with attention within each: text by text, as the
encoder does on a CPU, by padded parts of like length, filled and emptied in each layer, or by one block-diagonal mask.
"In parts" is a batch cut as a training cuts it, each part a pass of its own. All sides take turns, forward and backward
on one thread, on the same batches; times are of the processor. tests/benchmarks checks that all give the same states.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import machine, machine_text
from lexmill import models
from lexmill.data.texts import cut, pad, parts
from lexmill.models.common.attention import attend, key_mask
from lexmill.models.modern_encoder.model import Attention

PASS_COST = 32  # training.task's on a CPU
TINY = {"n_layer": 2, "n_head": 2, "d_model": 128, "d_ffn": 384}
SMALL = {"n_layer": 6, "n_head": 6, "d_model": 384, "d_ffn": 1152}
SIZES = {"tiny": TINY, "small": SMALL}
VOCABULARY = 2048
# Tokens of a text: median, spread of its logarithm, longest; as the default reviews are, and long ones.
LENGTHS = {"sentences": (24, 0.55, 96), "articles": (180, 0.8, 512)}


def drawn(kind: str, rows: int, generator: np.random.Generator) -> list[list[int]]:
    """Return texts of random tokens, the longest first."""
    median, spread, most = LENGTHS[kind]
    lengths = np.clip(np.exp(generator.normal(np.log(median), spread, rows)), 4, most).astype(int)
    return [generator.integers(5, VOCABULARY, length).tolist() for length in sorted(lengths, reverse=True)]


def by_parts(lengths: Sequence[int]) -> Attention:
    """Return attention in padded parts of like length: each is filled from the sequence and emptied into it."""
    bounds = cut(np.array(lengths), 0)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    places = []
    for first, last in pairwise(bounds):
        longest = lengths[first]
        at = torch.from_numpy(starts[first:last, None] + np.arange(longest))
        real = torch.arange(longest) < torch.tensor(lengths[first:last])[:, None]
        places.append((at.clamp(max=int(starts[-1]) - 1), real, key_mask(real)))

    def within(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        found = []
        for at, real, mask in places:
            filled = (part[0][:, at].transpose(0, 1) for part in (query, keys, values))  # (b, H, t, K)
            found.append(attend(*filled, mask=mask, causal=False)[real])
        return torch.cat(found)[None]

    return within


def by_one_mask(lengths: Sequence[int]) -> Attention:
    """Return attention over the whole sequence under a block-diagonal mask."""
    number = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    mask = number[:, None] == number

    return partial(attend, mask=mask, causal=False)


WAYS = {"by padded parts": by_parts, "by one mask": by_one_mask}


def padded(module: Any, tokens: Tensor, mask: Tensor) -> Tensor:
    """Return the states of a batch whose padding is masked."""
    attention = partial(attend, mask=key_mask(mask), causal=False)
    found: Tensor = module.through(tokens, torch.arange(tokens.shape[1]), attention)
    return found


def states(run: Callable[[Tensor, Tensor], Tensor], rows: Sequence[Sequence[int]], pass_cost: int | None) -> Tensor:
    """Return the hidden states (N, D) of all real tokens, from one pass or from the parts that a pass cost gives."""
    tokens, mask = pad(rows)
    batch = {"tokens": tokens, "mask": mask}
    found = []
    for part in [batch] if pass_cost is None else parts(batch, pass_cost):
        of_part, real = (torch.from_numpy(np.ascontiguousarray(part[name])) for name in ("tokens", "mask"))
        found.append(run(of_part, real)[real])
    return torch.cat(found)


def unpadded(module: Any, rows: Sequence[Sequence[int]], attention: Attention) -> Tensor:
    """Return the same of the rows laid end to end."""
    tokens = torch.tensor([token for row in rows for token in row])[None]
    places = torch.cat([torch.arange(len(row)) for row in rows])
    found: Tensor = module.through(tokens, places, attention)
    return found[0]


def _by_way(module: Any, rows: Sequence[Sequence[int]], way: Callable[[Sequence[int]], Attention]) -> Tensor:
    return unpadded(module, rows, way([len(row) for row in rows]))


def sides(module: Any, rows: Sequence[Sequence[int]]) -> dict[str, Callable[[], Tensor]]:
    """Return every way to compute the states of a batch."""
    found: dict[str, Callable[[], Tensor]] = {
        "padded": lambda: states(partial(padded, module), rows, None),
        "padded, in parts": lambda: states(partial(padded, module), rows, PASS_COST),
        "unpadded": lambda: states(module.hidden, rows, None),
        "unpadded, in parts": lambda: states(module.hidden, rows, PASS_COST),
    }
    return found | {f"unpadded, {name}": partial(_by_way, module, rows, way) for name, way in WAYS.items()}


def made(size: str, kind: str) -> Any:
    """Return an encoder of the size that reads the kind's longest text."""
    torch.manual_seed(0)
    shape = {**SIZES[size], "max_positions": LENGTHS[kind][2]}
    return models.build({"family": "modern_encoder", "shape": shape, "vocab_size": VOCABULARY})


def measure(size: str, kind: str, rows: int, repetitions: int) -> dict[str, list[float]]:
    """Return ms of processor time for each side, forward and backward, a batch each; every side reads every batch."""
    module, generator = made(size, kind), np.random.default_rng(0)
    times: dict[str, list[float]] = {}
    for repetition in range(-1, repetitions):  # the first is not timed
        batch = drawn(kind, rows, generator)
        for name, side in sides(module, batch).items():
            module.zero_grad(set_to_none=True)
            begun = time.process_time()
            side().square().sum().backward()
            if repetition >= 0:
                times.setdefault(name, []).append(1000 * (time.process_time() - begun))
    return times


def main() -> None:
    """Measure each size and kind of text; print the medians and what the first side takes longer."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.unpadded")
    parser.add_argument("--repetitions", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(machine_text(machine()))
    for size in SIZES:
        for kind, rows in (("sentences", 32), ("articles", 16)):
            found = measure(size, kind, rows, options.repetitions)
            usual = statistics.median(found["padded, in parts"])
            for name, times in found.items():
                middle = statistics.median(times)
                spread = f"{min(times):.0f} to {max(times):.0f}"
                print(f"{size:6} {kind:10} {name:22} {middle:7.1f} ms ({spread}), {middle / usual:.2f}")


if __name__ == "__main__":
    main()
