"""A text classifier on BERT (Devlin et al. 2019): the encoder of `transformers`, mean pooling, dropout, one matrix.

The mean over the real tokens is taken rather than the first token: sentence encoders are trained that way, and a
plain BERT loses nothing by it. The encoder's own pooler is left out: a matrix that nothing would use.

Shape letters: B texts, T tokens, D width, L labels.
Cost: a training step is about 6 * (parameters without embeddings) FLOPs a token, plus attention's T^2.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from lexmill.base.errors import UserError

# What of a Hugging Face config makes the encoder what it is; the rest says where it came from.
SHAPE = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)


class BertClassifier(nn.Module):
    """Labels' logits of token sequences.

    Args:
        shape: the entries of `SHAPE`.
        vocab_size: the encoder's vocabulary.
        labels: how many labels.
        dropout: on the pooled vector, before the classification head.
    """

    def __init__(self, shape: Mapping[str, Any], vocab_size: int, labels: int, dropout: float) -> None:
        super().__init__()
        config = BertConfig(**shape, vocab_size=vocab_size)
        config._attn_implementation = "sdpa"
        self.max_positions: int = config.max_position_embeddings
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(config.hidden_size, labels)
        nn.init.normal_(self.head.weight, std=config.initializer_range)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Logits (B, L) from token ids (B, T) and a mask (B, T), True at real tokens; raises as `features`."""
        logits: Tensor = self.head(self.dropout(self.features(tokens, mask)))
        return logits

    def features(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """What the head reads: the mean (B, D) of the encoder's output over the real tokens.

        Raises:
            ValueError: the shapes differ, or a text is longer than the encoder's positions.
        """
        if tokens.shape != mask.shape or tokens.ndim != 2:
            raise ValueError(f"tokens are {tuple(tokens.shape)}, mask is {tuple(mask.shape)}; both must be (B, T)")
        if tokens.shape[1] > self.max_positions:
            raise ValueError(f"{tokens.shape[1]} tokens, but the encoder has {self.max_positions} positions")
        hidden = self.encoder(input_ids=tokens, attention_mask=mask.long()).last_hidden_state  # (B, T, D)
        weights = mask.unsqueeze(-1).to(hidden.dtype)  # (B, T, 1)
        pooled: Tensor = (hidden * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
        return pooled


def read_shape(checkpoint: str | Path) -> tuple[dict[str, Any], int]:
    """The shape and the vocabulary size of a pretrained encoder in Hugging Face format.

    Raises:
        UserError: there is no such checkpoint, or it is no BERT.
    """
    path = Path(checkpoint) / "config.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError("the checkpoint has no config.json; it must be a model in Hugging Face format", path) from None
    except ValueError as error:
        raise UserError(f"not a model's config: {error}", path) from None
    if not isinstance(data, dict) or data.get("model_type") != "bert":
        found = data.get("model_type") if isinstance(data, dict) else None
        raise UserError(f"model_type is {found!r}; a classifier starts from a 'bert' checkpoint", path)
    config = BertConfig(**{key: data[key] for key in (*SHAPE, "vocab_size") if key in data})
    return {key: getattr(config, key) for key in SHAPE}, config.vocab_size


def from_checkpoint(
    checkpoint: str | Path, labels: Sequence[str], dropout: float
) -> tuple[BertClassifier, dict[str, Any]]:
    """A classifier whose encoder is a pretrained one and whose head is new (drawn from torch's random state).

    Weights of the checkpoint beside the encoder (a pooler, a head for masked words) are left aside.

    Returns:
        The module, and the part of a model folder's config that builds it again.

    Raises:
        UserError: the checkpoint is missing, no BERT, or lacks a weight of the encoder.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    shape, vocab_size = read_shape(checkpoint)
    path = Path(checkpoint) / "model.safetensors"
    try:
        state = load_file(path)
    except FileNotFoundError:
        raise UserError("the checkpoint has no model.safetensors; weights are read in no other format", path) from None
    except SafetensorError as error:
        raise UserError(f"the checkpoint's weights cannot be read: {error}", path) from None
    module = BertClassifier(shape, vocab_size, len(labels), dropout)
    wanted = module.encoder.state_dict()
    found = {name: state[known] for name in wanted if (known := _name_in(state, name)) is not None}
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise UserError(f"the checkpoint lacks {len(missing)} weights of its encoder, such as {missing[0]}", path)
    wrong = sorted(name for name in wanted if wanted[name].shape != found[name].shape)
    if wrong:
        name = wrong[0]
        raise UserError(
            f"{name} has the shape {tuple(found[name].shape)}, by config.json it is {tuple(wanted[name].shape)}", path
        )
    module.encoder.load_state_dict(found)
    config = {"family": "bert", "shape": shape, "vocab_size": vocab_size, "labels": list(labels), "dropout": dropout}
    return module, config


def _name_in(state: Mapping[str, torch.Tensor], name: str) -> str | None:
    """The name of an encoder's weight in a checkpoint: bare, or under `bert.` where a head was saved with it.

    Checkpoints of the first BERT release call a norm's weight and bias gamma and beta.
    """
    old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
    return next((known for known in (name, f"bert.{name}", old, f"bert.{old}") if known in state), None)
