"""Kinds of model: what a model is for, a folder each.

A kind's folder declares a `KIND` in its `__init__.py`, which imports no torch, and has these modules, found by name:

    task.py        train(name, choices): a model of params.yaml trained
    evaluate.py    evaluate(subject) -> Evaluated: a model scored on a test split; rows(subject): its rows alone
    metrics.py     the figures of a test split from its rows, and TEST, by which two models are compared
    baselines.py   baselines(chosen, corpus, how): the results that a model must beat, one after the other
    predict.py     Predictor: a packaged model that answers its user
    command.py     add(app, use): the kind's verb on the command line
    section.html.j2   how the report shows what a model made

No other room names a kind: they are found here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_type_hints

from lexmill.base import plugins
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build, nearest

if TYPE_CHECKING:
    from lexmill.models.declaration import Role


@dataclass(frozen=True)
class Metric:
    """A figure of the test split.

    Attributes:
        name: its key among the figures; `words` is how people say it.
        unit: of the figure; "" for a share or a score.
        over_tokens: it is a mean over tokens, so models of other tokenizers cannot be compared by it.
    """

    name: str
    words: str
    higher_is_better: bool
    unit: str = ""
    over_tokens: bool = False


@dataclass(frozen=True)
class Inputs:
    """What the stages of a model read, as paths of the workspace.

    Attributes:
        data: what it is trained on: token shards, or a prepared corpus.
        encodings: (corpus, tokenizer) pairs that must be encoded for it.
    """

    data: str
    encodings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Kind:
    """What the other rooms must know of a kind.

    Attributes:
        name: the folder's name.
        words: how people say it.
        does: what such a model does, for the model card: "gives a text one of its labels".
        verb: the command that uses it.
        corpus: the kind of corpus it is trained and evaluated on.
        entry: the dataclass of an entry of `models` (see `lexmill.params.models.Model`).
        role: of the families of networks that it can be made of (see `lexmill.models.families`).
        metrics: shown figures of the test split; the first decides.
        counted: what a target of the training's loss is: "tokens", "texts".
        inputs: what a model reads, from its entry as plain data; raises KeyError where a key is missing.
        baseline: settings of its baselines, from its entry as plain data; of models that share them, all settings but
            `samples` must be equal.
        baseline_tokenizer: whether its baselines use its tokenizer.
        facts: what the report and the card say of an entry, beyond every model's: (words, value).
        example: (input, output) of one of the evaluation's samples.
        limits: what the model card warns of, from the entry as plain data.
        trained_tokenizer: its tokenizer is one of `tokenizers`, with all special tokens; a checkpoint's will not do.
    """

    name: str
    words: str
    does: str
    verb: str
    corpus: str
    entry: type
    role: Role
    metrics: tuple[Metric, ...]
    counted: str
    inputs: Callable[[Mapping[str, Any]], Inputs]
    baseline: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    baseline_tokenizer: bool
    facts: Callable[[Any], list[tuple[str, str]]]
    example: Callable[[Mapping[str, Any]], tuple[Any, Any]]
    limits: Callable[[Mapping[str, Any]], tuple[str, ...]]
    trained_tokenizer: bool = False

    def evaluate_settings(self, plain: Mapping[str, Any]) -> Any:
        """The `evaluate` part of an entry from plain data.

        Raises:
            UserErrors: with all that is wrong in it.
        """
        faults: list[str] = []
        found = build(get_type_hints(self.entry)["evaluate"], plain, faults)
        if found is None:
            raise UserErrors(faults)
        return found

    def module(self, name: str) -> ModuleType:
        """One of the kind's modules: `task`, `evaluate` ..."""
        return plugins.load("kinds", self.name, name)


def names() -> tuple[str, ...]:
    """All kinds, sorted."""
    return plugins.names("kinds")


def find(name: object) -> Kind:
    """The kind of that name.

    Raises:
        UserError: there is none, with the nearest.
    """
    if name not in names():
        raise UserError(f"there is no kind of model {name!r}{nearest(str(name), names())}")
    kind: Kind = plugins.load("kinds", str(name)).KIND
    return kind


def every() -> Sequence[Kind]:
    """All kinds, in the order of their names."""
    return [find(name) for name in names()]
