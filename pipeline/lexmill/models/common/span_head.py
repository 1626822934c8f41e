"""A head that points at a span of a text: the scores of each token as its first and as its last one.

Shape letters: B texts, T tokens, D width.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from lexmill.models.common.text_encoder import TextEncoder


class SpanHead(nn.Module):
    """Start and end logits of tokens: the encoder and one matrix (Devlin et al. 2019, section 4.2).

    Args:
        encoder: a `TextEncoder` (models.common); one with `n_segments` above 1 is given the segments.
    """

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(self._encoder.d_model, 2)
        nn.init.normal_(self.head.weight, std=self._encoder.init_std)
        nn.init.zeros_(self.head.bias)

    @property
    def _encoder(self) -> TextEncoder:
        return cast(TextEncoder, self.encoder)

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return self._encoder.max_positions

    def forward(self, tokens: Tensor, mask: Tensor, segments: Tensor) -> Tensor:
        """Return logits (B, T, 2), of the start and the end.

        Args:
            tokens: ids (B, T).
            mask: (B, T), true at real tokens.
            segments: (B, T), 0 at the question, 1 at the text.

        Raises:
            ValueError: the shapes differ, or a text is longer than the encoder's positions.
        """
        if not tokens.shape == mask.shape == segments.shape or tokens.ndim != 2:
            shapes = ", ".join(str(tuple(one.shape)) for one in (tokens, mask, segments))
            raise ValueError(f"tokens, mask and segments are {shapes}; each must be (B, T)")
        more = (segments,) if getattr(self.encoder, "n_segments", 1) > 1 else ()
        logits: Tensor = self.head(self._encoder.hidden(tokens, mask, *more))
        return logits
