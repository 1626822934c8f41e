"""Load a package's model as data: weights by safetensors, everything else by JSON; no code of it is run.

Its contents are first checked against its fingerprint. Cost: one hash of the model, 0.6 s a gigabyte.

MLflow also loads a registered model through this module (`loader_module`), so the code that runs is the installed
lexmill, never code from the registry.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lexmill import kinds
from lexmill.compute.memory import keep_freed_memory
from lexmill.decoding.predictor import Predictor
from lexmill.registry import package
from lexmill.registry.served import ServedModel

Precision = Literal["float32", "bfloat16"]


def load_package(folder: str | Path, precision: Precision = "float32") -> Predictor:
    """Load the model of a package on the CPU.

    Args:
        precision: of its weights and computations, up to the logits. bfloat16 halves the memory traffic, and is faster
            for many texts at once if the processor has instructions for it; it rounds to three digits, so of two
            nearly equal tokens the other may be chosen, and a text may depend on the others in its batch.

    Raises:
        UserError: the folder is no package, or was changed since it was made.
    """
    from lexmill import tokenizers
    from lexmill.models import folder as models

    keep_freed_memory()
    description = package.verify(folder)
    inside = Path(folder) / package.MODEL
    _, module = models.load(inside)
    if precision == "bfloat16":
        module = module.bfloat16()
    answering: type[Predictor] = kinds.find(description["kind"]).module("predict").Predictor
    return answering(description["name"], description["config"], module, tokenizers.load(inside / models.TOKENIZER))


def _load_pyfunc(data_path: str) -> ServedModel:
    return ServedModel(load_package(data_path))
