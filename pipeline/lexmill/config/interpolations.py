"""A budget for what OmegaConf's `${...}` may grow to: `b: ${a}${a}`, `c: ${b}${b}` ... doubles with each line.

OmegaConf has no bound of its own, so what each reference brings is counted as it is resolved: characters, and the
values in a mapping or list, which OmegaConf copies at a tenth of a millisecond each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lexmill.base.yaml_file import MOST_BYTES

GROWN = "its interpolations"
MOST_VALUES = 10_000  # referred to; conf/ as it is refers to none


@contextmanager
def bounded() -> Iterator[None]:
    """Within the block, raise OmegaConf's own error where interpolations make more than the budget."""
    from omegaconf.base import Container

    left = [MOST_VALUES, MOST_BYTES]

    def counted(resolve: Callable[..., Any]) -> Callable[..., Any]:
        def resolved(self: Any, *arguments: Any, **named: Any) -> Any:
            found = resolve(self, *arguments, **named)
            if named.get("inter_type") != "derived":
                _spend(found, left)
            return found

        return resolved

    # `${key}`, and `${oc.env:NAME}`; what our own `${derived:PART}` makes is as large as the models that are listed.
    before = {name: getattr(Container, name) for name in ("_resolve_node_interpolation", "_evaluate_custom_resolver")}
    try:
        for name, resolve in before.items():
            setattr(Container, name, counted(resolve))
        yield
    finally:
        for name, resolve in before.items():
            setattr(Container, name, resolve)


def _spend(value: Any, left: list[int]) -> None:
    """Take what a value holds off the budget, without resolving more of it."""
    from omegaconf.errors import InterpolationResolutionError

    waiting = [value]
    while waiting:
        one = waiting.pop()
        inside = one._value() if hasattr(one, "_value") else one
        left[0] -= 1
        if isinstance(inside, str):
            left[1] -= len(inside)
        elif isinstance(inside, dict | list):
            waiting += inside.values() if isinstance(inside, dict) else inside
        if min(left) < 0:
            raise InterpolationResolutionError(
                f"{GROWN} (${{...}}) make more than {MOST_VALUES:,} values or {MOST_BYTES / 1e6:.0f} MB;"
                " write out what is needed"
            )
