"""The first call of the vector math library, from a single thread.

torch computes exp, log, tanh and the like of long rows with Intel's vector math library, which detects the processor
in its first call. When two threads make it at once, their first results can be less precise: the first loss of a
training on two threads was 1e-6 too large in about one of three processes, and all later weights differed.
"""

from __future__ import annotations


def settle_vector_math() -> None:
    """Make the first call; costs microseconds."""
    import torch

    torch.ones(8).exp()  # too short a row to be shared among threads
