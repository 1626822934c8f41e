"""Truncated back-propagation through time: each window goes on from the state in which its row's last window ended.

The states of all rows are the task's, detached between windows, and part of each checkpoint; micro-batches and their
size change nothing. Validation starts each window from a zero state, as without.

Shape letters: B windows in the global batch, n rows of a micro-batch, T context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.data.shards import TokenShards
from lexmill.data.streams import StreamBatches
from lexmill.kinds.language_model.next_token import LanguageModelTask
from lexmill.models.common.causal import Cache
from lexmill.models.common.recurrent import Memory, RecurrentState
from lexmill.training.task import Arrays

_PREVIOUS = "previous"


class Carried(RecurrentState):
    """A state that is read as it was before the window and written as it is after, for layers that are recomputed."""

    def __init__(self, before: Memory | None) -> None:
        self.after: Memory | None = None
        self._before = before
        self.length = 0

    @property
    def memory(self) -> Memory | None:
        """The memory before the window; set it to the one after."""
        return self._before

    @memory.setter
    def memory(self, value: Memory | None) -> None:
        self.after = value


class CarryingTask(LanguageModelTask):
    """A language model whose state goes from window to window; see `LanguageModelTask`.

    Raises:
        UserError: what it learns from is a mixture.
    """

    batches: StreamBatches

    def __init__(self, module: nn.Module, train: Any, valid: TokenShards, **options: Any) -> None:
        if not isinstance(train, TokenShards):
            raise UserError("data.carry_state: windows of a mixture do not follow one another; train on one corpus")
        super().__init__(module, train, valid, **options)
        self.batches = StreamBatches(train, self.context, options["batch_tokens"], options["data_seed"])
        self._carried: dict[str, Tensor] = {}  # "<layer>/<part>": (1, B, D); "previous": (B, tokens)

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        if world > 1:
            raise UserError("data.carry_state: its states are those of one device; set devices to 1")
        fresh = self.batches.fresh(step, rank, world, self.mask_documents)
        return {**super().batch(step, rank, world), "rows": np.arange(self.batches.size), "fresh": fresh}

    def loss_sum(self, module: Any, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        rows, kept = batch["rows"], ~batch["fresh"]
        cache = module.new_cache(len(rows))
        cache.layers = [Carried(self._memory(layer, rows, kept)) for layer in range(len(cache.layers))]
        if _PREVIOUS in self._carried:
            cache.previous = self._carried[_PREVIOUS].to(rows.device)[rows] * kept[:, None]
        nats = module.loss(batch["inputs"], batch["targets"], batch.get("documents"), cache)
        self._store(cache, rows)
        return nats, batch["targets"].numel()

    def carried(self) -> dict[str, Tensor]:
        return self._carried

    def carry(self, carried: Mapping[str, Tensor]) -> None:
        self._carried = dict(carried)

    def _memory(self, layer: int, rows: Tensor, kept: Tensor) -> Memory | None:
        """Return a layer's memory of these rows, zero where one starts afresh or is not finite."""
        found = list[Tensor]()
        while (name := f"{layer}/{len(found)}") in self._carried:
            part = self._carried[name].to(rows.device).index_select(1, rows)  # (1, n, D)
            sound = kept & part.isfinite().all(dim=2)[0]
            found.append(part.masked_fill(~sound[None, :, None], 0))
        return tuple(found) or None

    def _store(self, cache: Cache, rows: Tensor) -> None:
        """Keep what these rows ended with; tensors are replaced, so that a copy of the mapping stays as it is."""
        states: Any = cache.layers
        ended = {f"{i}/{j}": (part, 1) for i, state in enumerate(states) for j, part in enumerate(state.after)}
        if cache.previous is not None:
            ended[_PREVIOUS] = (cache.previous, 0)
        for name, (value, axis) in ended.items():
            size = [*value.shape[:axis], self.batches.size, *value.shape[axis + 1 :]]
            whole = self._carried.get(name, value.new_zeros(size)).to(value)
            self._carried = {**self._carried, name: whole.index_copy(axis, rows, value.detach())}
