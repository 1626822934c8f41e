"""A package's model, loaded as data: weights by safetensors, everything else by JSON; nothing in it is run.

MLflow loads a registered model through this module too (`loader_module`), so the code that runs is the installed
lexmill, never code from the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lexmill.errors import UserError
from lexmill.registry import package
from lexmill.registry.predictor import Predictor


def load_package(folder: str | Path) -> Predictor:
    """The model of a package, on the CPU.

    Raises:
        UserError: the folder is no package, or a file of it is missing or broken.
    """
    from lexmill import tokenizers
    from lexmill.models import folder as models
    from lexmill.models.bert import tokenizer as pretrained

    description = package.read(folder)
    inside = Path(folder) / package.MODEL
    _, module = models.load(inside)
    load_tokenizer = pretrained.load if description["kind"] == "classifier" else tokenizers.load
    return Predictor(description, module, load_tokenizer(inside / models.TOKENIZER))


class ServedModel:
    """A predictor as `mlflow.pyfunc` wants it: tables and arrays in, too."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> list[Any]:
        """One answer a text; see `Predictor.predict`."""
        return self.predictor.predict(as_texts(model_input), params)


def as_texts(model_input: Any) -> list[str]:
    """The texts in what MLflow hands over: one text, a list, or a table or array with one column.

    Raises:
        UserError: it has more than one column.
    """
    if isinstance(model_input, str):
        return [model_input]
    if hasattr(model_input, "to_numpy"):
        model_input = model_input.to_numpy()
    if getattr(model_input, "ndim", 1) > 1:
        if model_input.shape[1] != 1:
            raise UserError(f"the input has {model_input.shape[1]} columns; it must have one, the text")
        model_input = model_input[:, 0]
    return list(model_input.tolist()) if hasattr(model_input, "tolist") else list(model_input)


def _load_pyfunc(data_path: str) -> ServedModel:
    return ServedModel(load_package(data_path))
