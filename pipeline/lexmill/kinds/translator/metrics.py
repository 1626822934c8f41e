"""BLEU, chrF and TER by sacrebleu (Post 2018), from sufficient statistics kept in rows.

Text is detokenised, and BLEU splits its words by a rule (`splitter`); of a tokenised corpus the words are those that it
has, subwords joined.

The summed statistics of any choice of rows give sacrebleu's corpus score of that choice to the last digit, so
intervals and paired tests resample without scoring text again. Empty lines are scored like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling, Weights, resampling_units, with_intervals
from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import PairedTest, by_thirds
from lexmill.kinds.translator.segments import details
from lexmill.tokenizers.tokenizer import joined

METRICS = ("bleu", "chrf", "ter")

# Languages that put no spaces between words, where sacrebleu's default would see one word per sentence; and Korean,
# whose words carry their endings. sacrebleu's own choice for ja and ko needs MeCab, and a score must not depend on what
# is installed; characters are its documented alternative. The signature names the tokenizer used.
_BLEU_TOKENIZER = {
    **dict.fromkeys(("zh", "yue", "wuu", "cdo", "cjy", "gan", "hak", "hsn", "lzh", "nan"), "zh"),
    **dict.fromkeys(("ja", "ko", "th", "lo", "km", "my", "bo", "dz"), "char"),
}


PLAIN = "13a"  # sacrebleu's default
TOKENIZED = "none"


def splitter(language: str, *, tokenized: bool = False) -> str:
    """Return sacrebleu's name of the rule by which BLEU splits words, from a BCP 47 tag, by its first part."""
    return TOKENIZED if tokenized else _BLEU_TOKENIZER.get(language.partition("-")[0], PLAIN)


def splitter_of(corpus: PreparedCorpus) -> str:
    """Return the rule for the targets of a corpus."""
    return splitter(corpus.languages[1], tokenized=corpus.tokenized)


@cache
def _metric(name: str, splits: str) -> Any:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "bleu":
        return BLEU(tokenize=splits, force=True)
    return CHRF() if name == "chrf" else TER()


def statistics(
    name: str, hypotheses: Sequence[str], references: Sequence[str], splits: str = PLAIN
) -> list[list[float]]:
    """Return a metric's sufficient statistics of each segment; of tokenised text with its subwords joined."""
    if not hypotheses:
        return []
    if splits == TOKENIZED:
        hypotheses, references = ([joined(text) for text in side] for side in (hypotheses, references))
    # Private in sacrebleu, but its own paired tests use them; a test keeps the sums equal to `corpus_score`.
    return [list(s) for s in _metric(name, splits)._extract_corpus_statistics(hypotheses, [references])]


def score_sums(name: str, sums: Sequence[float] | NDArray[Any]) -> float:
    """Return sacrebleu's corpus score from summed statistics; 0 to 100, TER from 0 up."""
    values = [int(value) if float(value).is_integer() else float(value) for value in sums]
    return float(_metric(name, PLAIN)._compute_score_from_stats(values).score)


def signature(name: str, splits: str = PLAIN) -> str:
    """Return sacrebleu's signature: everything needed to reproduce the score."""
    metric = _metric(name, splits)
    metric._extract_corpus_statistics([""], [[""]])  # the signature holds the number of references seen
    return str(metric.get_signature())


def translator_rows(records: Sequence[dict[str, Any]], hypotheses: Sequence[str], splits: str = PLAIN) -> list[Row]:
    """Return rows from parallel records {"id", "group", "source", "target"} and the translations of their sources.

    Args:
        splits: how BLEU splits words, see `splitter`.

    Raises:
        ValueError: the numbers of hypotheses and records differ.
    """
    if len(records) != len(hypotheses):
        raise ValueError(f"{len(records)} records but {len(hypotheses)} hypotheses")
    references = [record["target"] for record in records]
    if splits == TOKENIZED:
        references, hypotheses = ([joined(text) for text in side] for side in (references, hypotheses))
    found = [statistics(name, hypotheses, references, splits) for name in METRICS]
    return [
        {
            "id": record["id"],
            "group": record["group"],
            "source": record["source"],
            "reference": reference,
            "hypothesis": hypothesis,
            **{f"{name}_stats": stats for name, stats in zip(METRICS, segment, strict=True)},
        }
        for record, reference, hypothesis, *segment in zip(records, references, hypotheses, *found, strict=True)
    ]


def summarise(rows: Sequence[Row], unit: str, how: Resampling, splits: str = PLAIN) -> dict[str, float | str]:
    """Return bleu, chrf and ter with intervals and signatures, the details of `segments`, and the count of items.

    Raises:
        UserError: there are no rows.
    """
    if not rows:
        raise UserError("the test split is empty; give `splits.test` of the corpus a larger share")
    values = {name: np.array([row[f"{name}_stats"] for row in rows]) for name in METRICS}

    def score(weights: Weights) -> dict[str, float]:
        return {name: score_sums(name, weights @ stats) for name, stats in values.items()}

    metrics = score(np.ones(len(rows), dtype=np.int64))
    found = with_intervals(metrics, score, resampling_units(rows, unit, "sentence pair"), how)
    found["items"] = len(rows)
    return {
        **found,
        **details(rows, values["bleu"]),
        **{f"{name}_signature": signature(name, splits) for name in METRICS},
    }


TEST = PairedTest(
    same=("group", "source", "reference"),
    metrics={"bleu": True, "chrf": True, "ter": False},
    score=lambda metric: (partial(score_sums, metric), lambda row: row[f"{metric}_stats"]),
    default=lambda *_: "bleu",
    slices=lambda rows: by_thirds(rows, lambda row: len(row["source"])),
)
