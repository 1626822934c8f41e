"""How text is sampled or searched: the numbers, their bounds, their defaults. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lexmill.base.errors import UserErrors
from lexmill.base.strict import build, spec


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen, and when a text ends.

    The filters work in this order, each on what the one before it has left, as in transformers: repetition penalty,
    temperature, top-k, top-p, min-p. What they leave is made to sum to 1 again, and one token is drawn.
    """

    max_tokens: int = spec("most new tokens", 100, unit="tokens", low=0)
    temperature: float = spec("divides the logits; 0: always the most probable token", 0.8, low=0)
    top_k: int = spec("only the k most probable tokens; 0: all", 0, unit="tokens", low=0)
    top_p: float = spec("only the fewest tokens that hold this much probability; 1: all", 1.0, above=0, high=1)
    min_p: float = spec("only tokens with this share of the likeliest one's probability; 0: all", 0.0, low=0, high=1)
    repetition_penalty: float = spec("divides the logits of tokens that the text holds; 1: none", 1.0, above=0)
    stop: tuple[str, ...] = spec("texts before which a continuation ends", ())
    seed: int = spec("of the random numbers", 0)

    def faults(self) -> list[str]:
        """Faults that no single bound tells of."""
        return ["stop: an empty text would end every continuation at once"] if "" in self.stop else []

    def check(self) -> Sampling:
        """These settings, if they are within their bounds.

        Raises:
            UserErrors: all that are not.
        """
        faults: list[str] = []
        found = build(Sampling, vars(self), faults)
        if found is None:
            raise UserErrors(faults)
        return found


@dataclass(frozen=True)
class BeamSearch:
    """Beam search."""

    beam_size: int = spec("hypotheses kept at each step; 1: greedy", 4, low=1, high=64)
    length_penalty: float = spec("alpha of ((5 + length) / 6) ** alpha (Wu et al. 2016)", 0.6, low=0)
    max_length_ratio: float = spec("longest hypothesis over source length", 2.0, above=0, unit="tokens a token")
    max_length_extra: int = spec("added to that bound", 10, low=0, unit="tokens")


def names() -> dict[str, Any]:
    """Each setting with its default; texts in a list, as JSON has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(Sampling()).items()}
