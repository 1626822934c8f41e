"""The n-grams of texts as sparse features. There is nothing to train: a head on top does the rest.

An n-gram of tokens t_1 ... t_n over a vocabulary of V entries has the key sum of (t_i + 1) (V + 1)^(n - i), so n-grams
of all lengths have different keys; the table is the sorted keys of those that are features, and the weight of each.

Cost of a text of T tokens: T look-ups of log(F) steps for each length; memory 12 F bytes.

Shape letters: B texts, T tokens, F features.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor, nn

from lexmill.base.budgets import MAX_CONTEXT
from lexmill.base.errors import UserError
from lexmill.models.bag.shape import Shape
from lexmill.models.common.sparse_rows import SparseRows

_MOST_KEYS = 2**63


class Bag(nn.Module):
    """The features of texts.

    Attributes:
        keys: (F,) int64, rising; before `learn` they match nothing.
        idf: (F,), the weight of each n-gram; 1 unless the weighting has one.
        like: (V,) int64, the token that each token counts as.
    """

    keys: Tensor
    idf: Tensor
    like: Tensor

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__()
        if (vocab_size + 1) ** shape.longest >= _MOST_KEYS:
            raise UserError(
                f"shape.longest: n-grams of {shape.longest} tokens over a vocabulary of {vocab_size:,} are more than"
                " can be numbered; lower it"
            )
        self.shape, self.base = shape, vocab_size + 1
        self.register_buffer("keys", torch.full((shape.n_feature,), _MOST_KEYS - 1, dtype=torch.int64))
        self.register_buffer("idf", torch.ones(shape.n_feature))
        self.register_buffer("like", torch.arange(vocab_size))

    @property
    def d_model(self) -> int:
        """F."""
        return self.shape.n_feature

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return MAX_CONTEXT

    @property
    def init_std(self) -> float:
        """The standard deviation of a head's initial weights."""
        return 0.02

    def learn(self, texts: Iterable[Sequence[int]], left_out: frozenset[int], like: Sequence[int]) -> int:
        """Take the features from the tokens of each text of train; return how many there are.

        The inverse document frequency is scikit-learn's smooth one: ln((1 + texts) / (1 + texts with the n-gram)) + 1.

        Args:
            left_out: tokens of no feature: those that mark begin and end, padding, unknown words.
            like: for each token the one that it counts as: itself, or one that differs by a space only.

        Raises:
            UserError: no n-gram is in as many texts as it must be.
        """
        self.like = torch.tensor(like)
        found, number = Counter[int](), 0
        for text in texts:
            found.update(self._keys_in([like[token] for token in text], left_out))
            number += 1
        kept = sorted((-count, key) for key, count in found.items() if count >= self.shape.least_texts)
        if not kept:
            raise UserError(f"no n-gram is in {self.shape.least_texts} texts of train; lower shape.least_texts")
        counts = {key: -count for count, key in kept[: self.shape.n_feature]}
        self.keys = torch.tensor(sorted(counts))
        of_texts = torch.tensor([counts[key] for key in self.keys.tolist()], dtype=torch.float64)
        weighs = self.shape.weighting in ("tfidf", "log_tfidf")
        self.idf = (((1 + number) / (1 + of_texts)).log() + 1 if weighs else torch.ones_like(of_texts)).float()
        return len(counts)

    def _keys_in(self, text: Sequence[int], left_out: frozenset[int]) -> set[int]:
        """Return the keys of a text's n-grams."""
        found: set[int] = set()
        for start in range(len(text)):
            key = 0
            for token in text[start : start + self.shape.longest]:
                if token in left_out:
                    break
                key = key * self.base + token + 1
                found.add(key)
        return found

    def n_gram(self, feature: int) -> list[int]:
        """Return the tokens of a feature."""
        key, found = int(self.keys[feature]), list[int]()
        while key:
            key, last = divmod(key, self.base)
            found.append(last - 1)
        return found[::-1]

    def forward(self, tokens: Tensor, mask: Tensor) -> SparseRows:
        """Map token ids (B, T) and a mask (B, T), true at real tokens, to (B, F)."""
        n_feature = len(self.keys)
        places = torch.cat([self._places(keys, real) for keys, real in self._n_grams(tokens, mask)])
        cells, counts = places.unique(return_counts=True)  # row * F + column, rising
        rows, columns = cells // n_feature, cells % n_feature
        values = self._weighted(counts.to(self.idf.dtype), rows, columns, len(tokens))
        ends = torch.bincount(rows, minlength=len(tokens)).cumsum(0)
        return SparseRows(torch.cat([ends.new_zeros(1), ends]), columns, values, n_feature)

    def _n_grams(self, tokens: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the keys (B, T - n + 1) of the n-grams of each length, and which have real tokens only."""
        tokens = self.like[tokens]
        keys, real = tokens + 1, mask
        for length in range(1, min(self.shape.longest, tokens.shape[1]) + 1):
            if length > 1:
                keys = keys[:, :-1] * self.base + tokens[:, length - 1 :] + 1
                real = real[:, :-1] & mask[:, length - 1 :]
            yield keys, real

    def _places(self, keys: Tensor, real: Tensor) -> Tensor:
        """Return row * F + column of each n-gram that is a feature."""
        columns = torch.searchsorted(self.keys, keys.contiguous()).clamp(max=len(self.keys) - 1)
        rows = torch.arange(len(keys), device=keys.device)[:, None]
        places: Tensor = (rows * len(self.keys) + columns)[(self.keys[columns] == keys) & real]
        return places

    def _weighted(self, counts: Tensor, rows: Tensor, columns: Tensor, texts: int) -> Tensor:
        if self.shape.weighting == "count":
            return counts
        if self.shape.weighting == "binary":
            return torch.ones_like(counts)
        shown = 1 + counts.log() if self.shape.weighting == "log_tfidf" else counts
        values = shown * self.idf[columns]
        squares = values.new_zeros(texts).index_add(0, rows, values.square())
        return values / squares.sqrt()[rows]
