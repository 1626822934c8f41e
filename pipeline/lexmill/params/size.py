"""Models whose sizes are each within their bounds and together absurd: counted, and refused before anything is built.

A bound of the parameters is read off the sizes, without torch. Only a model beyond it is counted exactly: on torch's
meta device, with one and with two layers, since the parameters grow linearly with the layers.
Cost: nothing for a model of usual size, two seconds for one that may be too large (torch is imported).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from lexmill.base.budgets import MAX_ACTIVATIONS, MAX_CONTEXT, MAX_LAYERS, MAX_PARAMETERS, MAX_WIDTH
from lexmill.models.declaration import family
from lexmill.params.models import Model


def size_errors(name: str, model: Model, vocab_size: int) -> Iterator[str]:
    """Yield what is too large about `models.<name>`; `vocab_size`: 0 where it is not known yet."""
    where = f"models.{name}.shape: its sizes make"
    if (count := more_than(MAX_PARAMETERS, model, vocab_size)) is not None:
        yield f"{where} {count:,} parameters; at most {MAX_PARAMETERS:,}; take fewer layers or a smaller width"
    layers, width, context = _extent(model.shape)
    if family(model.family).role == "causal" and (kept := layers * width * context) > MAX_ACTIVATIONS:
        yield (
            f"{where} a training keep {kept:,} numbers for one window of its context (layers x width x context); at"
            f" most {MAX_ACTIVATIONS:,}; take a shorter context"
        )


def more_than(most: int, model: Model, vocab_size: int) -> int | None:
    """Return the number of parameters (without an encoder's head) if it is above `most`, else None."""
    shape = model.shape
    layers, width, context = _extent(shape)
    inside = max(width, getattr(shape, "n_head", 1) * getattr(shape, "d_head", 0))
    # More than any family has: a layer has 8 (LSTM) to 16 squares (a decoder with a second attention).
    if layers * 16 * inside * width + 2 * (vocab_size + context) * width <= most:
        return None
    counted = _sizes(shape, MAX_LAYERS)
    once = dict.fromkeys(counted, 1)
    base = _count(model, once, vocab_size)
    found = base + sum(
        (n - 1) * (_count(model, {**once, key: 2}, vocab_size) - base) for key, n in counted.items() if n > 1
    )
    return found if found > most else None


def _count(model: Model, layers: dict[str, int], vocab_size: int) -> int:
    import torch

    from lexmill.models import build
    from lexmill.models.common.undrawn import Undrawn

    shape = dataclasses.asdict(dataclasses.replace(model.shape, **layers))
    entries = max(vocab_size, shape.get("pad_token_id", 0) + 1)  # an imported one names its padding token
    with torch.device("meta"), Undrawn():
        module = build({"family": model.family, "shape": shape, "vocab_size": entries})
    return sum(tensor.numel() for tensor in (*module.parameters(), *module.buffers()))  # a reservoir is buffers


def _extent(shape: Any) -> tuple[int, int, int]:
    """Return the layers, the largest width and the longest text."""
    width, context = (max(_sizes(shape, bound).values(), default=1) for bound in (MAX_WIDTH, MAX_CONTEXT))
    return sum(_sizes(shape, MAX_LAYERS).values()) or 1, width, context


def _sizes(shape: Any, bound: int) -> dict[str, int]:
    """Return the sizes that have this bound: the layers, the widths, the lengths of a text."""
    return {one.name: getattr(shape, one.name) for one in dataclasses.fields(shape) if one.metadata["high"] == bound}
