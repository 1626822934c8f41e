"""The n-grams that speak most for each label of a linear classifier on a bag."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lexmill.models.common.heads import BagClassifier
    from lexmill.tokenizers import Tokenizer

MOST = 20


def shown(text: str) -> str:
    """Return an n-gram without the spaces around it; white space alone as Python writes it."""
    return text.strip() or repr(text)


def telling(module: BagClassifier, tokenizer: Tokenizer, labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return for each label {"label", "features": [{"n_gram", "weight"}]}, the largest weight first.

    The weight is how much one more of the n-gram raises the label's logit over the mean of the other labels' logits,
    before any weighting by document frequency; of equal ones the first by name.
    """
    heads = module.head.weight.detach().double()  # (L, F)
    others = (heads.sum(dim=0, keepdim=True) - heads) / max(1, len(labels) - 1)
    bag: Any = module.encoder
    found = []
    for label, row in zip(labels, heads - others, strict=True):
        first = row.topk(min(MOST, len(row))).indices.tolist()
        named = sorted((-float(row[i]), shown(tokenizer.decode(bag.n_gram(i)))) for i in first)
        found.append({"label": label, "features": [{"n_gram": one, "weight": -weight} for weight, one in named]})
    return found
