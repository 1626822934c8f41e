"""A packaged model as MLflow serves it: tables and arrays in, one request at a time, errors as sentences.

`mlflow models serve` runs requests in threads. The network's kernels would then fight for the same cores, each request
with a cache of its own, and a tokenizer may hold a setting that threads would change under each other. So
one request is answered at a time, the others wait: 200 at once give what single ones give, in the memory of one.

What a caller did wrong reaches them as status 400 with our sentence. MLflow itself drops a param that the model does
not have, with a warning in its log; here that is an error too, for a misspelt temperature must not pass in silence.
"""

from __future__ import annotations

import ast
import logging
import os
import re
import threading
from collections.abc import Mapping
from typing import Any

from lexmill.base.errors import LexmillError, UserError
from lexmill.base.strict import nearest
from lexmill.decoding.predictor import Predictor

# No request may occupy a server for hours.
MOST_TEXTS = 10_000
MOST_CHARACTERS = 1_000_000  # of one text
_SERVING = "_MLFLOW_IS_IN_SERVING_ENVIRONMENT"  # set by MLflow's scoring server
_IGNORED = re.compile(r"Unrecognized params (\[.*?\]) are ignored for inference\. Supported params are: (.*?)\. To")
_NOT_TAKEN = re.compile(r"This model does not define a params schema\. Ignoring (?:provided|invalid) params")
_known_params: set[frozenset[str]] = set()


class ServedModel:
    """A predictor as `mlflow.pyfunc` wants it."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._one = threading.Lock()
        _refuse_unknown_params(predictor.defaults)

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> list[Any]:
        """Return one answer a text; see `Predictor.predict`.

        Raises:
            MlflowException: INVALID_PARAMETER_VALUE, with the message.
        """
        try:
            texts = as_texts(model_input)
            if _serving():
                _check_request(texts, params or {}, self.predictor.most)
            with self._one:
                return self.predictor.predict(texts, params)
        except LexmillError as error:
            raise _refused(str(error)) from error


def as_texts(model_input: Any) -> list[str]:
    """Return the texts of MLflow's input: one text, a list, or a table or array with one column.

    Raises:
        UserError: it is something else, or has more than one column.
    """
    if isinstance(model_input, str):
        return [model_input]
    if isinstance(model_input, Mapping):
        if len(model_input) != 1:
            fields = ", ".join(map(str, model_input)) or "none"
            raise UserError(f"the input has {len(model_input)} fields ({fields}); it must have one, the text")
        return as_texts(next(iter(model_input.values())))
    if hasattr(model_input, "to_numpy"):
        model_input = model_input.to_numpy()
    dimensions = getattr(model_input, "ndim", 1)
    if dimensions == 0:
        return [model_input.item()]
    if dimensions > 1:
        if dimensions > 2 or model_input.shape[1] != 1:
            raise UserError(f"the input has {model_input.shape[1]} columns; it must have one, the text")
        model_input = model_input[:, 0]
    return list(model_input.tolist()) if hasattr(model_input, "tolist") else list(model_input)


def _serving() -> bool:
    return os.environ.get(_SERVING) == "true"


def _check_request(texts: list[str], params: Mapping[str, Any], limits: Mapping[str, int]) -> None:
    if not texts:
        raise UserError("there is no text in the request")
    if len(texts) > MOST_TEXTS:
        raise UserError(f"{len(texts):,} texts in one request; send at most {MOST_TEXTS:,}")
    longest = max((len(text) for text in texts if isinstance(text, str)), default=0)
    if longest > MOST_CHARACTERS:
        raise UserError(f"a text of {longest:,} characters; send at most {MOST_CHARACTERS:,} in one")
    for name, most in limits.items():
        if name in params and params[name] > most:
            raise UserError(f"{name}: {params[name]:,} is too large for a server; at most {most:,}")


def _refused(sentence: str) -> Exception:
    from mlflow.exceptions import MlflowException

    class Refused(MlflowException):
        """Keeps its sentence: MLflow's server would put the whole input before it."""

        @property
        def message(self) -> str:
            return sentence

        @message.setter
        def message(self, _: str) -> None:
            pass

    error = Refused.invalid_parameter_value(sentence)
    assert isinstance(error, Exception)
    return error


def _refuse_unknown_params(defaults: Mapping[str, Any]) -> None:
    """Make params that are unknown to a model with these params an error in this process."""
    _known_params.add(frozenset(defaults))
    logger = logging.getLogger("mlflow.models.utils")
    logger.setLevel(logging.WARNING)  # else the warning that the filter reads is not made
    if _no_unknown_params not in logger.filters:
        logger.addFilter(_no_unknown_params)


def _no_unknown_params(record: logging.LogRecord) -> bool:
    """Filter MLflow's log: raise an error for its warning on unknown params, for our models only.

    Raises:
        MlflowException: INVALID_PARAMETER_VALUE.
    """
    text = record.getMessage()
    found = _IGNORED.search(text)
    # A server holds one model, so it is ours; in another process the model may be anyone's.
    if found and (frozenset(supported := ast.literal_eval(found[2])) in _known_params or _serving()):
        unknown = sorted(ast.literal_eval(found[1]))
        raise _refused(f"{', '.join(unknown)}: no such param{nearest(unknown[0], supported)}")
    if _serving() and _NOT_TAKEN.search(text):
        raise _refused("this model takes no params")
    return True
