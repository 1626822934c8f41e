"""Build a network without drawing its first weights, where they are about to be loaded or are only counted.

Random numbers for a large network take seconds; on the device "meta" torch imports its compiler to draw none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode

_DRAWS = (init.normal_, init.uniform_, init.kaiming_uniform_, Tensor.normal_, Tensor.uniform_)


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
        if func in _DRAWS:
            tensor = args[0] if args else given["tensor"]
            # A truncated normal is drawn again until it is within its bounds, as zeros are.
            return tensor.zero_() if func is Tensor.normal_ else tensor
        return func(*args, **given)
