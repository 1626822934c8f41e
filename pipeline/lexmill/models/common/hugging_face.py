"""What the causal families share in reading Hugging Face format: names of weights, and keys of config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.base.outside import finite_number, whole_number
from lexmill.base.shown import value_text


def check(config: Mapping[str, Any], only: Mapping[str, tuple[Any, ...]]) -> None:
    """Raise `UserError` if a key of config.json has a value not in `only`: the model would be another function."""
    for key, computed in only.items():
        if config.get(key, computed[0]) not in computed:
            raise UserError(f"config.json: {key} is {value_text(config[key])}; only {computed[0]!r} is computed here")


def whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """Return a size of config.json; raise `UserError` for any other value than a positive whole number."""
    value = config.get(key)
    value = default if value is None else value
    if value is None:
        raise UserError(f"config.json has no '{key}'")
    return whole_number(value, f"config.json: {key}")


def number(config: Mapping[str, Any], key: str, default: float) -> float:
    """Return a number of config.json; raise `UserError` for any other value."""
    value = config.get(key)
    value = default if value is None else value
    return finite_number(value, f"config.json: {key}")


def names(outside: Mapping[str, str], block: Mapping[str, str], stack: str, n_layer: int) -> dict[str, str]:
    """Return every weight here -> its name there, from the names outside the blocks and inside one block."""
    inside = {f"blocks.{i}.{here}": f"{stack}.{i}.{there}" for i in range(n_layer) for here, there in block.items()}
    return {**outside, **inside}


def renamed(
    tensors: Mapping[str, Tensor], named: Mapping[str, str], ignored: tuple[str, ...], model: str
) -> dict[str, Tensor]:
    """Return the weights under the names here.

    Args:
        named: every weight here -> its name there.
        ignored: endings of names there that are no weights.
        model: the architecture, for the error.

    Raises:
        UserError: one is missing or unknown.
    """
    there = set(named.values())
    errors = [f"'{name}' is missing" for name in named.values() if name not in tensors]
    errors += [f"'{name}' is unknown" for name in tensors if name not in there and not name.endswith(ignored)]
    if errors:
        raise UserError(f"the weights are not those of a {model}: {'; '.join(errors[:5])}")
    return {here: tensors[name] for here, name in named.items()}
