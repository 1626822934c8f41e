"""A stack of long short-term memory layers (Hochreiter and Schmidhuber 1997), regularised as in Zaremba et al. 2014.

Each layer reads x_t and its own state (h, c):

    i, f, o = sigmoid(W x_t + U h_{t-1} + b)   each with its own rows of W, U, b
    c_t = f * c_{t-1} + i * tanh(W_c x_t + U_c h_{t-1} + b_c),    h_t = o * tanh(c_t)

and gives h_t to the next. Dropout acts on the embedding and on each layer's output, never from one step to the next.
The output matrix is the embedding (Press and Wolf 2017) unless the shape says otherwise.

Every window of training starts from a zero state: windows are drawn in any order, so none follows the one before it.
What is learned reaches back `context` tokens; the state itself has no bound and is kept for as long as a text goes on.

Cost: 6 * (8 * n_layer * D^2 + V * D) FLOPs a token of training, the steps of a window one after another; memory
O(B * T * n_layer * D). Windows in which no document starts run whole through torch's kernel (oneDNN on a CPU).
Otherwise all rows are cut wherever one of them has a start, and the kernel is called for each piece: on a CPU a step of
16 windows of 128 tokens takes 5 % longer with 2 pieces, 20 % with 8, and twice as long with 36.

Shape letters: B batch, T time, D width, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.models.common.cross_entropy import fused_cross_entropy
from lexmill.models.common.dropout import Dropout
from lexmill.models.common.init import Xavier, initialize
from lexmill.params.shapes_tmp import LSTMShape

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

State = tuple[Tensor, Tensor]  # h and c, (1, B, D) each, as torch's kernel wants them
Piece = tuple[int, int, Tensor | None]  # from, to, and 1 for a row that goes on there, 0 for a start: (1, B, 1)


class Cache:
    """The recurrent state of all layers, for reading one token after another; its size does not grow."""

    def __init__(self, n_layer: int) -> None:
        self.length = 0  # tokens seen so far
        self.states: list[State | None] = [None] * n_layer  # None: zero

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows` (int64, (new B,)), in that order, repeats allowed."""
        self.states = [
            state and (state[0].index_select(1, rows), state[1].index_select(1, rows)) for state in self.states
        ]


class Layer(nn.Module):
    """One recurrent layer and the dropout on its output."""

    def __init__(self, d_model: int, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(d_model, d_model, batch_first=True)
        self.dropout = Dropout(dropout)

    def forward(self, hidden: Tensor, state: State | None, pieces: list[Piece]) -> tuple[Tensor, State]:
        """(B, T, D) and the state before (None: zero) -> (B, T, D) and the state after."""
        found = []
        for start, end, going_on in pieces:
            if state is not None and going_on is not None:
                state = state[0] * going_on, state[1] * going_on
            out, state = self.lstm(hidden[:, start:end], state)
            found.append(out)
        assert state is not None, "there is at least one piece"
        return self.dropout(found[0] if len(found) == 1 else torch.cat(found, dim=1)), state


class LSTM(nn.Module):
    """A causal language model over `vocab_size` tokens."""

    unlimited: ClassVar[bool] = True  # it reads texts of any length, at the same cost a token

    def __init__(self, shape: LSTMShape, vocab_size: int) -> None:
        super().__init__()
        self.shape, self.vocab_size = shape, vocab_size
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Layer(shape.d_model, shape.dropout) for _ in range(shape.n_layer))
        self.head = None if shape.tie_embeddings else nn.Linear(shape.d_model, vocab_size, bias=False)
        initialize(self, Xavier(embedding_std=shape.d_model**-0.5))

    @property
    def context(self) -> int:
        """The longest window of its training, in tokens."""
        return self.shape.context

    def new_cache(self, batch: int) -> Cache:
        """A zero state for `batch` sequences; the batch is fixed by the first forward that uses it."""
        if batch < 1:
            raise ValueError(f"a cache needs at least one sequence, not {batch}")
        return Cache(self.shape.n_layer)

    def forward(self, tokens: Tensor, cache: Cache | None = None, documents: Tensor | None = None) -> Tensor:
        """Logits of the next token: (B, T) int64 -> (B, T, V).

        Args:
            cache: `tokens` are what follows the tokens it has seen; it is brought up to date.
            documents: (B, T) int64, the document of each position; the state is zero where one starts.

        Raises:
            ValueError: for documents together with a cache.
        """
        return nn.functional.linear(self._hidden(tokens, cache, documents), self._output_matrix)  # (B, T, V)

    def loss(self, tokens: Tensor, targets: Tensor, documents: Tensor | None = None) -> Tensor:
        """The sum of nats over the targets (B, T) that are not -100, a float32 scalar; see `forward`."""
        return fused_cross_entropy(self._hidden(tokens, None, documents), self._output_matrix, targets)

    def next_logits(self, tokens: Tensor, cache: Cache) -> Tensor:
        """`forward`'s logits after the last token alone: (B, T) int64 -> (B, V)."""
        return nn.functional.linear(self._hidden(tokens, cache, None)[:, -1], self._output_matrix)

    @property
    def _output_matrix(self) -> Tensor:
        return self.embedding.weight if self.head is None else self.head.weight  # (V, D)

    def _hidden(self, tokens: Tensor, cache: Cache | None, documents: Tensor | None) -> Tensor:
        """The last layer's output, (B, T, D)."""
        if documents is not None and cache is not None:
            raise ValueError("packed documents cannot be read with a cache")
        hidden = self.dropout(self.embedding(tokens))  # (B, T, D)
        pieces = [(0, tokens.shape[1], None)] if documents is None else cut(documents)
        for index, layer in enumerate(self.blocks):
            hidden, state = layer(hidden, None if cache is None else cache.states[index], pieces)
            if cache is not None:
                cache.states[index] = state
        if cache is not None:
            cache.length += tokens.shape[1]
        return hidden

    def count_parameters(self) -> int:
        """All trained numbers, a tied matrix once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self) -> int:
        """FLOPs of one training token: 6 for each weight of a matrix product.

        The embedding counts as the output matrix or, where that is another, not at all: look-ups are no products.
        """
        matrices = sum(p.numel() for p in self.parameters() if p.ndim >= 2)
        if self.head is not None:
            matrices -= self.embedding.weight.numel()
        return 6 * matrices

    def tensor_parallel_plan(self) -> dict[str, ParallelStyle]:
        """None: each step needs the whole state of the one before.

        Raises:
            UserError: always.
        """
        raise UserError(
            "an lstm cannot be split by tensor parallelism; set tensor_parallel to 1 and use strategy: ddp or fsdp"
        )


def cut(documents: Tensor) -> list[Piece]:
    """The stretches of a batch (B, T) in which no row starts a document, but at their beginning."""
    going_on = documents[:, 1:] == documents[:, :-1]  # (B, T - 1)
    starts = [0, *((~going_on).any(dim=0).nonzero()[:, 0] + 1).tolist()]
    ends = [*starts[1:], documents.shape[1]]
    return [
        (start, end, going_on[:, start - 1].view(1, -1, 1) if start else None)
        for start, end in zip(starts, ends, strict=True)
    ]
