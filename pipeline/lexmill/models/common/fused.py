"""Matrices that lie in one tensor because they are applied at once, and how they lie there."""

from __future__ import annotations

from torch import nn

from lexmill.models.common.attention import CrossAttention, SelfAttention


def fused_layouts(module: nn.Module) -> dict[str, tuple[int, int]]:
    """Of each fused weight of a module: (groups, parts).

    The rows of such a weight are (groups, parts, rows of a part in a group): query, key and value of one head stand
    together, the gates of an LSTM are one group.
    """
    found: dict[str, tuple[int, int]] = {}
    for path, child in module.named_modules():
        prefix = f"{path}." if path else ""
        if isinstance(child, SelfAttention):
            found[f"{prefix}query_key_value.weight"] = (child.query_key_value.weight.size(0) // (3 * child.d_head), 3)
        elif isinstance(child, CrossAttention):
            found[f"{prefix}key_value.weight"] = (1, 2)
        elif isinstance(child, nn.LSTM):
            matrices = (name for name, _ in child.named_parameters(recurse=False) if name.startswith("weight_"))
            found |= {f"{prefix}{name}": (1, 4) for name in matrices if not name.startswith("weight_hr")}
    return found
