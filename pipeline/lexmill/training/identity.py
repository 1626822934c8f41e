"""What a training's trajectory is a function of, beside its settings: code, inputs, seeds, library versions."""

from __future__ import annotations

from importlib.metadata import version

from lexmill.base.code import Code
from lexmill.models.declaration import family


def code(kind: str, family: str) -> str:
    """The digest of the code that the training of a kind and family can reach; the same as in code.json.

    It is computed and not read, so that a stage started by hand is right too.
    """
    return Code().stage("train", kind, family).digest


def libraries(name: str) -> dict[str, str]:
    """The versions of the libraries whose arithmetic, random numbers or ids a family's weights are a function of."""
    return {library: version(library) for library in ("torch", "lightning", "numpy", *family(name).libraries)}
