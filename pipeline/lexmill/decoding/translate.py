"""Lines of text to lines of text: one line in, one line out, in the same order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import nn

from lexmill.decoding.batching import by_length, pad_sources
from lexmill.decoding.beam_search import Translator, beam_search
from lexmill.params import BeamSearch
from lexmill.tokenizers import Tokenizer


@dataclass(frozen=True)
class Translation:
    """The best translation found of a line.

    Attributes:
        text: the translation.
        score: its log-probability in nats under the length penalty; 0 for an empty line.
        truncated: the line was longer than the network's positions and only its beginning was translated.
    """

    text: str
    score: float
    truncated: bool = False


def translate_lines(
    module: nn.Module, tokenizer: Tokenizer, lines: Sequence[str], beam: BeamSearch, batch_tokens: int
) -> list[Translation]:
    """Translate each line; an empty line (or one of blanks) stays, empty.

    Lines are searched in batches of like length; equal lines once. No result depends on the other lines.

    Args:
        module: a translator in eval mode.
        batch_tokens: source tokens times beam size searched at once, padding included.

    Raises:
        UserError: for text that is not Unicode.
    """
    device, translator = next(module.parameters()).device, cast(Translator, module)
    room = translator.max_positions - 1  # the end token needs a position
    encoded = [
        tuple(ids) if line.strip() else () for line, ids in zip(lines, tokenizer.encode_batch(lines), strict=True)
    ]
    sources = list(dict.fromkeys(ids[:room] for ids in encoded if ids))
    found: dict[tuple[int, ...], Translation] = {(): Translation("", 0.0)}
    for group in by_length([(len(ids) + 1) * beam.beam_size for ids in sources], batch_tokens):
        source, mask = pad_sources([sources[i] for i in group], device)
        for i, (best, *_) in zip(group, beam_search(translator, source, mask, beam), strict=True):
            found[sources[i]] = Translation(tokenizer.decode(best.tokens), best.score)
    results = [found[ids[:room]] for ids in encoded]
    return [
        Translation(result.text, result.score, truncated=True) if len(ids) > room else result
        for ids, result in zip(encoded, results, strict=True)
    ]
