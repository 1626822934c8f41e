"""How far back a gradient reaches: the norm of d loss / d state_t against t, for the recurrent families' cells.

python -m benchmarks.gradient_flow [--picture docs/images/gradient-flow.png]

The loss is the last state's product with a random unit vector, so the norm at the last step is 1, and elsewhere it is
what the steps between have made of it: below 1 it vanishes, above it explodes. An LSTM's state is (h, c). Cells are
looked at as they are drawn, with larger recurrent matrices, and after they have learned to name at the last of 12
tokens the first one. Half a minute.

Shape letters: B rows, T time, D width.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor, nn

from lexmill import models
from lexmill.models.common.init import Xavier, initialize
from lexmill.models.common.recurrent import Memory, RecurrentLayer

ROWS, TIME, WIDTH, TOKENS, BRIDGED = 16, 64, 64, 8, 12
Cell = tuple[str, dict[str, Any], float]  # family, options, times an orthogonal U; 0: U as the family draws it
CELLS: dict[str, Cell] = {
    "Elman, tanh": ("elman", {}, 0.0),
    "Elman, tanh, U orthogonal": ("elman", {}, 1.0),
    "Elman, relu, U = 1": ("elman", {"activation": "relu"}, 0.0),
    "GRU": ("gru", {}, 0.0),
    "LSTM, forget bias 1": ("lstm", {}, 0.0),
}
LARGE: dict[str, Cell] = {
    f"tanh, U {factor:g} x orthogonal": ("elman", {}, factor) for factor in (0.9, 1.0, 1.1, 1.3, 2.0)
}


def network(family: str, options: dict[str, Any], factor: float, width: int = WIDTH) -> Any:
    """Return a language model of one such layer; see `Cell`."""
    torch.manual_seed(0)
    shape = {"n_layer": 1, "d_model": width, "context": TIME, **options}
    module: Any = models.build({"family": family, "shape": shape, "vocab_size": TOKENS})
    initialize(module, Xavier(embedding_std=0.3))
    if factor:
        with torch.no_grad():
            matrix = module.blocks[0].kernel.weight_hh_l0
            nn.init.orthogonal_(matrix)
            matrix *= factor
    return module


def norms(layer: RecurrentLayer, inputs: Tensor, loss: Callable[[Tensor], Tensor]) -> list[float]:
    """Return the norm of d loss / d state_t for t = 1 .. T, the root of the mean square over the rows.

    Args:
        inputs: (B, T, D).
        loss: of the last h, (B, D) -> (B,).
    """
    memory: Memory | None = None
    states: list[Memory] = []
    for step in inputs.detach().requires_grad_().split(1, dim=1):
        _, memory = layer.read(step, memory)
        states.append(memory)
    parts = [part for state in states for part in state]
    gradients = torch.autograd.grad(loss(states[-1][0][0]).sum(), parts, allow_unused=True)  # the last c is not read
    squares = [0.0 if one is None else float(one.double().square().sum()) for one in gradients]
    each = len(states[0])
    return [math.sqrt(sum(squares[i * each : (i + 1) * each]) / len(inputs)) for i in range(len(states))]


def flow(cell: Cell, scale: float) -> list[float]:
    """Return `norms` of a fresh cell for random inputs of this standard deviation."""
    module = network(*cell, WIDTH)
    inputs = torch.randn(ROWS, TIME, WIDTH) * scale
    return norms(module.blocks[0], inputs, _product)


def flow_of_learned(module: Any) -> list[float]:
    """Return `norms` of a language model for random tokens, as many as it has learned to bridge."""
    return norms(module.blocks[0], module.embedding(torch.randint(TOKENS, (ROWS, BRIDGED))), _product)


def _product(last: Tensor) -> Tensor:
    return (last * nn.functional.normalize(torch.randn(last.shape), dim=1)).sum(1)


def learn(module: Any, optimizer: torch.optim.Optimizer, clip: float, steps: int) -> float:
    """Learn to name the first token at the last; return the mean loss of the last 20 steps (a guess: ln 8 = 2.08)."""
    losses = []
    for _ in range(steps):
        tokens = torch.randint(TOKENS, (32, BRIDGED))
        targets = torch.full_like(tokens, -100)
        targets[:, -1] = tokens[:, 0]
        loss = module.loss(tokens, targets) / 32
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(module.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses[-20:]) / len(losses[-20:])


def draw(path: Path, curves: Sequence[tuple[str, dict[str, list[float]]]]) -> None:
    """Draw a panel for each title: the norm against t, logarithmic."""
    figure = Figure(figsize=(10.0, 7.4), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    for place, (title, lines) in enumerate(curves, start=1):
        panel = figure.add_subplot(2, 2, place)
        for name, values in lines.items():
            panel.plot(range(1, len(values) + 1), values, label=name)
        panel.set(yscale="log", xlabel="t", ylabel="norm of d loss / d state", title=title)
        panel.axhline(1.0, color="0.7", linewidth=0.8, zorder=0)
        panel.legend(fontsize=7)
    figure.savefig(path, metadata={"Software": None})


def main(arguments: Sequence[str] | None = None) -> None:
    """Print each curve's norm at t = 1, with the factor a step, and two losses with and without clipping; draw."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gradient_flow")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw them into this PNG")
    parser.add_argument("--steps", type=int, default=400, help="of learning (default 400)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    learned: dict[str, list[float]] = {}
    for name, cell in CELLS.items():
        module = network(*cell, width=32)
        loss = learn(module, torch.optim.Adam(module.parameters(), lr=0.01), 1.0, options.steps)
        learned[f"{name} (loss {loss:.2f})"] = flow_of_learned(module)
    curves = [
        ("fresh cells", {name: flow(cell, 0.3) for name, cell in CELLS.items()}),
        (f"after learning to bridge {BRIDGED} tokens", learned),
        ("larger U, inputs near 0", {name: flow(cell, 0.001) for name, cell in LARGE.items()}),
        ("larger U, inputs that saturate", {name: flow(cell, 0.3) for name, cell in LARGE.items()}),
    ]
    for title, lines in curves:
        for name, values in lines.items():
            print(f"{title:36} | {name:40} | {values[0]:8.1e} | {values[0] ** (1 / (len(values) - 1)):.3f} a step")
    for name in ("Elman, tanh", "Elman, relu, U = 1"):
        losses = []
        for clip in (1.0, 0.0):
            module = network(*CELLS[name], width=32)
            losses.append(learn(module, torch.optim.SGD(module.parameters(), lr=1.0), clip, options.steps // 2))
        print(f"{name}, SGD with a rate of 1: loss {losses[0]:.3g} clipped, {losses[1]:.3g} not clipped")
    if options.picture:
        draw(options.picture, curves)


if __name__ == "__main__":
    main()
