"""Translations drawn token by token from an encoder-decoder.

Cost: a decoder step over unfinished rows for each position. Shape letters: B sources, S source length, R unfinished
rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lexmill.decoding.beam_search import EncoderDecoder, Hypothesis, limits_of, log_norm, ranked
from lexmill.decoding.choosing import next_tokens
from lexmill.decoding.limits import exclude
from lexmill.decoding.numbers import Numbers
from lexmill.decoding.settings import BeamSearch, Sampling
from lexmill.tokenizers.tokenizer import TRAINED, SpecialIds


@torch.inference_mode()
def draw_translations(
    module: EncoderDecoder,
    source: Tensor,
    source_mask: Tensor,
    search: BeamSearch,
    sampling: Sampling,
    *,
    streams: Sequence[str],
    prefixes: Sequence[Sequence[int]] | None = None,
    special: SpecialIds = TRAINED,
) -> list[Hypothesis]:
    """Draw one translation of each source; temperature 0 takes the most probable token, as a beam of one does.

    A translation depends on its source, its prefix and its stream of random numbers alone. Its log-probability is the
    model's own, as in forced decoding, whatever the temperature.

    Args:
        module: an encoder-decoder in eval mode.
        source, source_mask: (B, S) int64 and bool; each row ends with the end token, then padding.
        search: the limits of a translation, and its score.
        sampling: temperature, top_k, top_p and min_p are used.
        streams: the name of each row's random numbers, see `Numbers`.
        prefixes: the first tokens of each translation.
        special: the tokenizer's.

    Raises:
        UserError: the model's output is not finite, or a prefix does not fit.
    """
    bounds, device = limits_of(module, source_mask, search, prefixes), source.device
    found: dict[int, Hypothesis] = {}
    going = list(range(source.size(0)))  # (R,) indices
    if not going:
        return []
    memory = module.encode(source, source_mask)
    cache = module.new_cache(memory, source_mask)
    numbers = Numbers(streams, sampling, device)
    tokens = torch.full((len(going), 1), special.bos, device=device)  # (R, time)
    total = torch.zeros(len(going), dtype=torch.float64, device=device)
    while True:
        logits = module.decode(tokens[:, -1:], memory, source_mask, cache)[:, -1].float()  # (R, V)
        norm = log_norm(logits)
        exclude(logits, tokens[:, 1:], [bounds[i] for i in going], search.no_repeat_ngram, special)
        step = torch.full((len(going),), tokens.size(1) - 1, device=device)
        token = next_tokens(logits, numbers.of(step), sampling)  # (R,)
        total += (logits.gather(1, token[:, None]) - norm)[:, 0].double()
        ends = token == special.eos
        for row in ends.nonzero().flatten().tolist():
            words, log_probability = tuple(tokens[row, 1:].tolist()), float(total[row])
            found[going[row]] = Hypothesis(words, log_probability, ranked(log_probability, len(words) + 1, search))
        kept = (~ends).nonzero().flatten()
        if not len(kept):
            return [found[i] for i in range(source.size(0))]
        if len(kept) < len(going):
            cache.reorder(kept, kept)
            numbers.keep(kept.tolist())
            going = [going[row] for row in kept.tolist()]
        source_mask, memory, total = source_mask[kept], memory[kept], total[kept]
        tokens = torch.cat([tokens[kept], token[kept][:, None]], dim=1)
