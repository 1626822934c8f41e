"""Training steps of one GPT: lexmill's engine beside a plain loop, nanoGPT, litgpt and the Hugging Face Trainer.

The same architecture, weights, batches, optimizer, precision and threads for all (`training_sides.py`; litgpt's model
differs in its positions and has an output matrix of its own), each repetition of each side in a process of its own,
in turn. Tokens a second over the steps after the first ones. The machine's own rate of matrix products is taken in the
engine's process, right after its training, and the engine's FLOP/s are set beside it. The engine in bf16 stands beside
each peer's default, float32; a processor without instructions for bf16 would take hours, so there it is left out. A
longer training at fewer rows gives the loss curves, which are reported, not judged.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from typing import Any

from benchmarks.measure import Comparison, child, matrix_rate
from benchmarks.training_sides import SIDES, Work, model
from lexmill.commands.precision import instructions

# 10.7 million parameters: nanoGPT's shakespeare_char, a quarter of its batch.
SHAKESPEARE = Work(6, 6, 384, 256, 65, rows=16, micro_rows=16, steps=4)
UNTIMED = 2  # steps before the clock starts: first touches of memory, kernel choice
CURVE_STEPS, CURVE_ROWS = 50, 2
NO_BF16 = "bf16 is left out: this processor has no instructions for it, or none that can be found out"


def compare(
    repetitions: int, work: Work = SHAKESPEARE, nanogpt: str = "", curve: int = CURVE_STEPS
) -> list[Comparison]:
    """Measure all sides that are at hand, and print how far the loss curves lie apart."""
    work = replace(work, nanogpt=nanogpt)
    sides, low = dict.fromkeys(SIDES), bool(instructions("cpu"))
    message = set() if low else {NO_BF16}
    rates: dict[str, list[float]] = {}
    for _ in range(repetitions):
        for side in list(sides):
            for bf16 in (False, True) if low and side in ("engine", "plain") else (False,):
                found = child("training", side, json.dumps(asdict(replace(work, bf16=bf16))))
                if "missing" in found:
                    message.add(found["missing"])
                    sides.pop(side)
                    continue
                name = f"{side}-bf16" if bf16 else side
                rates.setdefault(name, []).append(found["rate"])
                if name == "engine":
                    rates.setdefault("matrix", []).append(found["matrix"])
                    rates.setdefault("flops", []).append(found["rate"] * found["flops"] * 1e-9)
                    parameters = found["parameters"]
    for sentence in sorted(message):
        print(sentence, file=sys.stderr)
    what = f"GPT of {parameters / 1e6:.1f} M parameters, {work.rows * work.context} tokens a step"
    ours = ("engine.fit", rates["engine"])
    peers = [(SIDES[side][0], rates[side]) for side in sides if side != "engine"]
    rows = [("float32", ours, peer) for peer in peers]
    if low:
        rounded = ("engine.fit, bf16", rates["engine-bf16"])
        rows += [("bf16", rounded, ("plain loop, bf16", rates["plain-bf16"]))]
        rows += [("bf16 beside float32", rounded, peer) for peer in peers]
    made = [Comparison("training", f"{what}, {kind}", "tokens/s", one, other) for kind, one, other in rows]
    share = ("engine.fit", rates["flops"]), ("matrix products of this machine", rates["matrix"])
    made.append(Comparison("training", f"{what}, float32", "GFLOP/s", *share))
    if curve:
        _tell_curves(replace(work, rows=CURVE_ROWS, micro_rows=1, steps=curve), list(sides), low)
    return made


def _tell_curves(work: Work, sides: list[str], low: bool) -> None:
    """Print the largest difference between the loss curve of the engine in float32 and each other one."""
    curves: dict[str, list[float]] = {}
    for side in sides:
        if side == "litgpt":
            continue  # another model: rotary positions
        for bf16 in (False, True) if low and side == "engine" else (False,):
            name = f"{SIDES[side][0]}{', bf16' if bf16 else ''}"
            curves[name] = child("training", side, json.dumps(asdict(replace(work, bf16=bf16))))["losses"]
    first = curves["engine.fit"]
    for name, losses in curves.items():
        if name != "engine.fit":
            apart = [abs(a - b) for a, b in zip(first, losses, strict=True)]
            print(
                f"training: {len(first)} losses, from {first[0]:.4f} to {first[-1]:.4f} nats; {name} is at most"
                f" {max(apart):.1e} from engine.fit in float32, {sum(apart) / len(apart):.1e} on average"
            )


def main(side: str, work: Work) -> dict[str, Any]:
    """One side, once: its losses, its tokens a second, and for the engine the machine's rate; or what is missing."""
    try:
        losses, began = SIDES[side][1](work)
    except LookupError as error:
        return {"missing": str(error.args[0])}
    found: dict[str, Any] = {"losses": losses}
    if work.steps > UNTIMED:
        took = began[work.steps] - began[UNTIMED]
        found["rate"] = (work.steps - UNTIMED) * work.rows * work.context / took
    if side == "engine":
        module = model(work)
        found |= {"matrix": matrix_rate(), "flops": module.flops_per_token(), "parameters": module.count_parameters()}
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Work(**json.loads(sys.argv[2])))))
