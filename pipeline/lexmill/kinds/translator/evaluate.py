"""Evaluates a translator on a test split.

Cost: beam search over it, about beam_size decoder passes a target token; with minimum risk as many as candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from lexmill.base import progress
from lexmill.decoding.settings import Sampling
from lexmill.evaluation import plots
from lexmill.evaluation.rows import Row, spread
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.kinds.translator.alignment import alignments
from lexmill.kinds.translator.metrics import score_sums, summarise, translator_rows
from lexmill.kinds.translator.predict import translate_lines
from lexmill.kinds.translator.tags import asking

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

    measured = {**metrics(subject, found), "truncated_sources": truncated}
    samples = {"samples": shown(spread(len(found), SAMPLES)), "worst": shown(worst)}
    return Evaluated(rows=found, metrics=measured, samples=samples, draw=draw)


def rows(subject: Subject) -> list[Row]:
    """Return only the rows."""
    return _translated(subject)[0]


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling, subject.corpus.languages[1])


def _translated(subject: Subject) -> tuple[list[Row], int]:
    """Return one row per record, in order, and how many sources were cut."""
    records = list(subject.records())
    # Lines of similar length together, for little padding.
    order = sorted(range(len(records)), key=lambda i: (len(records[i]["source"]), i))
    hypotheses = [""] * len(records)
    truncated, mbr = 0, subject.settings.mbr
    begin = asking(subject.tokenizer, subject.config, subject.corpus.languages[1])
    sampling = Sampling(temperature=mbr.temperature, top_p=mbr.top_p, seed=mbr.seed)
    with progress.bar(f"evaluate {subject.words}", len(records)) as bar:
        for start in range(0, len(order), CHUNK):
            chunk = order[start : start + CHUNK]
            lines = [records[i]["source"] for i in chunk]
            found = translate_lines(
                subject.module,
                subject.tokenizer,
                lines,
                subject.settings.beam,
                subject.evaluation.batch_tokens,
                begin=begin,
                sampling=sampling if mbr.candidates else None,
                candidates=mbr.candidates,
            )
            for i, translation in zip(chunk, found, strict=True):
                hypotheses[i] = translation.text
                truncated += translation.truncated
            bar.update(len(chunk))
    return translator_rows(records, hypotheses, subject.corpus.languages[1]), truncated
