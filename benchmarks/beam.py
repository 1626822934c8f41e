"""Greedy and beam search with the decoder's cache, and without.

Both sides: `lexmill.decoding.beam_search` over the same Transformer with random weights and the same sentences in one
batch. The peer's decoder remembers nothing: at each step it computes all positions of each hypothesis, and the
source's keys and values, anew. Random weights seldom end a sentence, so most searches run to the longest length.
Sentences a second. Both must give the same translations.

Shape letters: B sentences, K places, T positions, S source length.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from benchmarks.measure import Comparison, cores, in_turn
from lexmill.decoding.batching import pad_sources
from lexmill.decoding.beam_search import EncoderDecoder, beam_search
from lexmill.decoding.settings import BeamSearch
from lexmill.models.common.init import Xavier, initialize
from lexmill.models.transformer.model import Transformer
from lexmill.models.transformer.shape import Shape as TransformerShape

SHAPE = TransformerShape(3, 3, 4, 192, 768, dropout=0.0)
VOCABULARY = 4000


@dataclass
class Written:
    """The tokens so far: all that is remembered."""

    tokens: Tensor | None = None  # (B K, T)

    def reorder(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Keep these rows, in that order."""
        self.tokens = None if self.tokens is None else self.tokens[rows]


class WithoutCache:
    """A translator that decodes from the beginning at each step."""

    def __init__(self, module: Transformer) -> None:
        self.module = module
        self.max_positions, self.encode = module.max_positions, module.encode

    @staticmethod
    def new_cache(memory: Tensor, source_mask: Tensor) -> Written:
        return Written()

    def decode(self, target_in: Tensor, memory: Tensor, source_mask: Tensor, cache: Written) -> Tensor:
        """(B K, 1) -> (B K, 1, V)."""
        cache.tokens = target_in if cache.tokens is None else torch.cat([cache.tokens, target_in], dim=1)
        return self.module.project(self.module.decode_hidden(cache.tokens, memory, source_mask)[:, -1:])


def compare(
    repetitions: int, sentences: int = 32, longest: int = 30, shape: TransformerShape = SHAPE
) -> list[Comparison]:
    """Measure both sides, greedy and with four places, on sentences of up to `longest` tokens."""
    torch.set_num_threads(cores())
    torch.manual_seed(0)
    module = Transformer(shape, VOCABULARY).eval()
    initialize(module, Xavier(embedding_std=0))
    with torch.no_grad():
        cast(Tensor, module.decoder_norm.weight).mul_(3.0)  # opinions: no ties for rounding to decide
    lengths = torch.randint(longest // 2, longest + 1, (sentences,)).tolist()
    rows = [torch.randint(5, VOCABULARY, (n,)).tolist() for n in lengths]
    source, mask = pad_sources(rows, torch.device("cpu"))
    ours, peer = cast(EncoderDecoder, module), cast(EncoderDecoder, WithoutCache(module))
    what = f"{sentences} sentences of up to {longest} tokens"
    return [_compare(ours, peer, source, mask, BeamSearch(k, 0.6, 1.0, 5), repetitions, what) for k in (1, 4)]


def _compare(  # noqa: PLR0917
    ours: EncoderDecoder,
    peer: EncoderDecoder,
    source: Tensor,
    mask: Tensor,
    search: BeamSearch,
    repetitions: int,
    what: str,
) -> Comparison:
    found: list[list[tuple[int, ...]]] = []

    def rate(translator: EncoderDecoder) -> dict[str, float]:
        begun = time.perf_counter()
        best = beam_search(translator, source, mask, search)
        took = time.perf_counter() - begun
        found.append([one[0].tokens for one in best])
        return {"rate": len(source) / took}

    cached, without = in_turn(lambda: rate(ours), lambda: rate(peer), repetitions)
    if any(one != found[0] for one in found):
        raise RuntimeError("the sides gave different translations")
    name = "greedy" if search.beam_size == 1 else f"beam {search.beam_size}"
    sides = ("cached", cached["rate"]), ("without cache", without["rate"])
    return Comparison("beam", f"{name}, {what}", "sentences/s", *sides)
