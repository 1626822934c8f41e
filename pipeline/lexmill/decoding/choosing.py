"""The next token of each text from its logits: repetition penalty, temperature, top-k, top-p, min-p, one draw.

The order of the filters is that of `Sampling`. No filter sorts the whole vocabulary, except top-p where a few hundred
tokens do not hold enough probability. The tokens that are left lie end to end by id, each as long as its probability,
and the one is taken in which the drawn number falls: so rounding moves a border, but never swaps two tokens.
Cost: a few passes over B * V numbers.

Shape letters: B texts, V vocabulary, L tokens of a text so far, C candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.decoding.settings import Sampling

_CANDIDATES = 256  # looked at for top-p before the whole vocabulary is sorted
_COLDEST = 1e-30  # a lower temperature gives the same, and would not survive float32


def penalise(logits: Tensor, tokens: Tensor, penalty: float, eos: int) -> None:
    """Make the tokens that a text holds less probable, in place (Keskar et al. 2019, CTRL).

    A positive logit is divided by the penalty, a negative one multiplied with it. The end token is left as it is: it
    stands before every text, and ending is no repetition.

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
    """One token of each row: (B, V) float logits -> (B,) int64.

    Args:
        logits: after the penalty; -inf for tokens that must not come.
        draws: (B,) float64 in [0, 1); not needed for temperature 0, the most probable token.
        sampling: temperature, top_k, top_p and min_p are used.

    Raises:
        UserError: a row's greatest logit is not finite, which takes broken weights.
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
    # Below the total also after rounding: the number falls into a token that is left.
    number = torch.minimum(draws[:, None] * total, total.nextafter(torch.zeros_like(total)))
    place = torch.searchsorted(reached, number, right=True)  # (B, 1)
    return (place if index is None else index.gather(1, place))[:, 0]


def _check(top: Tensor) -> None:
    if not bool(top.isfinite().all()):
        raise UserError("the model's output is not finite: its weights are broken; train it again")


def _left(scaled: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor | None]:
    """What top-k and top-p leave: (B, C) probabilities, 0 for what is cut off, and their (B, C) ids, ascending.

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
        before = reached - probability  # what the more probable ones have: below top_p, so the token is needed
        probability = probability.masked_fill(before >= sampling.top_p, 0.0)
    index, order = index.sort(dim=1)
    return probability.gather(1, order), index
