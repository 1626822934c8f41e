"""Predictions of a packaged translator: one translation per line, "" for an empty one; its param is `beam_size`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lexmill.decoding import predictor
from lexmill.decoding.settings import BeamSearch, built

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer


class Predictor(predictor.Predictor):
    """Translates lines."""

    most: ClassVar[Mapping[str, int]] = {"beam_size": 64}

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"beam_size": config["evaluate"]["beam"]["beam_size"]}

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[str]:
        own = built(BeamSearch, self.config["evaluate"]["beam"])
        beam = replace(own, beam_size=built(BeamSearch, chosen).beam_size)
        found = translate_lines(self.module, self.tokenizer, texts, beam, predictor.BATCH_TOKENS)
        return [translation.text for translation in found]


@dataclass(frozen=True)
class Translation:
    """The best translation found for a line.

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
    """Translate each line; a blank line gives an empty one.

    Lines of similar length are searched together, equal lines once. No result depends on the other lines.

    Args:
        module: a translator in eval mode.
        batch_tokens: source tokens times beam size searched at once, padding included.

    Raises:
        UserError: a text is not Unicode.
    """
    from lexmill.decoding.batching import by_length, pad_sources
    from lexmill.decoding.beam_search import EncoderDecoder, beam_search

    device, translator = next(module.parameters()).device, cast(EncoderDecoder, module)
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
