"""The mixers by name: seventeen linear rows, Performer, and softmax attention whole, in a window, or by hashing.

The state S_t of a head is V x K as in the papers; (.) is the element-wise product. Where a paper's form differs from
the equation, the docstring says so. Gates are computed as logs.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from lexmill.models.common.row_sizes import RowSizes
from lexmill.models.common.rows.channels import S4, Mamba
from lexmill.models.common.rows.delta import DeltaNet, GatedDeltaNet
from lexmill.models.common.rows.hashed import LSH
from lexmill.models.common.rows.head_decay import MLSTM, GatedRFA, Mamba2, RetNet
from lexmill.models.common.rows.key_decay import DFW, GLA, HGRN2, RWKV6
from lexmill.models.common.rows.shared import Attention, Local
from lexmill.models.common.rows.slots import ABC, GSA
from lexmill.models.common.rows.sums import Linear, LinearKernel, LinearNormalized, Performer

ROWS: dict[str, Callable[[RowSizes], nn.Module]] = {
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
