"""Predictions of a packaged translator: one translation per line, "" for an empty one.

Its params are the settings of the search; with a `temperature` above 0 a translation is drawn, not searched for, and
with `mbr` chosen from so many draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from lexmill.base.errors import UserError
from lexmill.decoding import predictor
from lexmill.decoding.settings import BeamSearch, Sampling, built
from lexmill.kinds.translator import Evaluate, MinimumRisk
from lexmill.kinds.translator.tags import KEY, asking
from lexmill.kinds.translator.terms import phrases_of

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer

DRAWING: Mapping[str, Any] = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "seed": 0}


class Predictor(predictor.Predictor):
    """Translates lines."""

    most: ClassVar[Mapping[str, int]] = {"beam_size": 64, "mbr": 64}

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        own = built(Evaluate, config["evaluate"])
        chosen = {**DRAWING, "mbr": own.mbr.candidates}
        if own.mbr.candidates:
            chosen |= {"temperature": own.mbr.temperature, "top_p": own.mbr.top_p, "seed": own.mbr.seed}
        languages = config.get(KEY, ())
        return {**vars(own.beam), **chosen, **({"to": languages[0]} if languages else {})}

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[str]:
        return [best.text for best, *_ in self.translations(texts, chosen)]

    def translations(
        self,
        texts: Sequence[str],
        params: Mapping[str, Any],
        *,
        n_best: int = 1,
        prefix: str = "",
        lexicon: Sequence[tuple[str, str]] = (),
    ) -> list[list[Translation]]:
        """Return the `n_best` translations of each text, or as many draws; each begins with the prefix.

        `lexicon` as in `translate`.

        Raises:
            UserErrors: an unknown param, or one out of bounds.
            UserError: more translations than the search keeps, or `mbr` without draws.
        """
        chosen = self.chosen(params)
        begin = asking(self.tokenizer, self.config, chosen.pop("to", ""))
        candidates = built(MinimumRisk, {"candidates": chosen.pop("mbr")}).candidates
        sampling = built(Sampling, {key: chosen.pop(key) for key in DRAWING})
        return translate(
            self.module,
            self.tokenizer,
            texts,
            built(BeamSearch, chosen),
            predictor.BATCH_TOKENS,
            n_best=n_best,
            begin=begin,
            prefixes=[prefix] * len(texts),
            sampling=sampling if sampling.temperature > 0 else None,
            candidates=candidates,
            lexicon=lexicon,
        )


def together(models: Sequence[Predictor]) -> Predictor:
    """Return translators as one, by the mean of their probabilities; the first one's settings are the defaults.

    Raises:
        UserError: their tokenizers or their target languages differ.
    """
    first, *others = models
    for one in others:
        if one.tokenizer.fingerprint != first.tokenizer.fingerprint:
            raise UserError(f"'{one.name}' has another tokenizer than '{first.name}'; an ensemble needs the same one")
        if one.config.get(KEY) != first.config.get(KEY):
            raise UserError(f"'{one.name}' has other target languages than '{first.name}'; an ensemble needs the same")
        if one.config.get("begins") != first.config.get("begins"):
            raise UserError(f"'{one.name}' has other prefixes than '{first.name}'; an ensemble needs the same")
    if not others:
        return first
    from lexmill.decoding.ensemble import Ensemble

    return Predictor(first.name, first.config, Ensemble([one.module for one in models]), first.tokenizer)


@dataclass(frozen=True)
class Translation:
    """A translation of a line.

    Attributes:
        text: the translation.
        score: its log-probability in nats, ranked by its length as the search says, or its mean chrF; 0 for an empty
            line.
        truncated: the line was longer than the network's positions and only its beginning was translated.
    """

    text: str
    score: float
    truncated: bool = False


def translate_lines(
    module: nn.Module,
    tokenizer: Tokenizer,
    lines: Sequence[str],
    beam: BeamSearch,
    batch_tokens: int,
    *,
    begin: Sequence[int] = (),
    prefixes: Sequence[str] | None = None,
    sampling: Sampling | None = None,
    candidates: int = 0,
    lexicon: Sequence[tuple[str, str]] = (),
) -> list[Translation]:
    """Return the best translation of each line, or a drawn one; see `translate`."""
    found = translate(
        module,
        tokenizer,
        lines,
        beam,
        batch_tokens,
        begin=begin,
        prefixes=prefixes,
        sampling=sampling,
        candidates=candidates,
        lexicon=lexicon,
    )
    return [best for best, *_ in found]


def translate(
    module: nn.Module,
    tokenizer: Tokenizer,
    lines: Sequence[str],
    beam: BeamSearch,
    batch_tokens: int,
    *,
    n_best: int = 1,
    begin: Sequence[int] = (),
    prefixes: Sequence[str] | None = None,
    sampling: Sampling | None = None,
    candidates: int = 0,
    lexicon: Sequence[tuple[str, str]] = (),
) -> list[list[Translation]]:
    """Translate each line, best first; a blank line gives one empty translation.

    Lines of similar length are decoded together, equal lines searched once. No result depends on the other lines: draws
    depend on the seed, the line, how often it came before, and the position.

    Args:
        module: a translator in eval mode.
        batch_tokens: source tokens times hypotheses of each decoded at once, padding included.
        n_best: translations of a line; at most the beam's size, or any number of draws.
        begin: ids before those of each line.
        prefixes: the beginning of each translation; its last word may be continued.
        sampling: draw in place of a search.
        candidates: draw so many, and return the different ones of the highest mean chrF against all, at most `n_best`.
        lexicon: pairs of phrases: where the first is in a line, as whole words, the second is in its translations.

    Raises:
        UserError: a text is not Unicode, a prefix or the phrases do not fit, the beam is too small, candidates are not
            drawn, or a lexicon is given for draws.
    """
    if lexicon and sampling is not None:
        raise UserError("a lexicon needs a search; translations that are drawn have no phrases to keep to")
    if candidates:
        if sampling is None:
            raise UserError("the candidates of minimum Bayes risk are drawn; give a temperature above 0")
        drawn = translate(
            module,
            tokenizer,
            lines,
            beam,
            batch_tokens,
            n_best=candidates,
            begin=begin,
            prefixes=prefixes,
            sampling=sampling,
        )
        return [by_risk(own)[:n_best] for own in drawn]
    return _decoded(
        module,
        tokenizer,
        lines,
        beam,
        batch_tokens,
        n_best=n_best,
        begin=begin,
        prefixes=prefixes,
        sampling=sampling,
        lexicon=lexicon,
    )


def rescored(
    found: Sequence[Sequence[Translation]], log_probabilities: Callable[[Sequence[str]], Sequence[float]], weight: float
) -> list[list[Translation]]:
    """Return the translations of each line ordered anew, as `weight` times the log-probability of the text is added.

    Args:
        found: of each line; where all are empty, as of an empty line, they stay as they are.
        log_probabilities: of texts, by a language model whose tokens may be others than the translator's.
    """
    written = [any(one.text for one in own) for own in found]
    texts = list(dict.fromkeys(one.text for own, some in zip(found, written, strict=True) if some for one in own))
    nats = dict(zip(texts, log_probabilities(texts), strict=True)) if texts else {}
    return [
        sorted((replace(one, score=one.score + weight * nats[one.text]) for one in own), key=lambda one: -one.score)
        if some
        else list(own)
        for own, some in zip(found, written, strict=True)
    ]


def by_risk(found: Sequence[Translation]) -> list[Translation]:
    """Return the different texts by their mean chrF against all, which becomes the score."""
    from lexmill.kinds.translator.minimum_risk import expected_chrf

    ranked = expected_chrf([one.text for one in found])
    return [Translation(text, score, found[0].truncated) for text, score in ranked.items()]


def _decoded(
    module: nn.Module,
    tokenizer: Tokenizer,
    lines: Sequence[str],
    beam: BeamSearch,
    batch_tokens: int,
    *,
    n_best: int,
    begin: Sequence[int],
    prefixes: Sequence[str] | None,
    sampling: Sampling | None,
    lexicon: Sequence[tuple[str, str]],
) -> list[list[Translation]]:
    """`translate` without candidates."""
    from lexmill.decoding.batching import by_length, pad_sources
    from lexmill.decoding.beam_search import EncoderDecoder, Hypothesis, beam_search
    from lexmill.decoding.constrained import constrained_search, spelt
    from lexmill.decoding.drawn_translations import draw_translations

    if sampling is None and n_best > beam.beam_size:
        raise UserError(f"{n_best} translations of a line need as large a beam_size; it is {beam.beam_size}")
    device, translator = next(module.parameters()).device, cast(EncoderDecoder, module)
    room = translator.max_positions - 1  # the end token needs a position
    encoded = [
        (*begin, *ids) if line.strip() else () for line, ids in zip(lines, tokenizer.encode_batch(lines), strict=True)
    ]
    begun = [""] * len(lines) if prefixes is None else prefixes
    starts = [tuple(ids) if text else () for text, ids in zip(begun, tokenizer.target.encode_batch(begun), strict=True)]
    special = tokenizer.special
    seen: Counter[tuple[int, ...]] = Counter()
    wanted = []  # (source, prefix, how often the line was drawn before, phrases); None for an empty line
    for line, ids, start in zip(lines, encoded, starts, strict=True):
        wanted.append((ids[:room], start, seen[ids], phrases_of(line, lexicon)) if ids else None)
        seen[ids] += sampling is not None

    places = beam.beam_size if sampling is None else n_best
    jobs = list(dict.fromkeys(job for job in wanted if job is not None))
    found: dict[tuple[Any, ...] | None, list[Translation]] = {None: [Translation("", 0.0)]}
    constrained = [job for job in jobs if job[3]]
    for job in constrained:
        phrases = [spelt(tokenizer.target, text) for text in job[3]]
        source, mask = pad_sources([job[0]], device, special)
        best = constrained_search(
            translator, source, mask, beam, phrases, n_best=n_best, prefix=job[1], special=special
        )
        found[job] = [Translation(tokenizer.decode(one.tokens), one.score) for one in best]
    jobs = [job for job in jobs if not job[3]]
    for group in by_length([(len(source) + 1) * places for source, *_ in jobs], batch_tokens):
        own = [jobs[i] for i in group]
        hypotheses: Sequence[Sequence[Hypothesis]]
        if sampling is None:
            source, mask = pad_sources([job[0] for job in own], device, special)
            hypotheses = beam_search(
                translator, source, mask, beam, n_best, prefixes=[job[1] for job in own], special=special
            )
        else:
            rows = [(*job, draw) for job in own for draw in range(n_best)]
            source, mask = pad_sources([row[0] for row in rows], device, special)
            streams = [f"{sampling.seed} {repeat} {draw} {ids}" for ids, _, repeat, _, draw in rows]
            of_rows = [row[1] for row in rows]
            drawn = draw_translations(
                translator, source, mask, beam, sampling, streams=streams, prefixes=of_rows, special=special
            )
            hypotheses = [drawn[i : i + n_best] for i in range(0, len(drawn), n_best)]
        for job, those in zip(own, hypotheses, strict=True):
            found[job] = [Translation(tokenizer.decode(one.tokens), one.score) for one in those]
    return [
        [replace(one, truncated=True) for one in found[job]] if len(ids) > room else found[job]
        for job, ids in zip(wanted, encoded, strict=True)
    ]
