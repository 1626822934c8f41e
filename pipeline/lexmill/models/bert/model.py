"""BERT (Devlin et al. 2019): the encoder of `transformers`, without its pooler, which nothing here uses.

Cost: a training step is about 6 * (parameters without embeddings) FLOPs a token, plus attention's T^2.

Shape letters: B texts, T tokens, D width.
"""

from __future__ import annotations

from dataclasses import asdict

from torch import Tensor
from transformers import BertConfig, BertModel

from lexmill.models.bert.shape import Shape


class Bert(BertModel):
    """Computes hidden states of texts; weights are named as in `transformers`."""

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        config = BertConfig(**asdict(shape), vocab_size=vocab_size)
        config._attn_implementation = "sdpa"
        super().__init__(config, add_pooling_layer=False)
        self.shape = shape

    @property
    def d_model(self) -> int:
        """D."""
        return self.shape.hidden_size

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return self.shape.max_position_embeddings

    @property
    def init_std(self) -> float:
        """The standard deviation of the initial weights."""
        return self.shape.initializer_range

    def hidden(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, to (B, T, D).

        Raises:
            ValueError: a text is longer than the positions.
        """
        if tokens.shape[1] > self.max_positions:
            raise ValueError(f"{tokens.shape[1]} tokens, but the encoder has {self.max_positions} positions")
        out: Tensor = self(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
        return out
