"""Four recurrences in chunks beside the plain loops of `flash-linear-attention`: equal outputs, and the time of each.

python -m benchmarks.recurrences CHECKOUT [--repetitions N] [--tokens N] [--json FILE]

The loops are read from a checkout of that project (they need `einops`) and run here alone. Random input, four heads of
64, one row, float32; the outputs must be equal to 1e-5 of their norm. Forward alone without gradients, and forward
with backward, the sides in turn.

Shape letters: B rows, T tokens, H heads, K head width.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, normalize

from benchmarks.measure import Comparison, in_turn, machine, machine_text, show
from lexmill.models.common.chunked_state import chunked
from lexmill.models.common.matrix_state import Terms

HEADS, WIDTH, CHUNK = 4, 64, 64
Side = Callable[[], Tensor]


def peer_module(checkout: Path, name: str) -> Any:
    """Return the module of a peer's plain loops, without importing its package."""
    path = checkout / "fla" / "ops" / name / "naive.py"
    spec = importlib.util.spec_from_file_location(f"peer_{name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"{path}: no checkout of flash-linear-attention")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sides(checkout: Path, tokens: int) -> tuple[list[Tensor], dict[str, tuple[Side, Side]]]:
    """Return the inputs, which have gradients, and the two functions of each recurrence, ours first: (B, T, H, K)."""
    made = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, tokens, HEADS, WIDTH, generator=made) for _ in range(3))
    key = normalize(key, dim=-1)
    gates = logsigmoid(torch.randn(1, tokens, HEADS, generator=made) + 3)
    by_key = logsigmoid(torch.randn(1, tokens, HEADS, WIDTH, generator=made) + 3)
    beta = torch.rand(1, tokens, HEADS, generator=made)
    inputs = [query, key, value, gates, by_key, beta]
    for one in inputs:
        one.requires_grad_()
    gla, mamba2, delta, gated = (
        peer_module(checkout, n) for n in ("gla", "simple_gla", "delta_rule", "gated_delta_rule")
    )

    def ours(decay: Tensor | None, strength: Tensor | None) -> Side:
        def side() -> Tensor:
            by_head = [part.transpose(1, 2) for part in (query * WIDTH**-0.5, key, value)]  # (B, H, T, K)
            logs = None if decay is None else (decay if decay.ndim == 4 else decay[..., None]).transpose(1, 2)
            write = None if strength is None else strength[..., None].transpose(1, 2)
            terms = Terms(*by_head, key_decay=logs, beta=write)
            return chunked(terms, terms.new_state(), CHUNK)[0].transpose(1, 2)

        return side

    def delta_loop() -> Tensor:
        parts = (part.transpose(1, 2) for part in (query, key, value))
        out: Tensor = delta.delta_rule_recurrence(*parts, beta.transpose(1, 2))[0]
        return out.transpose(1, 2)

    return inputs, {
        "Mamba-2": (ours(gates, None), lambda: mamba2.naive_recurrent_simple_gla(query, key, value, gates)[0]),
        "GLA": (ours(by_key, None), lambda: gla.naive_recurrent_gla(query, key, value, by_key)[0]),
        "DeltaNet": (ours(None, beta), delta_loop),
        "Gated DeltaNet": (
            ours(gates, beta),
            lambda: gated.naive_recurrent_gated_delta_rule(query, key, value, beta, gates)[0],
        ),
    }


def compare(checkout: Path, repetitions: int, tokens: int = 1024) -> list[Comparison]:
    """Compare outputs, then measure.

    Raises:
        AssertionError: outputs or gradients differ.
    """
    inputs, both = sides(checkout, tokens)
    found, weight = list[Comparison](), torch.linspace(-1, 1, WIDTH)
    for name, (our, theirs) in both.items():
        one, other = our(), theirs()
        assert (one - other).norm() < 1e-5 * other.norm(), f"{name}: {(one - other).norm() / other.norm():.1e} apart"
        gradients = [torch.autograd.grad((out * weight).sum(), inputs, allow_unused=True) for out in (one, other)]
        for mine, their in zip(*gradients, strict=True):
            assert (mine is None) == (their is None), name
            assert mine is None or (mine - their).norm() < 1e-4 * their.norm(), name

        def forward(side: Side) -> Callable[[], dict[str, float]]:
            def measured() -> dict[str, float]:
                with torch.no_grad():
                    begun = time.perf_counter()
                    side()
                    return {"forward": 1000 * (time.perf_counter() - begun)}

            return measured

        def both_ways(side: Side) -> Callable[[], dict[str, float]]:
            def measured() -> dict[str, float]:
                begun = time.perf_counter()
                torch.autograd.grad((side() * weight).sum(), inputs, allow_unused=True)
                return {"forward and backward": 1000 * (time.perf_counter() - begun)}

            return measured

        for kind in (forward, both_ways):
            ours, peer = in_turn(kind(our), kind(theirs), repetitions)
            for what in ours:
                about = f"{name}, {what}, {tokens} tokens"
                found.append(Comparison("recurrences", about, "ms", ("chunks", ours[what]), ("loop", peer[what])))
    return found


def main() -> None:
    """Print the machine and the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.recurrences", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("checkout", type=Path, help="of flash-linear-attention")
    parser.add_argument("--repetitions", type=int, default=5, help="of each side (default 5)")
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every value here")
    options = parser.parse_args()
    here = machine()
    print(machine_text(here), file=sys.stderr)
    comparisons = compare(options.checkout, options.repetitions, options.tokens)
    show(comparisons, here, options.repetitions, options.json)


if __name__ == "__main__":
    main()
