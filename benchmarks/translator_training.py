"""Training a translator: lexmill's engine beside the Hugging Face Trainer and JoeyNMT.

    python -m benchmarks.translator_training [--joeynmt FOLDER] [--repetitions N] [--steps N] [--json FILE]

One post-norm Transformer at two sizes, with sinusoidal positions and one matrix for source, target and output; label
smoothing, Adam at one rate, gradients clipped to norm 1. Pairs of made captions, in the batches that lexmill makes of
them, at most 4,096 tokens a side with little padding; each side is `translator_training_sides.py`'s, in a process of
its own, in turn. JoeyNMT also trains in batches of its own, which are not sorted by length.

Target tokens, end tokens counted and padding not, for each second of processor time over the steps after the first
ones. Take one thread, `OMP_NUM_THREADS=1 taskset -c 0`: then a busy machine changes little. Each side's first and last
loss are printed.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from benchmarks.measure import Comparison, child, machine, show
from benchmarks.translator_training_sides import SIDES, Work
from lexmill.base.quiet import quieten
from lexmill.commands.precision import instructions

SIZES = (
    Work(layers=3, d_model=256, d_ffn=1024, n_head=8, vocab_size=4000, dropout=0.1),
    Work(layers=4, d_model=128, d_ffn=256, n_head=4, vocab_size=9713, dropout=0.3),  # transformer_multi30k's
)
UNTIMED = 2  # steps before the clock starts: first touches of memory, kernel choice
UNIT = "target tokens a second of processor time"
BF16 = ("engine", "trainer")  # the sides that also train in bf16


def compare(repetitions: int, work: Work) -> list[Comparison]:
    """Measure all sides that are at hand, and print their losses."""
    low = bool(instructions("cpu"))
    plans = [(side, bf16) for bf16 in (False, True)[: 1 + low] for side in SIDES if not bf16 or side in BF16]
    rates: dict[tuple[str, bool], list[float]] = {}
    losses: dict[tuple[str, bool], list[float]] = {}
    missing = set() if low else {"bf16 is left out: this processor has no instructions for it"}
    for _ in range(repetitions):
        for plan in list(plans):
            side, bf16 = plan
            found = child("translator_training", "--side", side, "--work", json.dumps(asdict(replace(work, bf16=bf16))))
            if "missing" in found:
                missing.add(found["missing"])
                plans.remove(plan)
                continue
            print(f"{work.name}: {side}{', bf16' * bf16}: {found['rate']:,.0f} {UNIT}", file=sys.stderr)
            rates.setdefault(plan, []).append(found["rate"])
            losses[plan] = found["losses"]
            if plan == ("engine", False):
                parameters, padding = found["parameters"], found["padding"]
    for sentence in sorted(missing):
        print(sentence, file=sys.stderr)
    print(f"{work.name}: {parameters / 1e6:.1f} M weights, {padding:.1%} padding, ln V {math.log(work.vocab_size):.2f}")
    names = {plan: f"{SIDES[plan[0]][0]}{', bf16' if plan[1] else ''}" for plan in plans}
    for plan, curve in losses.items():
        print(f"{work.name}: {names[plan]}: loss {curve[0]:.3f} in step 1, {curve[-1]:.3f} in step {len(curve)}")
    made = []
    for ours in (plan for plan in plans if plan[0] == "engine"):
        for peer in (plan for plan in plans if plan[0] != "engine" and (ours[1] or not plan[1])):
            sides = (names[ours], rates[ours]), (names[peer], rates[peer])
            made.append(Comparison("translator_training", work.name, UNIT, *sides))
    return made


def one(side: str, work: Work) -> dict[str, Any]:
    """One side, once: its losses and its rate, for the engine also the network's size and the share of padding."""
    try:
        trained = SIDES[side][1](work)
    except LookupError as error:
        return {"missing": str(error.args[0])}
    took = trained.began[work.steps] - trained.began[UNTIMED]
    rate = sum(trained.targets[UNTIMED : work.steps]) / took
    return {"rate": rate, "losses": trained.losses[: work.steps], **trained.more}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the machine, the losses and a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.translator_training")
    parser.add_argument("--joeynmt", default="", metavar="FOLDER", help="a checkout of JoeyNMT")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--steps", type=int, default=SIZES[0].steps, help=f"of each training, above {UNTIMED}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every value here")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    quieten(offline=True)
    if chosen.side:
        print(json.dumps(one(chosen.side, Work(**json.loads(chosen.work)))))
        return
    if chosen.steps <= UNTIMED:
        parser.error(f"--steps {chosen.steps}: the first {UNTIMED} are not timed, so give more")
    here, found = machine(), list[Comparison]()
    for work in SIZES:
        found += compare(chosen.repetitions, replace(work, steps=chosen.steps, joeynmt=chosen.joeynmt))
    show(found, here, chosen.repetitions, chosen.json)


if __name__ == "__main__":
    main()
