"""The states of all random generators of this process, as tensors and JSON."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor


def tensors() -> dict[str, Tensor]:
    """Return the states of torch's generators and numpy's global one."""
    states = {"torch": torch.get_rng_state()}
    for index, state in enumerate(torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []):
        states[f"cuda-{index}"] = state
    numpy_state = np.random.get_state(legacy=False)
    states["numpy"] = torch.from_numpy(numpy_state["state"]["key"].astype(np.int64))
    return states


def plain() -> dict[str, Any]:
    """Return the states of Python's generator and the rest of numpy's."""
    version, words, gauss = random.getstate()
    numpy_state = np.random.get_state(legacy=False)
    return {
        "python": [version, list(words), gauss],
        "numpy": {"position": numpy_state["state"]["pos"], **{k: numpy_state[k] for k in ("has_gauss", "gauss")}},
    }


def restore(states: dict[str, Tensor], rest: dict[str, Any]) -> None:
    """Restore what `tensors` and `plain` returned."""
    torch.set_rng_state(states["torch"])
    cuda = [states[name] for name in sorted(states) if name.startswith("cuda-")]
    if cuda and torch.cuda.is_available() and len(cuda) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(cuda)
    version, words, gauss = rest["python"]
    random.setstate((version, tuple(words), gauss))
    gauss = {k: rest["numpy"][k] for k in ("has_gauss", "gauss")}
    key = {"key": states["numpy"].numpy().astype(np.uint32), "pos": rest["numpy"]["position"]}
    np.random.set_state({"bit_generator": "MT19937", "state": key, **gauss})
