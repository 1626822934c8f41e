"""What is evaluated, and what an evaluation gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.rows import Row
from lexmill.params import Evaluation

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer


@dataclass(frozen=True)
class Subject:
    """A model and the corpus whose test split it is scored on.

    Attributes:
        name: the model's.
        config: its model folder's config.json.
        settings: the `evaluate` part of its entry, as its kind declares it.
        module: the network, in eval mode, on its device.
        seed: of what is sampled.
    """

    name: str
    config: Mapping[str, Any]
    settings: Any
    module: nn.Module
    tokenizer: Tokenizer
    corpus: PreparedCorpus
    evaluation: Evaluation
    seed: int


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation gives.

    Attributes:
        rows: one an item of the test split.
        figures: the metrics of the whole split, with their intervals.
        samples: outputs for people; `samples` is a list of them.
        more: further metrics, beside the figures.
        draw: adds pictures to a folder.
    """

    rows: list[Row]
    figures: dict[str, Any]
    samples: dict[str, Any] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    draw: Callable[[Path], None] = lambda _: None


@dataclass(frozen=True)
class Baseline:
    """A result that a model must beat: its name, rows and figures; `samples` as in `Evaluated`."""

    name: str
    rows: list[Row]
    figures: dict[str, Any]
    samples: list[dict[str, Any]] | None = None
