"""Measure the project beside its peers.

python -m benchmarks [NAME...] [--repetitions N] [--large] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    beam,
    cancel,
    encode,
    engine,
    generate,
    linear_attention,
    noop,
    prefect,
    shards,
    training,
    watching,
)
from benchmarks.measure import Comparison, machine, machine_text, show
from lexmill.base.quiet import quieten

BENCHMARKS: dict[str, Callable[[int], list[Comparison]]] = {
    "noop": noop.compare,
    "prefect": prefect.compare,
    "cancel": cancel.compare,
    "engine": engine.compare,
    "training": training.compare,
    "encode": encode.compare,
    "shards": shards.compare,
    "beam": beam.compare,
    "generate": generate.compare,
    "watching": watching.compare,
    "linear_attention": linear_attention.compare,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmarks named, or all; print the machine and a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}; default all")
    parser.add_argument("--repetitions", type=int, default=5, help="of each side (default 5)")
    parser.add_argument("--large", action="store_true", help="engine: also with 10 million parameters; generate: 124")
    parser.add_argument("--nanogpt", metavar="FOLDER", default="", help="training: a checkout of nanoGPT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every value here")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(BENCHMARKS):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    if options.repetitions < 1:
        parser.error("--repetitions must be at least 1")
    quieten(offline=True)
    here = machine()
    print(machine_text(here), file=sys.stderr)
    comparisons: list[Comparison] = []
    for name in options.names or BENCHMARKS:
        print(f"{name} ...", file=sys.stderr)
        if name == "training":
            comparisons += training.compare(options.repetitions, nanogpt=options.nanogpt)
        else:
            comparisons += BENCHMARKS[name](options.repetitions)
        if name == "engine":
            comparisons += [each for size in engine.RECURRENT for each in engine.compare(options.repetitions, size)]
        if name == "engine" and options.large:
            comparisons += engine.compare(options.repetitions, engine.LARGE)
        if name == "generate" and options.large:
            comparisons += generate.compare(options.repetitions, generate.LARGE, generate.LARGE_VOCABULARY)
    show(comparisons, here, options.repetitions, options.json)


if __name__ == "__main__":
    main()
