"""Settings of sampling and beam search: their bounds and defaults. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from lexmill.base.errors import UserErrors
from lexmill.base.strict import build, spec

_Settings = TypeVar("_Settings")


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen, and when a text ends.

    The filters apply in the order of transformers, each to the result of the one before: repetition penalty,
    temperature, top-k, top-p, min-p. The remaining probabilities are normalised, and one token is drawn.
    """

    max_tokens: int = spec("most new tokens", 100, unit="tokens", low=0, high=1_000_000)
    temperature: float = spec("divides the logits; 0: always the most probable token", 0.8, low=0, high=1000)
    top_k: int = spec("only the k most probable tokens; 0: all", 0, unit="tokens", low=0)
    top_p: float = spec("only the fewest tokens that hold this much probability; 1: all", 1.0, above=0, high=1)
    min_p: float = spec("only tokens with this share of the likeliest one's probability; 0: all", 0.0, low=0, high=1)
    repetition_penalty: float = spec(
        "divides the logits of tokens that the text holds; 1: none", 1.0, low=0.001, high=1000
    )
    stop: tuple[str, ...] = spec("texts before which a continuation ends", ())
    seed: int = spec("of the random numbers", 0)

    def errors(self) -> list[str]:
        """Errors that no single bound covers."""
        return ["stop: an empty text would end every continuation at once"] if "" in self.stop else []

    def check(self) -> Sampling:
        """Return these settings; raise `UserErrors` with all that are out of bounds."""
        return built(Sampling, vars(self))


@dataclass(frozen=True)
class BeamSearch:
    """Beam search.

    With log P of a hypothesis, n its tokens with the end token, and a the `length_penalty`, finished hypotheses are
    ranked by log P / ((5 + n) / 6) ** a (`gnmt`, Wu et al. 2016), log P / n ** a (`average`; a = 1: nats a token), or
    log P + a * n (`word_reward`). The `coverage_penalty` times the coverage, which is at most 0, is added
    (`decoding.coverage`).
    """

    beam_size: int = spec("hypotheses kept at each step; 1: greedy", 4, low=1, high=64)
    length_penalty: float = spec("strength of `ranking`: an exponent, or nats a token", 0.6, low=0, high=100)
    max_length_ratio: float = spec(
        "longest hypothesis over source length", 2.0, above=0, high=1000, unit="tokens a token"
    )
    max_length_extra: int = spec("added to that bound", 10, low=0, high=100_000, unit="tokens")
    ranking: Literal["gnmt", "average", "word_reward"] = spec("how length counts in the order of hypotheses", "gnmt")
    min_length_ratio: float = spec(
        "shortest hypothesis over source length", 0.0, low=0, high=1000, unit="tokens a token"
    )
    no_repeat_ngram: int = spec("n-grams of this length never repeat; 0: they may", 0, low=0, high=1000, unit="tokens")
    coverage_penalty: float = spec("weight of source tokens that attention left out; 0: none", 0.0, low=0, high=100)

    def errors(self) -> list[str]:
        """Errors that no single bound covers."""
        low, high = self.min_length_ratio, self.max_length_ratio
        return [f"min_length_ratio: {low:g} is above max_length_ratio, {high:g}"] if low > high else []


def names() -> dict[str, Any]:
    """Each setting of `Sampling` with its default; tuples as lists, for JSON."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(Sampling()).items()}


def built(of: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    """Build settings from plain values; raise `UserErrors` with all that are out of bounds."""
    errors: list[str] = []
    found = build(of, values, errors)
    if found is None:
        raise UserErrors(errors)
    return found
