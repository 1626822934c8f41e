"""The network: an encoder of `transformers`, built from its configuration, behind what heads here read of an encoder.

Only the library's own code runs; a checkpoint gives sizes and weights. Padding gets the padding token of the shape, by
which some shapes count their positions (RoBERTa's begin at pad_token_id + 1).

Cost: as the library computes it; a training step is about 6 * (parameters without embeddings) FLOPs a token, plus
attention's T^2.

Shape letters: B texts, T tokens, D width.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.models.common.text_encoder import TextEncoder
from lexmill.models.hugging_face_encoder.hugging_face import configuration, write_config
from lexmill.models.hugging_face_encoder.shape import Shape

_POOLED = ("roberta", "xlm-roberta", "mpnet")  # their classes have a pooler, which is left out


class HuggingFaceEncoder(TextEncoder):
    """Computes hidden states of texts.

    Raises:
        UserError: the padding token is none of the vocabulary.
    """

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        from transformers import AutoModel

        super().__init__()
        if shape.pad_token_id >= vocab_size:
            raise UserError(f"shape.pad_token_id is {shape.pad_token_id}, but the vocabulary has {vocab_size} tokens")
        self.shape = shape
        values = write_config(asdict(shape), vocab_size)
        del values["model_type"], values["architectures"]
        more: dict[str, Any] = {"add_pooling_layer": False} if shape.model_type in _POOLED else {}
        self.network = AutoModel.from_config(configuration(shape.model_type, values), **more)

    @property
    def d_model(self) -> int:
        """D."""
        return self.shape.hidden_size

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return self.shape.max_position_embeddings - self.shape.first_position

    @property
    def init_std(self) -> float:
        """The standard deviation of the initial weights."""
        return self.shape.initializer_range

    @property
    def n_segments(self) -> int:
        """How many segments it can tell apart; RoBERTa's kind was trained with one."""
        return 1 if self.shape.first_position else max(1, int(self.shape.option("type_vocab_size", 1)))

    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """See `TextEncoder.hidden`."""
        self.check(tokens)
        given = {"input_ids": tokens.masked_fill(~mask, self.shape.pad_token_id), "attention_mask": mask.long()}
        if segments is not None and self.n_segments > 1:
            given["token_type_ids"] = segments
        hidden: Tensor = self.network(**given).last_hidden_state
        return hidden
