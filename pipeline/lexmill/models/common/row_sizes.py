"""The rows of `rows` by name, and the sizes that they read; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lexmill.base.budgets import MAX_CONTEXT, MAX_HEADS, MAX_WIDTH
from lexmill.base.strict import spec
from lexmill.models.common.head_sizes import HeadSizes

Row = Literal[
    "linear",
    "linear_kernel",
    "linear_normalized",
    "deltanet",
    "gated_rfa",
    "s4",
    "abc",
    "dfw",
    "retnet",
    "mamba",
    "gla",
    "rwkv6",
    "hgrn2",
    "mlstm",
    "mamba2",
    "gsa",
    "gated_deltanet",
    "performer",
    "local",
    "lsh",
    "attention",
    "linformer",
]
ROTARY = ("retnet", "local", "lsh", "attention")  # need an even head width


@dataclass(frozen=True, kw_only=True)
class RowSizes(HeadSizes):
    """Sizes of the layers whose mixers are rows; mixers may differ from layer to layer."""

    n_head: int = spec("heads, each with a state of its own", low=1, high=MAX_HEADS)
    d_model: int = spec("width", low=8, high=MAX_WIDTH)
    context: int = spec(
        "tokens through which a training step looks back; the window of attention",
        unit="tokens",
        low=2,
        high=MAX_CONTEXT,
    )
    mixers: tuple[Row, ...] = spec("of the first layers, by name; repeated for the others", ("gated_deltanet",))
    d_head: int = spec("width of a head's keys and values; 0: d_model / n_head", 0, low=0, high=MAX_WIDTH)
    d_state: int = spec("numbers a channel keeps in s4 and mamba", 16, low=1, high=MAX_WIDTH)
    n_slot: int = spec("slots a head keeps in abc and gsa", 32, low=1, high=MAX_WIDTH)
    n_feature: int = spec("random features a head has in performer", 64, low=1, high=MAX_WIDTH)
    window: int = spec(
        "positions a token sees in local and, of its bucket, in lsh", 32, unit="tokens", low=1, high=MAX_CONTEXT
    )
    n_bucket: int = spec("buckets of a round of hashing in lsh, an even number", 8, low=2, high=MAX_WIDTH)
    n_hash: int = spec("rounds of hashing in lsh", 2, low=1, high=16)
    kernel: int = spec(
        "width of the convolution before the states of mamba, mamba2, deltanet, gated_deltanet, rwkv6; 0: none",
        4,
        unit="tokens",
        low=0,
        high=64,
    )
    chunk: int = spec("tokens computed at once; a power of two, which changes no result", 64, low=1, high=4096)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mixers", tuple(self.mixers))  # a model's config.json gives a list

    def errors(self) -> list[str]:
        found = super().errors()
        if not self.mixers:
            found.append("mixers: at least one name is expected")
        if self.chunk & (self.chunk - 1):
            found.append(f"chunk: {self.chunk} is not a power of two")
        if "linformer" in self.mixers:
            found.append(
                "mixers: linformer mixes all positions of a text into a few (Wang et al. 2020), so each would see later"
                " ones; it fits encoders, not causal models"
            )
        if self.n_bucket % 2:
            found.append(f"n_bucket: {self.n_bucket} is not even")
        rotary = [name for name in ROTARY if name in self.mixers]
        if not found and self.head_width % 2 and rotary:
            found.append(f"d_head: the rotary positions of {' and '.join(rotary)} need an even head width")
        return found
