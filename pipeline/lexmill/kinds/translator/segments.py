"""What BLEU is made of, and what a score of the whole does not say: the lengths, what was copied, what was lost.

Placeholders are what a program fills in or reads: `{name}`, `%s`, tags, addresses. One that is lost, changed or
invented can break the program, whatever the rest of the sentence says.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lexmill.evaluation.rows import Row
from lexmill.evaluation.significance import by_thirds

PLACEHOLDER = re.compile(
    r"\$?\{[^{}]*\}"  # {name}, ${name}
    r"|(?<!\d)%(?:\(\w+\)|\d+\$)?[-+#0]*\d*(?:\.\d+)?[sdifuxX@]"  # printf's %s, %1$s, %(n)i, %.1f; not of 50%ige
    r"|</?[A-Za-z][^<>]*>|https?://[^\s<>]*[\w/]"
)
_NUMBER = re.compile(r"\d+")
_ORDERS = range(1, 5)


def bleu_parts(sums: NDArray[np.int64]) -> dict[str, float]:
    """Return the parts of BLEU (Papineni et al. 2002) from its summed statistics.

    With lengths c and r of translations and references, and for each order n the n-grams that are in the reference,
    each counted at most as often as it is there, and all n-grams of the translations,

        bleu_n = 100 right_n / all_n,   brevity_penalty = min(1, exp(1 - r / c)),
        BLEU = brevity_penalty * (bleu_1 bleu_2 bleu_3 bleu_4) ^ (1/4).

    Args:
        sums: c, r, right_1 .. right_4, all_1 .. all_4.
    """
    ours, theirs, right, total = int(sums[0]), int(sums[1]), sums[2:6], sums[6:10]
    found = {f"bleu_{n}": 100 * float(right[n - 1] / total[n - 1]) if total[n - 1] else 0.0 for n in _ORDERS}
    penalty = 1.0 if ours >= theirs else (math.exp(1 - theirs / ours) if ours else 0.0)
    return {**found, "brevity_penalty": penalty, "length_ratio": ours / theirs if theirs else 0.0}


def kept(pattern: re.Pattern[str], source: str, hypothesis: str) -> bool | None:
    """Whether a translation has what the pattern finds in its source, as often and no more; None: there is nothing."""
    wanted = Counter(pattern.findall(source))
    return wanted == Counter(pattern.findall(hypothesis)) if wanted else None


def details(rows: Sequence[Row], bleu: NDArray[np.int64]) -> dict[str, float]:
    """Return the parts of BLEU, those by length of the source, and shares of sentences.

    `copied` is the share of translations that are their source though the reference is not; `kept_placeholders` and
    `kept_numbers` of the sentences with any in which all are kept, none where there are no such sentences.

    Args:
        bleu: the statistics of each row, (rows, 10).
    """
    found = bleu_parts(bleu.sum(axis=0))
    for name, places in by_thirds(rows, lambda row: len(row["source"])).items():
        parts = bleu_parts(bleu[places].sum(axis=0))
        logs = sum(math.log(parts[f"bleu_{n}"]) if parts[f"bleu_{n}"] else -math.inf for n in _ORDERS) / 4
        found[f"bleu_of_{name.replace(' ', '_')}"] = parts["brevity_penalty"] * math.exp(logs)
    texts = [(row["source"], row["reference"], row["hypothesis"]) for row in rows]
    found["copied"] = float(np.mean([made.strip() == source.strip() != right.strip() for source, right, made in texts]))
    for name, pattern in (("placeholders", PLACEHOLDER), ("numbers", _NUMBER)):
        each = [one for source, _, made in texts if (one := kept(pattern, source, made)) is not None]
        if each:
            found[f"kept_{name}"], found[f"with_{name}"] = float(np.mean(each)), len(each)
    return found
