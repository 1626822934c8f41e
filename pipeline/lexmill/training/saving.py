"""Writes checkpoints in the background: the training waits only for the copy into main memory.

One is written at a time. What goes wrong is raised at the next step, and a stop or the end waits for the last one.
Cost: main memory for one copy of weights, optimizer and kept weights.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lexmill.training.checkpoints import CheckpointFolder, Share, Stays
from lexmill.training.pieces import Piece
from lexmill.training.ranks import Ranks

_POLL_SECONDS = 0.005


class Saver:
    """Saves what this process holds of a training.

    Args:
        folder: where.
        ranks: who this process is.
        sharded: whether each process holds a part of the model; else the first alone writes.
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
        """Copy the tensors and begin to write them; waits for the one before."""
        self.wait()
        if not (self.sharded or self.ranks.first):
            return
        copies = {
            name: {key: Piece.of(tensor) for key, tensor in named.items() if self._is_ours(tensor)}
            for name, named in tensors.items()
        }
        self._thread = threading.Thread(
            target=self._write,
            args=(step, copy.deepcopy(dict(state)), copies, stays),
            name="save-checkpoint",
            daemon=True,
        )
        self._thread.start()

    def _is_ours(self, tensor: Tensor) -> bool:
        return not self.sharded or self.ranks.owns(tensor)

    def _write(self, step: int, state: dict[str, Any], copies: dict[str, dict[str, Piece]], stays: Stays) -> None:
        try:
            self.folder.save(step, state, copies, stays=stays, share=self._share)
        except BaseException as error:  # raised again in the training's own thread
            self._error = error

    def check(self) -> None:
        """Raise what has gone wrong in the background."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Wait until nothing is being written; raises what has gone wrong.

        Ranks that write together wait together, in exchanges: the first one's writer waits for all the others, and only
        an exchange fails when one of them has died.
        """
        while self.sharded and self.ranks.largest(self.busy):
            time.sleep(_POLL_SECONDS)
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.check()

    def give_up(self) -> None:
        """The training has failed: wait for no other process. What is complete stays."""
        self._share.given_up.set()
        if self._thread is not None:
            self._thread.join()
