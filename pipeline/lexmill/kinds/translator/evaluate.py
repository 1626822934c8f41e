"""Evaluates a translator on a test split.

Cost: beam search over it, about beam_size decoder passes a target token; with minimum risk as many as candidates. Each
sentence of `robustness` is translated three times more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lexmill.base import progress
from lexmill.decoding.settings import Sampling
from lexmill.evaluation import plots
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.translator.alignment import alignments
from lexmill.kinds.translator.metrics import score_sums, splitter_of, statistics, summarise, translator_rows
from lexmill.kinds.translator.predict import Translation, translate_lines
from lexmill.kinds.translator.robustness import variants
from lexmill.kinds.translator.tags import asking
from lexmill.kinds.translator.terms import kept_terms

if TYPE_CHECKING:
    from lexmill.models.common.encoder_decoder import EncoderDecoder

SAMPLES = 40
WORST = 12
CHUNK = 256  # lines between progress updates; a translation does not depend on the lines around it


def evaluate(subject: Subject) -> Evaluated:
    """Translate the test split and score the translations."""
    found, truncated = _translated(subject)
    chrf = [score_sums("chrf", row["chrf_stats"]) for row in found]
    worst = sorted(range(len(found)), key=lambda i: (chrf[i], i))[:WORST]

    def shown(places: Iterable[int]) -> list[dict[str, str]]:
        return [{key: found[i][key] for key in ("source", "reference", "hypothesis")} for i in places]

    def draw(folder: Path) -> None:
        pairs = ((found[i]["source"], found[i]["hypothesis"]) for i in spread(len(found), SAMPLES))
        begin = asking(subject.tokenizer, subject.config, subject.corpus.languages[1])
        if pictured := alignments(cast("EncoderDecoder", subject.module), subject.tokenizer, pairs, begin):
            plots.plot_attention(pictured, ("last attention",), folder / "attention.png", subject.name)

    measured = {**metrics(subject, found), **robustness(subject, found), "truncated_sources": truncated}
    samples = {"samples": shown(spread(len(found), SAMPLES)), "worst": shown(worst)}
    return Evaluated(rows=found, metrics=measured, samples=samples, draw=draw)


def rows(subject: Subject) -> list[Row]:
    """Return only the rows."""
    return _translated(subject)[0]


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    found = summarise(rows, subject.corpus.unit, subject.resampling, splitter_of(subject.corpus))
    return {**found, **kept_terms(rows, list(subject.settings.terms.lexicon.items()))}


def robustness(subject: Subject, rows: Sequence[Row]) -> dict[str, float]:
    """Return the BLEU of some of the rows, and of the same sentences in each of `robustness.variants`; {}: none."""
    chosen, splits = subject.settings.robustness, splitter_of(subject.corpus)
    if not chosen.sentences or not rows:
        return {}
    some = [rows[i] for i in spread(len(rows), chosen.sentences)]
    references = [row["reference"] for row in some]
    made = {"unchanged": [row["hypothesis"] for row in some]}
    for name, change in variants(chosen.seed).items():
        lines = [change(row["source"]) for row in some]
        made[name] = [one.text for one in _hypotheses(subject, lines, f"evaluate {subject.words}, {name}")]
    found = {}
    for name, hypotheses in made.items():
        sums = np.array(statistics("bleu", hypotheses, references, splits)).sum(axis=0)
        found[f"bleu_{name}"] = score_sums("bleu", sums)
    return found


def _translated(subject: Subject) -> tuple[list[Row], int]:
    """Return one row per record, in order, and how many sources were cut."""
    records = list(subject.records())
    found = _hypotheses(subject, [record["source"] for record in records], f"evaluate {subject.words}")
    rows = translator_rows(records, [one.text for one in found], splitter_of(subject.corpus))
    return rows, sum(one.truncated for one in found)


def _hypotheses(subject: Subject, lines: Sequence[str], words: str) -> list[Translation]:
    """Return the translation of each line, in order."""
    # Lines of similar length together, for little padding.
    order = sorted(range(len(lines)), key=lambda i: (len(lines[i]), i))
    found: dict[int, Translation] = {}
    mbr, terms = subject.settings.mbr, subject.settings.terms
    begin = asking(subject.tokenizer, subject.config, subject.corpus.languages[1])
    sampling = Sampling(temperature=mbr.temperature, top_p=mbr.top_p, seed=mbr.seed)
    with progress.bar(words, len(lines)) as bar:
        for start in range(0, len(order), CHUNK):
            chunk = order[start : start + CHUNK]
            translations = translate_lines(
                subject.module,
                subject.tokenizer,
                [lines[i] for i in chunk],
                subject.settings.beam,
                subject.evaluation.batch_tokens,
                begin=begin,
                sampling=sampling if mbr.candidates else None,
                candidates=mbr.candidates,
                lexicon=list(terms.lexicon.items()) if terms.forced else (),
            )
            found |= dict(zip(chunk, translations, strict=True))
            bar.update(len(chunk))
    return [found[i] for i in range(len(lines))]
