"""BERT in Hugging Face format: the same weight names as here, alone or inside a model with a head."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from lexmill.models.bert.shape import Shape
from lexmill.models.common import electra

MODEL_TYPE = "bert"

_OURS = ("embeddings.", "encoder.")
_INDEX = "embeddings.position_ids"  # a table 0, 1, 2, ... that older files hold


def read_shape(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `Shape`'s fields from config.json; missing ones have the default of `transformers`."""
    return {each.name: config.get(each.name, each.default) for each in fields(Shape)}


def read_state(shape: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the encoder's weights, without a pooler or heads.

    With a head, the encoder's names start with `bert.`; the first release calls a norm's weight gamma, its bias beta.
    """
    state = {}
    for there, tensor in tensors.items():
        name = _present(there).removeprefix("bert.")
        if name.startswith(_OURS) and name != _INDEX:
            state[name] = tensor
    return state


def _present(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def write_config(shape: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return the config.json of a BertForTokenClassification with the same encoder."""
    return {
        **shape,
        "architectures": ["BertForTokenClassification"],
        "model_type": MODEL_TYPE,
        "vocab_size": vocab_size,
        "position_embedding_type": "absolute",
    }


def write_tensors(shape: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the encoder's weights under the names there."""
    return {f"bert.{name}": tensor for name, tensor in state.items()}


def span_model(shape: Mapping[str, Any]) -> str:
    """Return the class there of an encoder under a head that points at spans."""
    return "BertForQuestionAnswering"


def write_span_head(shape: Mapping[str, Any], weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """Return the weights of a head that points at spans, (2, D) and (2,), under the names there."""
    return {"qa_outputs.weight": weight, "qa_outputs.bias": bias}


def write_head(shape: Mapping[str, Any], weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """Return the weights of a linear head over hidden states, (L, D) and (L,), under the names there."""
    return {"classifier.weight": weight, "classifier.bias": bias}


_HEADS = {
    "encoder.": "bert.",
    "head.": "cls.predictions.",
    "pair_head.pooler.": "bert.pooler.dense.",
    "pair_head.order.": "cls.seq_relationship.",
}


def write_pretraining(shape: Mapping[str, Any], state: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """Return the class there of an encoder under the heads that it is pre-trained with, and its weights there."""
    renamed = {}
    for name, tensor in state.items():
        ours = next(prefix for prefix in _HEADS if name.startswith(prefix))
        renamed[_HEADS[ours] + name.removeprefix(ours)] = tensor
    pairs = any(name.startswith("pair_head.") for name in state)
    return "BertForPreTraining" if pairs else "BertForMaskedLM", renamed


def write_replaced(
    shape: Mapping[str, Any], generator: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[electra.Written, electra.Written]:
    """Return config.json and weights of an encoder that finds replaced tokens, and of its generator: an ELECTRA is a
    BERT. Raises like `electra.write`.
    """
    found, small = ({**sizes, "embedding_size": sizes["hidden_size"]} for sizes in (shape, {**shape, **generator}))
    return electra.write(found, small, state)


def read_pretraining(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the heads that a model was pre-trained with, under the names here."""
    found = {}
    for there, tensor in tensors.items():
        name = _present(there)
        for ours, theirs in _HEADS.items():
            if ours != "encoder." and name.startswith(theirs) and ".decoder." not in name:
                found[ours + name.removeprefix(theirs)] = tensor
    return found
