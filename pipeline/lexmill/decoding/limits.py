"""What may follow in a translation: bounds on its length, a given beginning, n-grams that do not repeat.

Shape letters: R hypotheses, T tokens written so far, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.decoding.settings import BeamSearch
from lexmill.tokenizers.tokenizer import TRAINED, SpecialIds


@dataclass(frozen=True)
class Limits:
    """What bounds the translations of one source.

    Attributes:
        shortest, longest: tokens without the end token.
        prefix: the first tokens.
    """

    shortest: int
    longest: int
    prefix: tuple[int, ...] = ()


def limits(source_tokens: int, search: BeamSearch, max_positions: int, prefix: Sequence[int] = ()) -> Limits:
    """Return the limits for a source of that many tokens, the end token not counted.

    The prefix may be longer than the bound by the source; it then is the whole translation.

    Raises:
        UserError: the network has too few positions for the prefix.
    """
    most = max(0, max_positions - 1)
    if len(prefix) > most:
        raise UserError(f"the beginning of a translation has {len(prefix)} tokens; the model writes at most {most}")
    wanted = int(search.max_length_ratio * source_tokens) + search.max_length_extra
    longest = max(0, min(wanted, most), len(prefix))
    return Limits(min(int(search.min_length_ratio * source_tokens), longest), longest, tuple(prefix))


def exclude(
    logits: Tensor, written: Tensor, rows: Sequence[Limits], no_repeat: int, special: SpecialIds = TRAINED
) -> None:
    """Give every token that may not follow -inf, in place; at least one stays.

    A prefix comes before all else. At the maximum length only the end token may follow, and so it is where all other
    tokens are excluded.

    Args:
        logits: (R, V) of the next token.
        written: (R, T) without the begin token.
        rows: the limits of each hypothesis.
        no_repeat: see `BeamSearch.no_repeat_ngram`.
        special: the ids of the end token and of what is never written.
    """
    eos = special.eos
    step, device = written.size(1), logits.device
    end = logits[:, eos].clone()  # (R,)
    given = [i for i, one in enumerate(rows) if step < len(one.prefix)]
    forced = torch.tensor([rows[i].prefix[step] for i in given], dtype=torch.int64, device=device)
    in_prefix = torch.tensor(given, dtype=torch.int64, device=device)
    values = logits[in_prefix, forced]
    logits[:, list(special.never_written)] = -torch.inf
    if 0 < no_repeat <= step:
        _exclude_repeats(logits, written, no_repeat)
    early = torch.tensor([step < one.shortest for one in rows], device=device)
    if bool(early.any()):
        logits[early, eos] = -torch.inf
        stuck = (logits == -torch.inf).all(dim=1)
        logits[stuck, eos] = end[stuck]
    at_end = torch.tensor([step >= one.longest for one in rows], device=device)
    if bool(at_end.any()):
        logits[at_end] = -torch.inf
        logits[at_end, eos] = end[at_end]
    logits[in_prefix] = -torch.inf
    logits[in_prefix, forced] = values


def _exclude_repeats(logits: Tensor, written: Tensor, size: int) -> None:
    """Exclude the tokens that would end an n-gram of this size that the hypothesis already has."""
    grams = written.unfold(1, size, 1)  # (R, T - size + 1, size)
    last = written[:, written.size(1) - size + 1 :]  # (R, size - 1)
    row, place = (grams[:, :, :-1] == last[:, None]).all(dim=2).nonzero(as_tuple=True)
    logits[row, grams[row, place, -1]] = -torch.inf
