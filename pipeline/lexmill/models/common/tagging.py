"""The head that gives each word of a sentence a tag.

Shape letters: B sentences, T tokens, W words, D width, L tags.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill.base.tag_schemes import Scheme, allowed
from lexmill.models.common.chain import FORBIDDEN, IGNORED, Chain, nats, viterbi
from lexmill.models.common.text_encoder import TextEncoder


class Scores(NamedTuple):
    """The scores of sentences: emissions (B, W, L) in float32, and those of a chain, if there is one."""

    emissions: Tensor
    chain: Chain | None

    def nats(self, labels: Tensor) -> Tensor:
        """Return the negative log probability (B,) of labels (B, W), `IGNORED` after the last word."""
        if self.chain is not None:
            return nats(self.emissions, labels, self.chain)
        of_tags = self.emissions.transpose(1, 2)  # (B, L, W)
        return functional.cross_entropy(of_tags, labels, ignore_index=IGNORED, reduction="none").sum(dim=1)

    def best(self, lengths: Tensor) -> Tensor:
        """Return the most probable tags (B, W) of sentences of so many words (B,); ties: the first tag."""
        if self.chain is not None:
            return viterbi(self.emissions, lengths, self.chain)
        return self.emissions.argmax(dim=2)


class Tagger(nn.Module):
    """An encoder, one vector for each word from its pieces, dropout, one matrix, and perhaps a chain over the tags.

    Args:
        encoder: a `TextEncoder`.
        tags: the names of the L tags.
        scheme: how they mark entities; a chain gives no probability to sequences that it does not allow.
        pieces: whether a word's vector is the hidden state of its first piece, or the mean over all.
        head: whether tags are independent of each other given the text (softmax) or form a chain (crf).
        dropout: on the words' vectors.
    """

    def __init__(
        self,
        encoder: nn.Module,
        tags: Sequence[str],
        *,
        scheme: Scheme,
        pieces: Literal["first", "mean"],
        head: Literal["softmax", "crf"],
        dropout: float,
    ) -> None:
        super().__init__()
        self.encoder, self.pieces = encoder, pieces
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(self._encoder.d_model, len(tags))
        nn.init.normal_(self.head.weight, std=self._encoder.init_std)
        nn.init.zeros_(self.head.bias)
        self.chain = _Chain(tags, scheme) if head == "crf" else None

    @property
    def _encoder(self) -> TextEncoder:
        return cast(TextEncoder, self.encoder)

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return self._encoder.max_positions

    def forward(self, tokens: Tensor, mask: Tensor, words: Tensor) -> Scores:
        """Return the scores of the words' tags.

        Args:
            tokens, mask: (B, T), the mask true at real tokens.
            words: (B, T), the number of the word that a token is a piece of; -1: of none. A row's words are numbered
                from 0, in order; W is the largest number of words in a row.

        Raises:
            ValueError: the shapes differ, or a sentence is longer than the encoder's positions.
        """
        if not tokens.shape == mask.shape == words.shape or tokens.ndim != 2:
            shapes = ", ".join(str(tuple(one.shape)) for one in (tokens, mask, words))
            raise ValueError(f"tokens, mask and words must be (B, T) all three, not {shapes}")
        hidden = self._encoder.hidden(tokens, mask)  # (B, T, D)
        emissions: Tensor = self.head(self.dropout(self._of_words(hidden, words))).float()  # (B, W, L)
        return Scores(emissions, None if self.chain is None else self.chain())

    def _of_words(self, hidden: Tensor, words: Tensor) -> Tensor:
        """(B, T, D) -> (B, W, D); zero for words that a row does not have."""
        count = int(words.max()) + 1 if words.numel() else 1
        of_word = words[:, None, :] == torch.arange(count, device=words.device)[:, None]  # (B, W, T)
        if self.pieces == "first":
            first = of_word.int().argmax(dim=2)  # (B, W)
            taken = hidden.gather(1, first[:, :, None].expand(-1, -1, hidden.shape[2]))
            return taken * of_word.any(dim=2)[:, :, None]
        weights = of_word.to(hidden.dtype)
        weights = weights / weights.sum(dim=2, keepdim=True).clamp(min=1)
        return weights @ hidden


class _Chain(nn.Module):
    """The learned scores of a chain, zero at first, with what the scheme does not allow."""

    forbidden: Tensor

    def __init__(self, tags: Sequence[str], scheme: Scheme) -> None:
        super().__init__()
        count = len(tags)
        self.transitions = nn.Parameter(torch.zeros(count, count))
        self.first = nn.Parameter(torch.zeros(count))
        self.last = nn.Parameter(torch.zeros(count))
        before: list[str | None] = [*tags, None]  # the start of a sentence
        after: list[str | None] = [*tags, None]  # its end
        table = [[0.0 if allowed(one, other, scheme) else FORBIDDEN for other in after] for one in before]
        self.register_buffer("forbidden", torch.tensor(table), persistent=False)  # (L + 1, L + 1)

    def forward(self) -> Chain:
        """Return the scores, in float32."""
        return Chain(
            self.transitions.float() + self.forbidden[:-1, :-1],
            self.first.float() + self.forbidden[-1, :-1],
            self.last.float() + self.forbidden[:-1, -1],
        )
