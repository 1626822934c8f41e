"""What every encoder-decoder shares: embeddings, the output matrix, and how decoder rows share a source.

A target starts with the begin token and ends with the end token; a source ends with the end token.

Shape letters: B rows, S source length, T target length, D width of the embedding and of what is projected, M width of
the memory, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal, Protocol

from torch import Tensor, nn

from lexmill.models.common.dropout import Dropout

Tying = Literal["three_way", "decoder", "none"]


class Cache(Protocol):
    """A decoder's state after the target tokens so far."""

    @property
    def length(self) -> int:
        """Target positions seen so far."""

    @property
    def sources(self) -> int:
        """The number of sources."""

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep these rows, in that order (repeats allowed), and these sources, if some are done.

        Args:
            rows: (new B,) int64.
            sources: (new sources,) int64; None: all stay.
        """


class EncoderDecoder(nn.Module, ABC):
    """Maps source sentences to target sentences; a family defines `encode`, `new_cache` and `decode_cached`.

    `embedding` is the target's, and the source's where `source_embedding` is None.

    Args:
        vocab_size: entries of the joint vocabulary.
        d_embedding: D.
        dropout: on embeddings.
        max_positions: the longest source, end token included, and the longest target, begin token included.
        tied: which matrices are one: the embeddings of source and target and the output's (three_way), the target's and
            the output's (decoder), or none.
    """

    output_bias: Tensor | None  # (V,), fixed: an imported network may have one

    def __init__(
        self, vocab_size: int, d_embedding: int, dropout: float, max_positions: int, tied: Tying = "three_way"
    ) -> None:
        super().__init__()
        self.vocab_size, self.max_positions = vocab_size, max_positions
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.source_embedding = None if tied == "three_way" else nn.Embedding(vocab_size, d_embedding)
        self.head = nn.Linear(d_embedding, vocab_size, bias=False) if tied == "none" else None
        self.dropout = Dropout(dropout)
        self.output_bias = None

    @abstractmethod
    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """(B, S) int64 and bool (true: a token, false: padding) -> memory (B, S, M)."""

    @abstractmethod
    def new_cache(self, memory: Tensor, source_mask: Tensor) -> Any:
        """Return an empty cache for decoding from these sources, with all that is computed of them once."""

    @abstractmethod
    def decode_cached(self, target_in: Tensor, cache: Any, *, growing: bool) -> Tensor:
        """Return what `project` reads (B, T, D) for the tokens (B, T) after those of the cache.

        Args:
            growing: the tokens are added to the cache; otherwise it is not used again.
        """

    @abstractmethod
    def alignment(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Return the weights (B, T, S) that the last attention gives the source as each token is decoded."""

    @abstractmethod
    def training_flops(self, source_tokens: int, target_tokens: int) -> int:
        """Return the FLOPs of the matrix products forward and backward, without attention's scores and sums."""

    def check(self, positions: int) -> None:
        """Raise `ValueError` for more positions than the network has."""
        if positions > self.max_positions:
            raise ValueError(f"{positions} positions, but the model has {self.max_positions} (max_positions)")

    def check_source(self, source: Tensor, source_mask: Tensor) -> None:
        """Raise `ValueError` for a source that is too long, or a mask of another shape."""
        if source.shape != source_mask.shape:
            raise ValueError(f"source {tuple(source.shape)} and source_mask {tuple(source_mask.shape)} differ")
        self.check(source.size(1))

    def decode_hidden(
        self, target_in: Tensor, memory: Tensor, source_mask: Tensor, cache: Cache | None = None
    ) -> Tensor:
        """`decode` before the output projection: (B, T, D)."""
        used = self.new_cache(memory, source_mask) if cache is None else cache
        if target_in.size(0) % used.sources:
            raise ValueError(f"{target_in.size(0)} targets are no multiple of {used.sources} sources")
        self.check(used.length + target_in.size(1))
        return self.decode_cached(target_in, used, growing=cache is not None)

    def decode(self, target_in: Tensor, memory: Tensor, source_mask: Tensor, cache: Cache | None = None) -> Tensor:
        """Return the logits (B, T, V) of the token after each of `target_in` (B, T).

        With a cache, `target_in` holds only the new positions, and the source is the one the cache was made for.
        B may be n times the memory's rows: n consecutive rows then share a source.
        """
        return self.project(self.decode_hidden(target_in, memory, source_mask, cache))

    @property
    def output_matrix(self) -> Tensor:
        """(V, D)."""
        return self.embedding.weight if self.head is None else self.head.weight

    def project(self, hidden: Tensor) -> Tensor:
        """(..., D) -> logits (..., V)."""
        return nn.functional.linear(hidden, self.output_matrix, self.output_bias)

    def hidden(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """`forward` before the output projection, (B, T, D), for a loss that projects only at targets."""
        return self.decode_hidden(target_in, self.encode(source, source_mask), source_mask)

    def forward(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """Source (B, S) with its mask and shifted target (B, T) -> logits (B, T, V)."""
        return self.project(self.hidden(source, source_mask, target_in))

    def count_parameters(self) -> int:
        """Return the number of trained parameters, a tied matrix counted once."""
        return sum(parameter.numel() for parameter in self.parameters())


def linear_weights(part: nn.Module) -> int:
    """Return the number of weights in its linear layers, biases not counted."""
    return sum(child.weight.numel() for child in part.modules() if isinstance(child, nn.Linear))
