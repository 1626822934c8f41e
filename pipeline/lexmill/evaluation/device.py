"""The device of an evaluation: the first of the execution settings, with its threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lexmill.compute.execution import Execution
from lexmill.models.common.first_call import settle_vector_math

if TYPE_CHECKING:
    import torch


def evaluation_device(execution: Execution) -> torch.device:
    """Set this process's torch threads (0 in the settings: torch's own choice, all cores) and return the device."""
    import torch

    if execution.threads:
        torch.set_num_threads(execution.threads)
    settle_vector_math()
    return torch.device(execution.accelerator)
