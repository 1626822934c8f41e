"""An encoder that finds replaced tokens and its generator (Clark et al. 2020) under the names that ELECTRA has in
transformers: `ElectraForPreTraining` and `ElectraForMaskedLM`.

Both have one form here and there: a matrix, GELU and a row on each hidden state; a matrix, GELU, a norm, the token
embedding and a bias.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lexmill.base.errors import UserError

Written = tuple[dict[str, Any], dict[str, Tensor]]
"""config.json and weights."""

MODEL_TYPE = "electra"
_ENCODER, _DETECTOR = "electra.", {"head.": "discriminator_predictions."}
_GENERATOR = {"head.transform.": "generator_predictions.", "head.bias": "generator_lm_head.bias"}


def write(
    detector: Mapping[str, Any], generator: Mapping[str, Any], state: Mapping[str, Tensor], inside: str = ""
) -> tuple[Written, Written]:
    """Return what is written of the encoder and of its generator.

    Args:
        detector, generator: their sizes, as an `ElectraConfig` has them.
        state: of a `ReplacedTokenDetection`.
        inside: prefix of an encoder's weights, which those there do not have.

    Raises:
        UserError: the encoder's activation is not GELU, which its head there would have too.
    """
    if (activation := detector.get("hidden_act", "gelu")) != "gelu":
        raise UserError(
            f"an encoder that finds replaced tokens with shape.hidden_act: {activation} cannot be exported: in"
            " transformers its head would have that activation too, here it has GELU"
        )
    shared = f"encoder.{inside}embeddings.word_embeddings.weight"
    whole = {f"generator.{shared}": state[shared], **state}  # stored once where both have it
    own = {name.removeprefix("generator."): one for name, one in whole.items() if name.startswith("generator.")}
    return (
        ({**detector, **_named("ElectraForPreTraining")}, _renamed(state, inside, _DETECTOR)),
        ({**generator, **_named("ElectraForMaskedLM")}, _renamed(own, inside, _GENERATOR)),
    )


def _named(architecture: str) -> dict[str, Any]:
    return {"model_type": MODEL_TYPE, "architectures": [architecture], "tie_word_embeddings": True}


def _renamed(state: Mapping[str, Tensor], inside: str, heads: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the weights of an encoder and its heads under their names there, without other parts."""
    found: dict[str, Tensor] = {}
    for ours, theirs in {f"encoder.{inside}": _ENCODER, **heads}.items():
        found |= {theirs + name.removeprefix(ours): one for name, one in state.items() if name.startswith(ours)}
    return found


def read_heads(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the head of an `ElectraForPreTraining`, or of an `ElectraForMaskedLM`, as named here."""
    found: dict[str, Tensor] = {}
    for ours, theirs in {**_DETECTOR, **_GENERATOR}.items():
        found |= {ours + name.removeprefix(theirs): one for name, one in tensors.items() if name.startswith(theirs)}
    return found
