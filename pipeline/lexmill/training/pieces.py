"""Tensors in safetensors files, whole or in the pieces that the ranks of a sharded training hold.

The one metadata key of a file of pieces, `pieces`, holds for each tensor the shape of the whole and where its piece
begins; the tensors are plain safetensors. A reader takes any slice from a set of such files, so what two ranks wrote
loads into one rank, four, or a whole model, and back. Files are written and hashed in one pass.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from lexmill.base.errors import UserError
from lexmill.training.ranks import local

_CHUNK = 1 << 24
_KINDS = {
    torch.int64: "I64",
    torch.float64: "F64",
    torch.float32: "F32",
    torch.int32: "I32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class Piece:
    """A part of a tensor in main memory, a copy.

    Attributes:
        data: the part.
        shape: of the whole.
        offset: where the part begins, by axis.
    """

    data: Tensor
    shape: tuple[int, ...]
    offset: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Piece:
        """Copy what this process holds of a tensor."""
        data = local(tensor.detach()).to("cpu", copy=True).contiguous()
        return cls(data, tuple(tensor.shape), _offset(tensor))


def _offset(tensor: Tensor) -> tuple[int, ...]:
    if not isinstance(tensor, DTensor):
        return (0,) * tensor.ndim
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(offset)


def write(path: Path, pieces: Mapping[str, Piece]) -> str:
    """Write a safetensors file, flush it to disk, and return the sha256 of its bytes."""
    # In the library's order, the widest first, so that each is aligned.
    order = list(_KINDS)
    named = sorted(pieces.items(), key=lambda item: (order.index(item[1].data.dtype), item[0]))
    header: dict[str, Any] = {}
    places = {name: [one.shape, one.offset] for name, one in named if one.shape != tuple(one.data.shape)}
    if places:
        header["__metadata__"] = {"pieces": json.dumps(places, sort_keys=True)}
    end = 0
    for name, one in named:
        begin, end = end, end + one.data.numel() * one.data.element_size()
        header[name] = {"dtype": _KINDS[one.data.dtype], "shape": list(one.data.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with open(path, "wb") as stream:
        data = (one.data.reshape(-1).view(torch.uint8).numpy().data for _, one in named)
        parts: tuple[Any, ...] = (len(text).to_bytes(8, "little"), text, *data)
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), _CHUNK):
                chunk = view[start : start + _CHUNK]
                stream.write(chunk)
                digest.update(chunk)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


class Reader:
    """The tensors of one or several files, which may hold pieces.

    Args:
        paths: safetensors files.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._parts: dict[str, list[tuple[Any, tuple[int, ...], tuple[int, ...]]]] = {}  # (file, offset, shape)
        self._shapes: dict[str, tuple[int, ...]] = {}
        for path in paths:
            file = safe_open(path, "pt")
            parts = json.loads((file.metadata() or {}).get("pieces", "{}"))
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                shape = tuple(file.get_slice(name).get_shape())
                whole, offset = parts.get(name, (shape, (0,) * len(shape)))
                self._shapes[name] = tuple(whole)
                self._parts.setdefault(name, []).append((file, tuple(offset), shape))

    def __contains__(self, name: str) -> bool:
        return name in self._shapes

    def names(self) -> list[str]:
        """Return the names of the tensors."""
        return list(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the whole tensor."""
        return self._shapes[name]

    def whole(self) -> dict[str, Tensor]:
        """Return all tensors, whole."""
        return {name: self.slice(name, (0,) * len(shape), shape) for name, shape in self._shapes.items()}

    def slice(self, name: str, offset: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
        """Return the part of a tensor that begins at `offset` and has `shape`; reads only what overlaps it.

        Raises:
            UserError: the files do not hold all of it.
        """
        out: Tensor | None = None
        found = 0
        for file, begins, extent in self._parts[name]:
            low = tuple(map(max, offset, begins))
            high = tuple(min(a + n, b + m) for a, n, b, m in zip(offset, shape, begins, extent, strict=True))
            if any(a >= b for a, b in zip(low, high, strict=True)):
                continue
            if low == begins and extent == tuple(b - a for a, b in zip(low, high, strict=True)):
                part = file.get_tensor(name)
            else:
                cuts = tuple(slice(a - b, c - b) for a, c, b in zip(low, high, begins, strict=True))
                part = file.get_slice(name)[cuts]
            if part.shape == shape:
                return part
            if out is None:
                out = torch.empty(shape, dtype=part.dtype)
            out[tuple(slice(a - b, c - b) for a, c, b in zip(low, high, offset, strict=True))] = part
            found += part.numel()
        if out is None and math.prod(shape) == 0:
            return torch.empty(shape)
        if out is None or found != math.prod(shape):
            raise UserError(f"the checkpoint holds only {found} of {math.prod(shape)} numbers of '{name}'; remove it")
        return out

    def like(self, name: str, template: Tensor) -> Tensor:
        """Return the tensor in main memory; for a `DTensor` template this process's piece, as a `DTensor`.

        Args:
            template: a tensor with the shape and placement of the result.
        """
        if not isinstance(template, DTensor):
            return self.slice(name, (0,) * template.ndim, tuple(template.shape))
        out = template.detach().to("cpu", copy=True)
        assert isinstance(out, DTensor)
        piece = out.to_local()
        if piece.numel():
            piece.copy_(self.slice(name, _offset(template), tuple(piece.shape)))
        return out
