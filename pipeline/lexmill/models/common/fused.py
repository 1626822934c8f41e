"""Matrices that lie in one tensor because they are applied at once."""

from __future__ import annotations

from torch import nn

from lexmill.models.common.mixer import Layout


def fused_layouts(module: nn.Module) -> dict[str, Layout]:
    """The layout of each fused weight, (groups, parts), as the modules that own them declare it (`mixer.Part`)."""
    found: dict[str, Layout] = {}
    for path, child in module.named_modules():
        if hasattr(child, "fused_parts"):
            prefix = f"{path}." if path else ""
            found |= {f"{prefix}{name}": layout for name, layout in child.fused_parts().items()}
    return found
