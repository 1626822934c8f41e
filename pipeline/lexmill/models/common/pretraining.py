"""Heads under which an encoder is pre-trained: masked tokens, the order of two segments, replaced tokens.

The weights of the masked head have the names that published BERT models give them below `cls.predictions`, those of the
head that finds replaced tokens the names that ELECTRA gives them below `discriminator_predictions`.

Cost: the matrix of the masked head is read at the chosen positions alone, 2 * M * E * V FLOPs.

Shape letters: B texts, T tokens, D width, E width of the token embedding, M chosen positions, V vocabulary.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill.base.errors import UserError
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.models.common.text_encoder import TextEncoder
from lexmill.models.input_embeddings import embedding_of

_EPS = 1e-12  # of the norm on encoders that do not say what theirs adds to the variance


class Transform(nn.Module):
    """A matrix, GELU, a norm."""

    def __init__(self, width: int, out: int, std: float, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, out)
        self.LayerNorm = nn.LayerNorm(out, eps=eps)
        nn.init.normal_(self.dense.weight, std=std)
        nn.init.zeros_(self.dense.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., E)."""
        out: Tensor = self.LayerNorm(functional.gelu(self.dense(hidden)))
        return out


class ReplacedHead(nn.Module):
    """The logit of each token's being a replaced one: a matrix, GELU, a row."""

    def __init__(self, width: int, std: float) -> None:
        super().__init__()
        self.dense, self.dense_prediction = nn.Linear(width, width), nn.Linear(width, 1)
        for layer in (self.dense, self.dense_prediction):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (B, T)."""
        out: Tensor = self.dense_prediction(functional.gelu(self.dense(hidden))).squeeze(-1)
        return out


class MaskedHead(nn.Module):
    """Logits of tokens from hidden states: a transform, then the encoder's token embedding as a matrix, and a bias.

    Args:
        encoder: its width, and what its norms add to the variance, are the transform's.
        embedding: the encoder's token embedding, (V, E).
    """

    def __init__(self, encoder: TextEncoder, embedding: Tensor) -> None:
        super().__init__()
        size, narrow = embedding.shape
        eps = getattr(encoder.shape, "layer_norm_eps", _EPS)
        self.transform = Transform(encoder.d_model, narrow, encoder.init_std, eps)
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, hidden: Tensor, embedding: Tensor) -> Tensor:
        """(M, D) and (V, E) -> (M, V)."""
        return functional.linear(self.transform(hidden), embedding, self.bias)


class PairHead(nn.Module):
    """Two logits of a text, from its first token: 0, the second segment follows; 1, it does not."""

    def __init__(self, width: int, std: float) -> None:
        super().__init__()
        self.pooler = nn.Linear(width, width)
        self.order = nn.Linear(width, 2)
        for layer in (self.pooler, self.order):
            nn.init.normal_(layer.weight, std=std)
            nn.init.zeros_(layer.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """(B, T, D) -> (B, 2)."""
        out: Tensor = self.order(torch.tanh(self.pooler(hidden[:, 0])))
        return out


class MaskedLanguageModel(nn.Module):
    """An encoder under a masked head (Devlin et al. 2019) and, if `pairs`, one for the order of two segments.

    Raises:
        UserError: the encoder has no token embedding, which the head shares.
    """

    def __init__(self, encoder: nn.Module, pairs: bool = False) -> None:
        super().__init__()
        self.encoder = cast(TextEncoder, encoder)
        self.head = MaskedHead(self.encoder, self.embedding)
        self.pair_head = PairHead(self.encoder.d_model, self.encoder.init_std) if pairs else None

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return self.encoder.max_positions

    @property
    def embedding(self) -> Tensor:
        """The encoder's token embedding, (V, E)."""
        return _embedding(self.encoder).weight

    def forward(
        self, tokens: Tensor, mask: Tensor, chosen: Tensor, segments: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Return logits (M, V) at the M positions where `chosen` (B, T) is true, and of the pairs (B, 2)."""
        hidden = self.encoder.hidden(tokens, mask, segments)
        logits = self.head(hidden[chosen], self.embedding)
        return logits, None if self.pair_head is None else self.pair_head(hidden)


class ReplacedTokenDetection(nn.Module):
    """An encoder that finds the tokens which a small generator replaced (Clark et al. 2020).

    The generator learns the masked tokens; no gradient goes from the encoder to it. If both have embeddings of one
    width, they share the token embedding.

    Args:
        encoder: the one that is kept.
        generator: under its masked head.
    """

    def __init__(self, encoder: nn.Module, generator: MaskedLanguageModel) -> None:
        super().__init__()
        self.encoder, self.generator = cast(TextEncoder, encoder), generator
        self.head = ReplacedHead(self.encoder.d_model, self.encoder.init_std)
        own = _embedding(encoder).weight
        if own.shape == generator.embedding.shape:
            _embedding(generator.encoder).weight = own

    @property
    def max_positions(self) -> int:
        """The longest text that both read, in tokens."""
        return min(self.encoder.max_positions, self.generator.max_positions)

    def forward(self, tokens: Tensor, mask: Tensor, labels: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Let the generator replace masked tokens, and find them.

        Args:
            tokens, mask: (B, T), with masked tokens; true at real tokens.
            labels: (B, T), the right tokens at the M masked positions, elsewhere `IGNORED`.
            noise: (B, T), uniform, which draws the generator's tokens.

        Returns:
            Its logits (M, V), the logit of each token's being a replaced one (B, T), and which are (B, T): a token that
            the generator got right is none.
        """
        chosen = labels != IGNORED
        logits, _ = self.generator(tokens, mask, chosen)
        original = torch.where(chosen, labels, tokens)
        read = original.masked_scatter(chosen, draw(logits.detach(), noise[chosen]))
        return logits, self.find(read, mask), (read != original) & mask

    def find(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return the logit of each token's being a replaced one, (B, T)."""
        out: Tensor = self.head(self.encoder.hidden(tokens, mask))
        return out


def draw(logits: Tensor, noise: Tensor) -> Tensor:
    """Return a token of each row's distribution, (M, V) and uniform noise (M,) -> (M,): the inverse of its sums."""
    reached = logits.double().softmax(1).cumsum(1)  # (M, V)
    found = torch.searchsorted(reached, noise.double()[:, None], right=True)[:, 0]
    return found.clamp(max=logits.shape[1] - 1)


def _embedding(encoder: nn.Module) -> nn.Embedding:
    """Return an encoder's token embedding, of weight (V, E); raise `UserError` where it has none."""
    found: nn.Embedding | None = embedding_of(encoder, missing_ok=True)
    if found is None:
        raise UserError("an encoder without a token embedding cannot be pre-trained: the masked head shares it")
    return found
