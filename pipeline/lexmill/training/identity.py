"""What a training's trajectory is a function of, beside its settings: code, inputs, seeds, library versions."""

from __future__ import annotations

from importlib.metadata import version

from lexmill.base.code import Code


def code(kind: str, family: str) -> str:
    """The digest of the code that the training of a kind and family can reach; the same as in code.json.

    It is computed and not read, so that a stage started by hand is right too.
    """
    return Code().stage("train", kind, family).digest


def libraries() -> dict[str, str]:
    """The versions of the libraries whose arithmetic or random numbers the weights are a function of."""
    return {name: version(name) for name in ("torch", "lightning", "numpy")}
