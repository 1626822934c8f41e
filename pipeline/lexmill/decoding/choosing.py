"""The next token of each text from its logits: repetition penalty, temperature, top-k, top-p, min-p, one draw.

The order of the filters is that of `Sampling`. No filter sorts the whole vocabulary, except top-p where a few hundred
tokens do not hold enough probability. The draw inverts the cumulative distribution over ids: rounding can move the
border of two tokens, but not swap them. Cost: a few passes over B * V numbers.

Shape letters: B texts, V vocabulary, L tokens of a text so far, C candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.decoding.settings import Sampling

_CANDIDATES = 256  # tried for top-p before the whole vocabulary is sorted
_COLDEST = 1e-30  # a lower temperature gives the same result, and would underflow in float32


def penalise(logits: Tensor, tokens: Tensor, penalty: float, eos: int) -> None:
    """Make the tokens of a text less probable, in place (Keskar et al. 2019, CTRL).

    Positive logits are divided by the penalty, negative ones multiplied by it. The end token is exempt: it precedes
    every text, and ending is not repetition.

    Args:
        logits: (B, V).
        tokens: (B, L) int64, the text so far, with the prompt.
        penalty: above 1 against repetition.
        eos: the end token.
    """
    end = logits[:, eos].clone()
    held = logits.gather(1, tokens)  # (B, L)
    logits.scatter_(1, tokens, torch.where(held > 0, held / penalty, held * penalty))
    logits[:, eos] = end


def next_tokens(logits: Tensor, draws: Tensor | None, sampling: Sampling) -> Tensor:
    """Choose one token of each row: (B, V) float logits -> (B,) int64.

    Args:
        logits: after the penalty; -inf for excluded tokens.
        draws: (B,) float64 in [0, 1); not needed for temperature 0, the most probable token.
        sampling: temperature, top_k, top_p and min_p are used.

    Raises:
        UserError: a row's greatest logit is not finite: the weights are broken.
    """
    if sampling.temperature == 0:
        top, chosen = logits.max(dim=1)
        _check(top)
        return chosen
    assert draws is not None, "a temperature above 0 needs random numbers"
    top = logits.amax(dim=1, keepdim=True)
    _check(top)
    scaled = (logits - top) / max(sampling.temperature, _COLDEST)  # (B, V), at most 0
    kept, index = _left(scaled, sampling)
    if sampling.min_p > 0:
        kept = kept.masked_fill(kept < sampling.min_p * kept.amax(dim=1, keepdim=True), 0.0)
    reached = kept.cumsum(dim=1, dtype=torch.float64)  # (B, C)
    total = reached[:, -1:]
    # Below the total even after rounding, so that it falls into a remaining token.
    number = torch.minimum(draws[:, None] * total, total.nextafter(torch.zeros_like(total)))
    place = torch.searchsorted(reached, number, right=True)  # (B, 1)
    return (place if index is None else index.gather(1, place))[:, 0]


def _check(top: Tensor) -> None:
    if not bool(top.isfinite().all()):
        raise UserError("the model's output is not finite: its weights are broken; train it again")


def _left(scaled: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor | None]:
    """The result of top-k and top-p: (B, C) probabilities, 0 for dropped tokens, and ascending (B, C) ids.

    The ids are None where they are 0 .. V - 1.
    """
    size = scaled.shape[1]
    if 0 < sampling.top_k < size:
        ordered, index = scaled.topk(sampling.top_k, dim=1)  # (B, C), the most probable first
        probability = ordered.softmax(dim=1)
    elif sampling.top_p < 1:
        whole = scaled.softmax(dim=1)
        probability, index = whole.topk(min(_CANDIDATES, size), dim=1)
        if bool((probability.sum(dim=1, dtype=torch.float64) < sampling.top_p).any()):
            probability, index = whole.sort(dim=1, descending=True)
    else:
        return scaled.softmax(dim=1), None
    if sampling.top_p < 1:
        reached = probability.cumsum(dim=1, dtype=torch.float64)
        before = reached - probability  # of the more probable tokens; below top_p the token is needed
        probability = probability.masked_fill(before >= sampling.top_p, 0.0)
    index, order = index.sort(dim=1)
    return probability.gather(1, order), index
