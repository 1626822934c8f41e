"""Writes checkpoints in the background (training waits only for the copy into main memory), and reads their tensors.

One is written at a time. An error is raised at the next step; a stop or the end waits for the last one. Of a sharded
model each rank reads its own part. Cost: main memory for one copy of weights, optimizer and kept weights.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from lexmill.models.common.state import weights
from lexmill.training.checkpoints import CheckpointFolder, Saved, Share, Stays
from lexmill.training.pieces import Piece
from lexmill.training.ranks import Ranks

Named = dict[str, Tensor]

_POLL_SECONDS = 0.005


class Saver:
    """Saves this process's share of a training.

    Args:
        folder: where.
        ranks: this process's.
        sharded: whether each process holds a part of the model; otherwise only the first writes.
    """

    def __init__(self, folder: CheckpointFolder, ranks: Ranks, sharded: bool) -> None:
        self.folder, self.ranks, self.sharded = folder, ranks, sharded
        own = Share()
        attempt = ranks.from_first(own.attempt)
        self._share = Share(ranks.rank, ranks.world, attempt, own.given_up) if sharded else own
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written right now."""
        return self._thread is not None and self._thread.is_alive()

    def save(
        self, step: int, state: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]], stays: Stays = ""
    ) -> None:
        """Copy the tensors and start writing them, after the previous checkpoint."""
        self.wait()
        if not (self.sharded or self.ranks.first):
            return
        copies = {
            name: {k: Piece.of(tensor) for k, tensor in named.items() if not self.sharded or self.ranks.owns(tensor)}
            for name, named in tensors.items()
        }
        what = (step, copy.deepcopy(dict(state)), copies, stays)
        self._thread = threading.Thread(target=self._write, args=what, name="save-checkpoint", daemon=True)
        self._thread.start()

    def _write(self, step: int, state: dict[str, Any], copies: dict[str, dict[str, Piece]], stays: Stays) -> None:
        try:
            self.folder.save(step, state, copies, stays=stays, share=self._share)
        except BaseException as error:  # raised again in the training's own thread
            self._error = error

    def check(self) -> None:
        """Raise an error of the background writer."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Wait until nothing is being written; raise the writer's error.

        Ranks that write together wait in exchanges: the first one's writer waits for the others, and only an exchange
        fails when one of them has died.
        """
        while self.sharded and self.ranks.largest(self.busy):
            time.sleep(_POLL_SECONDS)
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def give_up(self) -> None:
        """After a failure, wait for no other process; complete checkpoints stay."""
        self._share.given_up.set()
        if self._thread is not None:
            self._thread.join()


def network_states(saved: Saved, module: nn.Module) -> dict[str, Named]:
    """Return the weights, and all else in the checkpoint with their names (best, averaged ...), by file."""
    own = weights(module)
    return {
        name: {key: reader.like(key, own[key]) for key in reader.names()}
        for name, reader in saved.files.items()
        if name not in ("optimizer", "random", "carried")
    }


def optimizer_state(saved: Saved, module: nn.Module) -> Named:
    """Return the optimizer's state, `<parameter>/<key>`, placed like a parameter of its shape; empty before step 1."""
    if "optimizer" not in saved.files:
        return {}
    own, reader = weights(module), saved.files["optimizer"]
    found = {}
    for path in reader.names():
        parameter, shape = own.get(path.rpartition("/")[0]), reader.shape(path)
        if parameter is None or tuple(parameter.shape) != shape:
            parameter = torch.empty(shape, device="meta")
        found[path] = reader.like(path, parameter)
    return found
