"""Which baselines a model's metrics are compared with, and which metrics are stale.

Two metrics are comparable if they were measured on the same test set and, where they are over tokens, with the same
tokenizer: by the fingerprints in their files (`lexmill.corpora.identity`), whatever their names. A file of an older
version has no fingerprints: it is comparable with other such files only.

Cost: reads one manifest and hashes one tokenizer for each model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexmill.base import layout, storage
from lexmill.base.outside import parsing
from lexmill.corpora.identity import MEASURED_ON, measured_on
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.kinds import Metric
from lexmill.params import Params
from lexmill.params.models import Model
from lexmill.report import read


@dataclass(frozen=True)
class Measured:
    """One baseline's metrics, as seen from a model.

    Attributes:
        same_test: measured on the model's test set.
        same_tokens: its tokens are the model's.
        own_tokens: they are meant to be: its tokenizer has the same name in params.yaml.
    """

    metrics: Mapping[str, Any]
    same_test: bool
    same_tokens: bool
    own_tokens: bool

    def compares(self, metric: Metric) -> bool:
        """Return whether it has a metric that is comparable with the model's."""
        return metric.name in self.metrics and self.same_test and (self.same_tokens or not metric.over_tokens)

    def is_left_out(self, metric: Metric) -> bool:
        """Return whether it would be compared if both were measured on the same test set and tokens."""
        meant = metric.name in self.metrics and (self.own_tokens or self.same_tokens or not metric.over_tokens)
        return meant and not self.compares(metric)

    def comparable(self, metrics: Iterable[Metric]) -> dict[str, Any]:
        """Return its metrics without those over other tokens; nothing if its test set is another one."""
        if not self.same_test:
            return {}
        refused = {metric.name for metric in metrics if metric.over_tokens and not self.same_tokens}
        names = {f"{name}{end}" for name in refused for end in ("", "_low", "_high")}
        return {key: value for key, value in self.metrics.items() if key not in names}


def by_name(file: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the baselines of a file of metrics/baseline/: name -> metrics."""
    return {name: one for name, one in file.items() if name != MEASURED_ON and isinstance(one, dict)}


def beside(
    params: Params, model: Model, evaluated: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]]
) -> dict[str, Measured]:
    """Return the baselines of a model's corpus by name.

    Args:
        evaluated: the model's file of metrics/evaluate/.
        files: those of metrics/baseline/, by the keys of `params.baselines`.
    """
    ours = read.mapping(evaluated.get(MEASURED_ON))
    found: dict[str, Measured] = {}
    for key, one in params.baselines_of(model).items():  # the one with the model's own tokenizer is last and wins
        file = files.get(key, {})
        theirs = read.mapping(file.get(MEASURED_ON))
        own = one.tokenizer == model.data.tokenizer
        tokenizers = ours.get("tokenizer"), theirs.get("tokenizer")
        same = own if tokenizers == (None, None) else tokenizers[0] == tokenizers[1]
        for name, metrics in by_name(file).items():
            over_tokens = not name.startswith("byte_")
            same_test = ours.get("test") == theirs.get("test")
            found[name] = Measured(metrics, same_test, same and over_tokens, own and over_tokens)
    return found


def stale_splits(metrics: Mapping[str, Any], corpus: str, tokenizer: str, root: Path) -> set[str]:
    """Return the test sets that were measured before the prepared corpus or the tokenizer changed, if these are here.

    Args:
        metrics: a file of metrics/evaluate/, or the metrics of a package.
        corpus, tokenizer: their names.

    Raises:
        UserError: the prepared corpus is damaged.
    """
    ours = read.mapping(metrics.get(MEASURED_ON))
    then = {"test": ours["test"], **read.mapping(ours.get("tests"))} if "test" in ours else {}
    path = root / layout.tokenizer(tokenizer) / "tokenizer.json"
    if ours.get("tokenizer") and path.is_file() and storage.sha256_file(path) != ours["tokenizer"]:
        return set(then)
    folder = root / layout.corpus(corpus)
    if not then or not (folder / "manifest.json").is_file():
        return set()
    prepared = PreparedCorpus(folder)
    with parsing("not what the stage prepare writes; run it again", folder / "manifest.json"):
        present = measured_on(prepared, None, prepared.further_tests)
    now = {"test": present["test"], **present.get("tests", {})}
    return {split for split, sha256 in then.items() if now.get(split) != sha256}
