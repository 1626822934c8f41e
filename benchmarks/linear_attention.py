"""A training step of one mixer, forward and backward: each of the linear-attention family beside softmax attention.

Softmax attention is the decoder's, rotary, over torch's fused kernel. All have the same width, heads and random input,
gradients for input and weights, float32, one thread; freed memory is kept, as the engine keeps it. Each repetition
measures all of them in turn, after a first round that is not timed. Processor time, so that other work counts less.

Shape letters: B rows, T tokens, D width.
"""

from __future__ import annotations

import time
from typing import Any, cast

import torch
from torch import Tensor

from benchmarks.measure import Comparison
from lexmill.compute.memory import keep_freed_memory
from lexmill.models.common.decoder_attention import DecoderAttention
from lexmill.models.common.row_sizes import Row
from lexmill.models.common.rows import ROWS
from lexmill.models.linear_attention.shape import Shape

HEADS, PEER = 4, "softmax attention"


def compare(repetitions: int, rows: int = 2, tokens: int = 1024, width: int = 256) -> list[Comparison]:
    """Measure every mixer."""
    keep_freed_memory()
    torch.manual_seed(0)
    sides: dict[str, Any] = {PEER: DecoderAttention(width, HEADS, HEADS, width // HEADS)}
    for name, made in ROWS.items():
        if name != "attention":
            sides[name] = made(Shape(n_layer=1, n_head=HEADS, d_model=width, context=tokens, mixers=(cast(Row, name),)))
    hidden, gradient = torch.randn(rows, tokens, width, requires_grad=True), torch.randn(rows, tokens, width)
    found: dict[str, list[float]] = {name: [] for name in sides}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for repetition in range(repetitions + 1):
        for name, mixer in sides.items():
            took = _step(mixer, hidden, gradient)
            if repetition:
                found[name].append(took)
    torch.set_num_threads(threads)
    what = f"forward and backward, width {width}, {rows} x {tokens} tokens"
    unit, peer = "ms of processor time", (PEER, found.pop(PEER))
    return [Comparison("linear_attention", what, unit, (name, took), peer) for name, took in found.items()]


def _step(mixer: Any, hidden: Tensor, gradient: Tensor) -> float:
    """Return the milliseconds of processor time of one step."""
    begun = time.process_time()
    shared = mixer.shared(torch.zeros(hidden.shape[:2], dtype=torch.int64), 0, None)
    mixer(hidden, shared, None).backward(gradient)
    return 1000 * (time.process_time() - begun)
