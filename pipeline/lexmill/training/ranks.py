"""This process's rank among those that share a training, and the numbers they exchange.

Processes form a grid: data ranks learn from different rows; the tensor ranks of one data rank split its matrix
products, so they see the same rows and draw the same dropout.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor, Replicate


@dataclass(frozen=True)
class Ranks:
    """One process.

    Attributes:
        rank, world: among all processes.
        data_rank, data_world: among those that learn from different rows.
        tensor_rank: among those that learn from the same rows.
        device: where its tensors live.
    """

    rank: int
    world: int
    data_rank: int
    data_world: int
    tensor_rank: int
    device: torch.device

    @classmethod
    def of(cls, rank: int, world: int, tensor_parallel: int, device: torch.device) -> Ranks:
        """Return a process of Lightning's `ModelParallelStrategy` grid: neighbours split matrix products."""
        return cls(rank, world, rank // tensor_parallel, world // tensor_parallel, rank % tensor_parallel, device)

    @property
    def first(self) -> bool:
        """Whether this process writes the results."""
        return self.rank == 0

    def summed(self, numbers: list[float]) -> list[float]:
        """Return the sums over all processes, in float64."""
        return self._reduced(numbers, distributed.ReduceOp.SUM)

    def largest(self, number: int) -> int:
        """Return the largest over all processes."""
        return int(self._reduced([number], distributed.ReduceOp.MAX)[0])

    def from_first(self, number: int) -> int:
        """Return the first process's number."""
        return int(self.summed([number if self.first else 0])[0])

    def _reduced(self, numbers: list[float], how: distributed.ReduceOp.RedOpType) -> list[float]:
        if self.world == 1:
            return numbers
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        distributed.all_reduce(tensor, op=how)
        return list(tensor.tolist())

    def owns(self, tensor: Tensor) -> bool:
        """Return whether, of all processes that hold the same piece of a tensor, this one counts and saves it."""
        if not isinstance(tensor, DTensor):
            return self.first
        coordinate, names = tensor.device_mesh.get_coordinate(), tensor.device_mesh.mesh_dim_names or ()
        assert coordinate is not None
        if ("data_parallel" not in names and self.data_rank) or ("tensor_parallel" not in names and self.tensor_rank):
            return False
        return all(
            place == 0
            for place, placement in zip(coordinate, tensor.placements, strict=True)
            if isinstance(placement, Replicate)
        )


def fetched(losses: list[Tensor], counts: list[Tensor | int], norm: Tensor) -> tuple[float, float, float]:
    """Return the sum of losses, the sum of counts, and the norm, fetched from the device at once."""
    on_device = [*losses, *(count for count in counts if isinstance(count, Tensor)), norm]
    # Apple's devices have no float64.
    kind = torch.float32 if norm.device.type == "mps" else torch.float64
    numbers: list[float] = torch.stack([tensor.detach().to(kind) for tensor in on_device]).tolist()
    count = sum(numbers[len(losses) : -1]) + sum(count for count in counts if isinstance(count, int))
    return sum(numbers[: len(losses)]), count, numbers[-1]


def local(tensor: Tensor) -> Tensor:
    """Return this process's piece of a tensor, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
