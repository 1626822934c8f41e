"""`lexmill plan`: estimate the cost of each language model of params.yaml before anything runs.

The formulas are in `lexmill.commands.plan.planning`. Cost: seconds, whatever the model's size.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from lexmill import kinds, params
from lexmill.base.errors import UserError
from lexmill.base.shown import print_line, print_table
from lexmill.base.strict import pick
from lexmill.commands.plan import planning
from lexmill.commands.plan.planning import Machine, Plan
from lexmill.commands.precision import kept_rates
from lexmill.compute.cores import cores
from lexmill.compute.execution import Execution, load_execution
from lexmill.params import Params
from lexmill.params.models import Model
from lexmill.params.recipe import Steps


def plan(
    models: Sequence[str],
    *,
    devices: int | None,
    device_name: str | None,
    tflops: float | None,
    utilisation: float,
    micro_batch: int | None,
    vocab_size: int,
    as_json: bool,
) -> None:
    """Print the plan of each model.

    Args:
        models: names in `models` of a causal family; empty: all.
        devices: their number; None: as in conf/execution/.
        device_name: looked up for its peak.
        tflops: the peak of a device, instead of a name.
        utilisation: the share of the peak that the training reaches.
        micro_batch: most tokens that a device computes at once; None: as in conf/execution/.
        vocab_size: 0: that of the tokenizer.
        as_json: print JSON, in bytes and seconds.

    Raises:
        UserError: a model or device is unknown, or a vocabulary is not known yet.
    """
    choices = params.load()
    planned = [name for name, model in choices.models.items() if _reads_text(model) and isinstance(model.recipe, Steps)]
    for name in models:
        model = pick(choices.models, name, "models")
        if name not in planned:
            if _reads_text(model):
                raise UserError(f"models.{name}: a mixture with n-grams is fitted in seconds; plan its network")
            raise UserError(
                f"models.{name}: only language models are planned, and this is {kinds.find(model.kind).one}"
            )
    names = list(models) or planned
    if not names:
        raise UserError("params.yaml has no language model to plan")
    execution = load_execution()
    plans = []
    for name in names:
        machine = Machine(
            devices=devices or execution.world,
            micro_batch=micro_batch if micro_batch is not None else execution.micro_batch.tokens,
            peak=_cpu_peak(choices, name, execution, devices or execution.world)
            if device_name is None and tflops is None and execution.accelerator == "cpu"
            else _peak(choices, name, device_name, tflops),
            utilisation=utilisation,
            on_cpu=execution.accelerator == "cpu" and device_name is None,
        )
        plans.append(planning.plan(choices, name, machine, vocab_size))
    if as_json:
        sys.stdout.write(json.dumps([one.to_dict() for one in plans], indent=2, sort_keys=True) + "\n")
        return
    for one in plans:
        _show(one, utilisation)


def _reads_text(model: Model) -> bool:
    """Return whether a model learns every token of running text."""
    kind = kinds.find(model.kind)
    return kind.role == "causal" and kind.corpus == "text"


def _cpu_peak(choices: Params, name: str, execution: Execution, processes: int) -> float:
    """Return the FLOP/s of one process on this machine's CPU, by the rate that `lexmill check` measures once."""
    of_one_core = dict(zip(("32-true", "bf16-mixed"), kept_rates("cpu"), strict=True))
    threads = execution.threads or max(1, cores() // processes)
    return of_one_core[choices.models[name].steps.precision] * threads


def _peak(choices: Params, name: str, device_name: str | None, tflops: float | None) -> float | None:
    if tflops is not None or device_name is None:
        return None if tflops is None else tflops * 1e12
    from lexmill.training.speed import peak_flops

    precision = choices.models[name].steps.precision
    found = peak_flops(device_name, precision)
    if found is None:
        raise UserError(f"the peak of '{device_name}' in {precision} is not known here; give it with --tflops")
    return found


def _show(one: Plan, utilisation: float) -> None:
    from rich.table import Table

    sizes = one.sizes
    print_line(f"{one.name} ({one.family}): {sizes.parameters:,} parameters over a vocabulary of {one.vocab_size:,}")
    print_line(f"  {_scaled(sizes.flops_per_token)} FLOPs a token of training")
    if one.tokens is None or one.flops is None:
        print_line("  its length is in epochs; their tokens are known once its corpus is encoded")
    else:
        print_line(f"  {_scaled(one.tokens)} tokens, {_scaled(one.flops)} FLOPs in all")
    if one.tokens_per_second is None:
        print_line("  time: unknown; give --device-name or --tflops")
    else:
        time = "" if one.seconds is None else f"{duration(one.seconds)} at "
        rate = f"{one.tokens_per_second:,.0f} tokens/s, {utilisation:.0%} of the peak"
        print_line(f"  time: {time}{rate}; a third more with activation checkpointing")
    columns = ("strategy", "micro-batch", "weights", "gradients", "optimizer", "exchange", "activations", "total")
    table = Table(title="GiB of one device", title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in one.memory:
        label = row.strategy.replace("_", " ") + (f" x{row.devices}" if row.devices > 1 else "")
        label += ", checkpointing" if row.checkpointing else ""
        state = (row.weights + row.running_mean, row.gradients, row.optimizer, row.exchange, row.activations, row.total)
        table.add_row(label, f"{one.micro_batch[row.strategy]:,}", *map(_gib, state))
    print_table(table)
    for strategy, why in one.cannot.items():
        print_line(f"  {strategy.replace('_', ' ')}: not possible: {why}")


def _gib(count: int | None) -> str:
    if count is None:
        return "?"
    return f"{count / 2**30:,.1f}" if count >= 10 * 2**30 else f"{count / 2**30:.3f}"


def _scaled(number: float) -> str:
    """Return three digits in words: `855 million`, `3.15e+23`."""
    for power, word in ((12, "trillion"), (9, "billion"), (6, "million")):
        if 10**power <= number < 1000 * 10**power:
            return f"{number / 10**power:.3g} {word}"
    return f"{number:.3g}" if number >= 1e15 else f"{number:,.0f}"


def duration(seconds: float) -> str:
    """Return a duration as text: `0.4 s`, `12 min`, `3.4 h`, `40 h`, `3,554 days`."""
    for least, size, unit in ((2 * 86400, 86400, "days"), (3600, 3600, "h"), (60, 60, "min"), (0, 1, "s")):
        if seconds >= least:
            value = seconds / size
            return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    raise ValueError(f"a duration is not negative: {seconds}")
