"""What determines a training's trajectory besides its settings and inputs: code and library versions."""

from __future__ import annotations

from importlib.metadata import version

from lexmill.base.code import Code
from lexmill.models.declaration import family


def code(kind: str, family: str) -> str:
    """Return the digest in code.json of the code that trains a kind and family, computed for stages started by hand."""
    return Code().stage("train", kind, family).digest


def libraries(name: str) -> dict[str, str]:
    """Return the versions of the libraries whose arithmetic, random numbers or ids determine a family's weights."""
    return {library: version(library) for library in ("torch", "lightning", "numpy", *family(name).libraries)}
