"""The input and output of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row
from lexmill.params import Evaluation

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer


@dataclass(frozen=True)
class Subject:
    """A model and the test set that it is scored on.

    Attributes:
        name, config: the model's name, and its folder's config.json.
        settings: the `evaluate` part of its entry, as declared by its kind.
        module: the network, in eval mode, on its device.
        corpus, split: the corpus, and which of its splits.
        seed: of random sampling.
    """

    name: str
    config: Mapping[str, Any]
    settings: Any
    module: nn.Module
    tokenizer: Tokenizer
    corpus: PreparedCorpus
    evaluation: Evaluation
    seed: int
    split: str = "test"

    @property
    def resampling(self) -> Resampling:
        """How intervals are drawn."""
        return Resampling.of(self.evaluation, self.seed)

    def records(self) -> Iterator[dict[str, Any]]:
        """The records of the test set, in corpus order."""
        return self.corpus.records(self.split)

    @property
    def words(self) -> str:
        """The model and, unless it is `test`, the test set, for people."""
        return self.name if self.split == "test" else f"{self.name} on {self.split}"


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation.

    Attributes:
        rows: one for each item of the test set.
        metrics, more: the metrics of the whole set with their intervals, and further metrics.
        samples: outputs to read; `samples` is a list of them.
        draw: adds plots to a folder.
    """

    rows: list[Row]
    metrics: dict[str, Any]
    samples: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    draw: Callable[[Path], None] = lambda _: None


@dataclass(frozen=True)
class Baseline:
    """A result that a model must beat: its name, rows and metrics; `samples` as in `Evaluated`."""

    name: str
    rows: list[Row]
    metrics: dict[str, Any]
    samples: list[dict[str, Any]] | None = None
