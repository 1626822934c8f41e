"""The device of an evaluation: the first of the execution settings, with its threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lexmill.compute.cores import set_torch_threads
from lexmill.compute.execution import Execution
from lexmill.models.common.first_call import settle_vector_math

if TYPE_CHECKING:
    import torch


def evaluation_device(execution: Execution) -> torch.device:
    """Set this process's torch threads and return the device."""
    import torch

    set_torch_threads(execution)
    settle_vector_math()
    return torch.device(execution.accelerator)
