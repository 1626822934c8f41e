"""The first call of the vector math library, made alone.

torch computes exp, log, tanh and the like of long rows with Intel's vector math library, which looks at the processor
at its first call. When two threads make that call at the same moment, their first results can be of lower precision:
the first loss of a training on two threads came out 1e-6 too large in about one of three processes, and from there on
all weights differed. One call from a single thread before any work settles it.
"""

from __future__ import annotations


def settle_vector_math() -> None:
    """Make the first call; costs microseconds."""
    import torch

    torch.ones(8).exp()  # too short a row to be shared among threads
