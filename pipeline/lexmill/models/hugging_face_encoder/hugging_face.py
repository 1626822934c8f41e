"""These encoders in Hugging Face format: the weights' names are those there, below `network.`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.base.outside import parsing
from lexmill.base.shown import value_text
from lexmill.models.common import electra
from lexmill.models.common.hugging_face import check
from lexmill.models.hugging_face_encoder.shape import OPTIONS, Shape

# Of each model type: how its classes begin, and the prefix of the encoder in a model with a head.
CLASSES = {
    "roberta": ("Roberta", "roberta."),
    "xlm-roberta": ("XLMRoberta", "roberta."),
    "distilbert": ("DistilBert", "distilbert."),
    "electra": ("Electra", "electra."),
    "mpnet": ("MPNet", "mpnet."),
    "deberta-v2": ("DebertaV2", "deberta."),
    "modernbert": ("ModernBert", "model."),
}
# Names of sizes where they are not a BERT's; None: it has no such size.
_NAMES: dict[str, dict[str, str | None]] = {
    "distilbert": {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": None,
    },
    "modernbert": {
        "hidden_act": "hidden_activation",
        "hidden_dropout_prob": "mlp_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "norm_eps",
    },
}
_THETAS = {"global_rope_theta": "full_attention", "local_rope_theta": "sliding_attention"}
_PREFIX = "network."
_IGNORED = ("position_ids", "pooler.dense.weight", "pooler.dense.bias")


def _sizes(model_type: str) -> dict[str, str]:
    """Return the name of each size here -> its name there."""
    names = _NAMES.get(model_type, {})
    every = [each.name for each in fields(Shape) if each.name not in ("model_type", "options")]
    return {name: there for name in every if (there := names.get(name, name)) is not None}


def configuration(model_type: str, values: Mapping[str, Any]) -> Any:
    """Return the configuration of `transformers` of such a model."""
    import transformers

    return getattr(transformers, f"{CLASSES[model_type][0]}Config")(**values)


def read_shape(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return `Shape`'s fields from config.json; missing ones have the default of `transformers`."""
    model_type = config["model_type"]
    check(config, {"position_embedding_type": ("absolute",), "is_decoder": (False,)})
    with parsing("config.json cannot be read"):
        there = configuration(model_type, {key: value for key, value in config.items() if key != "model_type"})
    shape = {name: getattr(there, key) for name, key in _sizes(model_type).items()}
    if model_type == "modernbert":
        options = _modern(there)
    else:
        options = {name: getattr(there, name, default) for name, default in OPTIONS[model_type].items()}
    if model_type == "deberta-v2":
        options["pos_att_type"] = "|".join(sorted(options["pos_att_type"] or ()))
        check(config, {"embedding_size": (there.hidden_size,)})
    return {"model_type": model_type, **shape, "options": options}


def _modern(there: Any) -> dict[str, Any]:
    """Return the options of a ModernBERT, whose configuration lists its layers and nests its wavelengths."""
    layers, rope = list(there.layer_types), there.rope_parameters
    every = next((i for i, one in enumerate(layers) if i and one == "full_attention"), len(layers))
    if layers != _layers(every, len(layers)):
        raise UserError("config.json: layer_types; only a full_attention every so many layers is computed here")
    for kind, of in rope.items():
        if of["rope_type"] != "default":
            raise UserError(f"config.json: rope_parameters.{kind}.rope_type is {value_text(of['rope_type'])}")
    found = {name: getattr(there, name) for name in ("local_attention", "norm_bias", "attention_bias", "mlp_bias")}
    thetas = {name: float(rope[kind]["rope_theta"]) for name, kind in _THETAS.items()}
    return {"global_attn_every_n_layers": every, **thetas, **found}


def _layers(every: int, n_layer: int) -> list[str]:
    return ["sliding_attention" if i % every else "full_attention" for i in range(n_layer)]


def write_config(shape: Mapping[str, Any], vocab_size: int) -> dict[str, Any]:
    """Return the config.json of a model for token classification with the same encoder."""
    model_type = shape["model_type"]
    written = {there: shape[here] for here, there in _sizes(model_type).items()}
    options = {**OPTIONS[model_type], **shape["options"]}
    if model_type == "modernbert":
        every = options.pop("global_attn_every_n_layers")
        options["layer_types"] = _layers(every, shape["num_hidden_layers"])
        options["rope_parameters"] = {
            kind: {"rope_type": "default", "rope_theta": options.pop(name)} for name, kind in _THETAS.items()
        }
        options["embedding_dropout"] = shape["hidden_dropout_prob"]
        options |= dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))
    if model_type == "deberta-v2":
        options["pos_att_type"] = options["pos_att_type"].split("|") if options["pos_att_type"] else []
    return {
        **written,
        **options,
        "architectures": [f"{CLASSES[model_type][0]}ForTokenClassification"],
        "model_type": model_type,
        "vocab_size": vocab_size,
    }


def read_state(shape: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the encoder's weights, without a pooler or heads; with a head, their names there have a prefix."""
    prefix = CLASSES[shape["model_type"]][1]
    if any(name.startswith(prefix) for name in tensors):
        tensors = {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
    found = {name: one for name, one in tensors.items() if not name.endswith(_IGNORED)}
    return {f"{_PREFIX}{_present(name)}": one for name, one in found.items()}


def _present(name: str) -> str:
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def write_tensors(shape: Mapping[str, Any], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the encoder's weights under the names there."""
    prefix = CLASSES[shape["model_type"]][1]
    return {f"{prefix}{name.removeprefix(_PREFIX)}": tensor for name, tensor in state.items()}


def span_model(shape: Mapping[str, Any]) -> str:
    """Return the class there of an encoder under a head that points at spans."""
    return f"{CLASSES[shape['model_type']][0]}ForQuestionAnswering"


def write_span_head(shape: Mapping[str, Any], weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """Return the weights of a head that points at spans, (2, D) and (2,), under the names there.

    Raises:
        UserError: the model there has more than a matrix between hidden states and logits.
    """
    return _linear(shape, "qa_outputs", weight, bias)


def write_head(shape: Mapping[str, Any], weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    """Return the weights of a linear head over hidden states, (L, D) and (L,), under the names there; raises alike."""
    return _linear(shape, "classifier", weight, bias)


def _linear(shape: Mapping[str, Any], name: str, weight: Tensor, bias: Tensor) -> dict[str, Tensor]:
    if shape["model_type"] == "modernbert":
        raise UserError("transformers puts one more layer and a norm under the head of a modernbert")
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def write_pretraining(shape: Mapping[str, Any], state: Mapping[str, Tensor]) -> tuple[str, dict[str, Tensor]]:
    """Refuse the heads that an encoder is pre-trained with here, which are a BERT's.

    Raises:
        UserError: always.
    """
    raise _other_heads(shape)


def write_replaced(
    shape: Mapping[str, Any], generator: Mapping[str, Any], state: Mapping[str, Tensor]
) -> tuple[electra.Written, electra.Written]:
    """Return config.json and weights of an ELECTRA that finds replaced tokens, and of its generator.

    Raises:
        UserError: it is another encoder; or as `electra.write`.
    """
    if shape["model_type"] != electra.MODEL_TYPE:
        raise _other_heads(shape)
    size = len(state[f"encoder.{_PREFIX}embeddings.word_embeddings.weight"])
    found, small = (write_config(sizes, size) for sizes in (shape, {**shape, **generator}))
    return electra.write(found, small, state, _PREFIX)


def _other_heads(shape: Mapping[str, Any]) -> UserError:
    return UserError(f"transformers has other heads for the pre-training of a {shape['model_type']}")


def read_pretraining(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the heads that an ELECTRA was pre-trained with, under the names here; {}: another model."""
    return electra.read_heads(tensors)
