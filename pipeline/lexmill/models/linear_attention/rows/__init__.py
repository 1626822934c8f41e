"""The mixers by name: seventeen linear rows, Performer, and softmax attention whole, in a window, or by hashing.

The state S_t of a head is V x K as in the papers; (.) is the element-wise product. Where a paper's form differs from
the equation, the docstring says so. Gates are computed as logs.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from lexmill.models.linear_attention.rows.channels import S4, Mamba
from lexmill.models.linear_attention.rows.delta import DeltaNet, GatedDeltaNet
from lexmill.models.linear_attention.rows.hashed import LSH
from lexmill.models.linear_attention.rows.head_decay import MLSTM, GatedRFA, Mamba2, RetNet
from lexmill.models.linear_attention.rows.key_decay import DFW, GLA, HGRN2, RWKV6
from lexmill.models.linear_attention.rows.slots import ABC, GSA
from lexmill.models.linear_attention.rows.sums import Linear, LinearKernel, LinearNormalized, Performer
from lexmill.models.linear_attention.shape import Shape
from lexmill.models.linear_attention.shared import Attention, Local

ROWS: dict[str, Callable[[Shape], nn.Module]] = {
    "linear": Linear,
    "linear_kernel": LinearKernel,
    "linear_normalized": LinearNormalized,
    "deltanet": DeltaNet,
    "gated_rfa": GatedRFA,
    "s4": S4,
    "abc": ABC,
    "dfw": DFW,
    "retnet": RetNet,
    "mamba": Mamba,
    "gla": GLA,
    "rwkv6": RWKV6,
    "hgrn2": HGRN2,
    "mlstm": MLSTM,
    "mamba2": Mamba2,
    "gsa": GSA,
    "gated_deltanet": GatedDeltaNet,
    "performer": Performer,
    "local": Local,
    "lsh": LSH,
    "attention": Attention,
}
