"""Build a network without drawing its first weights, where they are about to be loaded or are only counted.

Random numbers for a large network take seconds; on the device "meta" torch imports its compiler to draw none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

# By their names: transformers puts functions of its own in the place of torch's.
_DRAWS = frozenset({"normal_", "uniform_", "kaiming_uniform_"})


class Undrawn(TorchFunctionMode):
    """In its `with` block, leave a tensor as it is where it would be filled with random numbers."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call any other function."""
        given = kwargs or {}
        if getattr(func, "__name__", "") in _DRAWS:
            tensor = args[0] if args else given["tensor"]
            # A truncated normal is drawn again until it is within its bounds, as zeros are.
            return tensor.zero_() if func is Tensor.normal_ else tensor
        return func(*args, **given)
