"""Parameters and FLOPs of a comparison's models, and widths that bring them to a number of parameters.

The network is built on torch's meta device, so a count costs milliseconds whatever the size.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

from lexmill.base.budgets import MAX_WIDTH
from lexmill.base.errors import UserError
from lexmill.commands.compare.subjects import Subject
from lexmill.commands.plan.planning import Sizes, measure, on_meta, vocabulary
from lexmill.models.declaration import family

_STEP = 8  # of widths; heads have an even width, which rotary positions need
_MOST_OFF = 0.25


def sizes_of(subject: Subject) -> Sizes:
    """Return a model's sizes over the vocabulary of its tokenizer."""
    choices = subject.parsed()
    model = choices.models[subject.name]
    return measure(on_meta(model, vocabulary(choices, model)))


def with_parameters(subject: Subject, wanted: float) -> Subject:
    """Return the model with the width that brings it closest to `wanted` parameters.

    The width goes in steps of two numbers a head (without heads: of 8); other widths keep their share of it, layers and
    heads stay. Parameters grow with the width, so it is found by bisection.

    Raises:
        UserError: the closest width is more than a quarter off.
    """
    step = 2 * int(subject.entry["shape"].get("n_head", _STEP // 2))
    low = -(-_STEP // step)
    if _count(subject, low * step) < wanted:
        high = 2 * low
        while _count(subject, high * step) < wanted:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if _count(subject, middle * step) < wanted else (low, middle)
    counts = {width: _count(subject, width) for width in (low * step, (low + 1) * step)}
    width = min(counts, key=lambda one: abs(counts[one] - wanted))
    if abs(counts[width] / wanted - 1) > _MOST_OFF:
        raise UserError(
            f"{subject.preset} cannot have {wanted:,.0f} parameters; its closest width, {width}, has {counts[width]:,}"
        )
    return with_width(subject, width)


def with_width(subject: Subject, width: int) -> Subject:
    """Return the model with this `d_model`, and every other width in proportion, rounded to a multiple of 8."""
    entry: dict[str, Any] = copy.deepcopy(dict(subject.entry))
    shape = entry["shape"]
    before = shape["d_model"]
    for field in dataclasses.fields(family(entry["family"]).shape):
        is_width = field.metadata.get("high") == MAX_WIDTH and field.name not in ("d_model", "d_head")
        if is_width and shape.get(field.name):
            shape[field.name] = max(_STEP, _STEP * round(shape[field.name] * width / before / _STEP))
    shape["d_model"] = width
    return subject.with_entry(entry)


def _count(subject: Subject, width: int) -> int:
    return sizes_of(with_width(subject, width)).parameters
