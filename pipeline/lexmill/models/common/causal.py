"""The causal skeleton: embedding, positions, blocks, final norm, output matrix, loss, cache, counts.

A family supplies its blocks. Cost: about 6 * parameters FLOPs a training token plus what the mixers add; memory
O(B * T * n_layer * D), and V more a token where logits are needed.

Shape letters: B batch, T time, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.models.common.cross_entropy import fused_cross_entropy
from lexmill.models.common.documents import document_positions
from lexmill.models.common.dropout import Dropout
from lexmill.models.common.hashed_ngrams import HashedNgrams
from lexmill.models.common.init import Recipe, initialize
from lexmill.models.common.mixer import Mixer, State

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle


class Cache:
    """The states of all layers, for decoding token by token.

    Attributes:
        previous: the last tokens of each row that n-grams reach back to, (B, N - 1); None: none yet.
    """

    def __init__(self, layers: list[State]) -> None:
        self.layers = layers
        self.previous: Tensor | None = None

    @property
    def length(self) -> int:
        """Positions seen so far."""
        return self.layers[0].length

    def reorder(self, rows: Tensor) -> None:
        """Keep the batch rows `rows` (int64, (new B,)), in that order, repeats allowed."""
        for layer in self.layers:
            layer.reorder(rows)
        if self.previous is not None:
            self.previous = self.previous.index_select(0, rows)


class CausalModel(nn.Module):
    """A causal language model over `vocab_size` tokens.

    Args:
        shape: the family's; at least n_layer, d_model, context and dropout.
        block: makes a block with `forward(hidden, shared, state)` and `mixer`, see `block.Block`.
        norm: after the last block.
        recipe: draws the initial weights.
        positions: whether positions are learned, which limits the input to the context.
        tied: whether the output matrix is the embedding.
        ngrams: tables added to the embedding.
    """

    def __init__(
        self,
        shape: Any,
        vocab_size: int,
        *,
        block: Callable[[], nn.Module],
        norm: nn.Module,
        recipe: Recipe,
        positions: bool = False,
        tied: bool = True,
        ngrams: HashedNgrams | None = None,
    ) -> None:
        super().__init__()
        self.shape, self.vocab_size = shape, vocab_size
        self.embedding = nn.Embedding(vocab_size, shape.d_model)
        self.positions = nn.Embedding(shape.context, shape.d_model) if positions else None
        self.ngrams = ngrams
        self.dropout = Dropout(shape.dropout)
        self.blocks = nn.ModuleList(block() for _ in range(shape.n_layer))
        self.norm = norm
        self.head = None if tied else nn.Linear(shape.d_model, vocab_size, bias=False)
        initialize(self, recipe)

    @property
    def context(self) -> int:
        """The longest training window, in tokens; with learned positions, the longest input."""
        return int(self.shape.context)

    @property
    def mixers(self) -> list[Mixer]:
        """The layers' mixers."""
        return [cast(Any, block).mixer for block in self.blocks]

    @property
    def unlimited(self) -> bool:
        """Whether it reads text of any length at the same cost per token."""
        return all(mixer.unlimited for mixer in self.mixers)

    @property
    def carries(self) -> bool:
        """Whether a window can go on from a cache also where documents start in it."""
        return all(getattr(mixer, "carries", False) for mixer in self.mixers)

    def new_cache(self, batch: int) -> Cache:
        """Return an empty cache for `batch` sequences; the first forward that uses it fixes the batch."""
        return Cache(self.new_states(batch))

    def new_states(self, batch: int) -> list[State]:
        """Return the layers' states of an empty cache."""
        if batch < 1:
            raise ValueError(f"a cache needs at least one sequence, not {batch}")
        return [mixer.new_state(min(64, self.context)) for mixer in self.mixers]

    def forward(self, tokens: Tensor, cache: Cache | None = None, documents: Tensor | None = None) -> Tensor:
        """Return next-token logits: (B, T) int64 -> (B, T, V).

        Args:
            tokens: with a cache, those after the positions already in it; the cache is updated.
            documents: (B, T) int64, the document of each position; documents do not see each other, and each gets the
                logits it would get alone.

        Raises:
            ValueError: positions beyond learned ones, or documents together with a cache. A model that `carries` its
                state takes both: the first document of each row goes on from the cache.
        """
        return self.logits(self.hidden(tokens, cache, documents))

    def loss(
        self, tokens: Tensor, targets: Tensor, documents: Tensor | None = None, cache: Cache | None = None
    ) -> Tensor:
        """Return the sum of nats over the targets (B, T) that are not -100, a float32 scalar; see `forward`."""
        return fused_cross_entropy(self.hidden(tokens, cache, documents), self.output_matrix, targets)

    def next_logits(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Return `forward`'s logits after the last token only: (B, T) int64 -> (B, V)."""
        return self.logits(self.hidden(tokens, cache)[:, -1])

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., D) -> (..., V)."""
        return nn.functional.linear(hidden, self.output_matrix)

    @property
    def output_matrix(self) -> Tensor:
        """(V, D)."""
        return self.embedding.weight if self.head is None else self.head.weight

    def hidden(self, tokens: Tensor, cache: Cache | None = None, documents: Tensor | None = None) -> Tensor:
        """Return the input of the output matrix, (B, T, D); see `forward`."""
        if documents is not None and cache is not None and not self.carries:
            raise ValueError("packed documents cannot be read with a cache")
        start = 0 if cache is None else cache.length
        hidden = self.dropout(self.embedded(tokens, cache, documents))
        blocks: list[Any] = list(self.blocks)
        shared = blocks[0].mixer.shared(tokens, start, documents)
        states: Sequence[Any] = [None] * len(blocks) if cache is None else cache.layers
        out: Tensor = self.norm(self.through(blocks, hidden, shared, states))
        return out

    def through(self, blocks: list[Any], hidden: Tensor, shared: Any, states: Sequence[Any]) -> Tensor:
        """Return the output of the last block, (B, T, D)."""
        for block, state in zip(blocks, states, strict=True):
            hidden = block(hidden, shared, state)
        return hidden

    def embedded(self, tokens: Tensor, cache: Cache | None, documents: Tensor | None) -> Tensor:
        """Return the input of the first block before dropout, (B, T, D); see `forward`."""
        hidden: Tensor = self.embedding(tokens)
        if self.ngrams is not None:
            added, previous = self.ngrams(tokens, None if cache is None else cache.previous, documents)
            hidden = hidden + added
            if cache is not None:
                cache.previous = previous
        if self.positions is not None:
            start = 0 if cache is None else cache.length
            end = start + tokens.shape[1]
            if end > self.context:
                raise ValueError(f"{end} positions, but the model's context is {self.context}")
            table = self.positions
            hidden = hidden + (table.weight[start:end] if documents is None else table(document_positions(documents)))
        return hidden

    def count_parameters(self) -> int:
        """Return the number of trained parameters, a tied matrix counted once."""
        return sum(parameter.numel() for parameter in self.parameters())

    def flops_per_token(self) -> int:
        """Return the FLOPs of one training token at full context: 6 for each weight of a matrix product, plus mixers'.

        An embedding that is not tied to the output does not count: a look-up is not a product.
        """
        tables = {child.weight for child in self.modules() if isinstance(child, nn.Embedding)} - {self.output_matrix}
        matrices = sum(p.numel() for p in self.parameters() if p.ndim >= 2 and p not in tables)
        return 6 * matrices + sum(mixer.flops(self.context) for mixer in self.mixers)

    def tensor_parallel_plan(self) -> dict[str, ParallelStyle]:
        """Return how `parallelize_module` splits the blocks' linear layers; each device holds all else whole.

        Raises:
            UserError: a mixer cannot be split.
        """
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

        if any(mixer.split() is None for mixer in self.mixers):
            raise UserError(
                f"{type(self).__name__} cannot be split by tensor parallelism; set tensor_parallel to 1 and use"
                " strategy: ddp or fsdp"
            )
        styles = {"columns": ColwiseParallel, "rows": RowwiseParallel}
        return {
            f"{path}.{name}": styles[how]()
            for path, part in self.blocks.named_modules(prefix="blocks")
            for name, how in (part.split() if hasattr(part, "split") else {}).items()
        }
