"""A linear-chain conditional random field over the tags of a sentence (Lafferty, McCallum and Pereira 2001).

The score of tags y_1 .. y_W of a sentence is

    first[y_1] + sum over w of emissions[w, y_w] + sum over w > 1 of transitions[y_{w-1}, y_w] + last[y_W],

and its probability is exp(score) over the sum of exp(score) of all sequences, which the forward algorithm finds in log
space. Cost: O(W L^2) operations a sentence, W steps one after another.

A sequence that the scheme of the tags does not allow has no probability: its score has a term of `FORBIDDEN`, so that
log-sum-exp stays finite where all of a row is forbidden.

Shape letters: B sentences, W words, L tags.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FORBIDDEN = -1e4
IGNORED = -100  # the label of what is no word


class Chain(NamedTuple):
    """Scores beside those of the words: (L, L) from a tag to the next, (L,) of the first tag, (L,) of the last."""

    transitions: Tensor
    first: Tensor
    last: Tensor


def score(emissions: Tensor, labels: Tensor, chain: Chain) -> Tensor:
    """Return the scores (B,) of the labels.

    Args:
        emissions: (B, W, L).
        labels: (B, W), words first, then `IGNORED`.
    """
    real = labels != IGNORED  # (B, W)
    tags = labels.clamp(min=0)
    of_words = emissions.gather(2, tags[:, :, None])[:, :, 0]  # (B, W)
    of_pairs = chain.transitions[tags[:, :-1], tags[:, 1:]]  # (B, W - 1)
    ends = tags.gather(1, (real.sum(1, keepdim=True) - 1).clamp(min=0))[:, 0]  # (B,)
    inner = (of_words * real).sum(1) + (of_pairs * real[:, 1:]).sum(1)
    return inner + chain.first[tags[:, 0]] + chain.last[ends]


def log_partition(emissions: Tensor, real: Tensor, chain: Chain) -> Tensor:
    """Return the logarithm (B,) of the sum over all sequences of exp(score), by the forward algorithm.

    Args:
        emissions: (B, W, L).
        real: (B, W), true at words, which come first.
    """
    alpha = chain.first + emissions[:, 0]  # (B, L)
    for word in range(1, emissions.shape[1]):
        step = torch.logsumexp(alpha[:, :, None] + chain.transitions, dim=1) + emissions[:, word]
        alpha = torch.where(real[:, word, None], step, alpha)
    return torch.logsumexp(alpha + chain.last, dim=1)


def nats(emissions: Tensor, labels: Tensor, chain: Chain) -> Tensor:
    """Return the negative log probability (B,) of the labels; arguments as of `score`."""
    return log_partition(emissions, labels != IGNORED, chain) - score(emissions, labels, chain)


def viterbi(emissions: Tensor, lengths: Tensor, chain: Chain) -> Tensor:
    """Return the sequences (B, W) of the highest scores, 0 after a sentence's end (Viterbi 1967); ties: the first tag.

    Args:
        emissions: (B, W, L).
        lengths: the words of each sentence, (B,).
    """
    words = emissions.shape[1]
    best = chain.first + emissions[:, 0]  # (B, L)
    back = []
    for word in range(1, words):
        found, before = (best[:, :, None] + chain.transitions).max(dim=1)  # (B, L)
        going_on = (word < lengths)[:, None]
        best = torch.where(going_on, found + emissions[:, word], best)
        # After the end each tag points to itself, so that the way back begins at the end.
        back.append(torch.where(going_on, before, torch.arange(best.shape[1], device=best.device)))
    tag = (best + chain.last).argmax(dim=1)  # (B,)
    path = [tag]
    for before in reversed(back):
        tag = before.gather(1, tag[:, None])[:, 0]
        path.append(tag)
    found = torch.stack(path[::-1], dim=1)
    return found * (torch.arange(words, device=found.device) < lengths[:, None])
