"""Kinds of model: what a model is for, a folder each.

A kind's folder declares a `KIND` in its `__init__.py`, which imports no torch, and has these modules, found by name:

    task.py        train(name, choices): train a model of params.yaml
    evaluate.py    evaluate(subject) -> Evaluated: score a model on a test set; rows(subject): its rows only;
                   metrics(subject, rows): the metrics from them
    metrics.py     the metrics of a test split from its rows, and TEST, which compares two models
    baselines.py   baselines(chosen, corpus, how): yields the results that a model must beat
    predict.py     Predictor: a packaged model that answers requests
    command.py     add(app, use): the kind's verb on the command line
    section.html.j2   a model's section in the report
    sentences.py   where its models give sentences probabilities: see `lexmill.evaluation.probes`
    masked.py      where some predict masked tokens: reader(model), see `lexmill.decoding.masked_tokens`

No other package names a kind: all are found here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from lexmill.base import plugins
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build, nearest

if TYPE_CHECKING:
    from lexmill.models.declaration import Role


@dataclass(frozen=True)
class Metric:
    """A metric of the test split.

    Attributes:
        name: its key among the metrics; `words` is its name for people.
        over_tokens: it is a mean over tokens, so it cannot compare models with different tokenizers.
    """

    name: str
    words: str
    higher_is_better: bool
    over_tokens: bool = False


@dataclass(frozen=True)
class Inputs:
    """What the stages of a model read, as paths of the workspace.

    Attributes:
        data: the training data: token shards, or a prepared corpus.
        encodings: (corpus, tokenizer) pairs that must be encoded for it; a mixture's follow from the mixture.
        teacher: the folder of a model of the same kind that it learns from; "": none.
        valid: what it is validated on; "": it is in `data`.
    """

    data: str
    encodings: tuple[tuple[str, str], ...] = ()
    teacher: str = ""
    valid: str = ""


@dataclass(frozen=True)
class Kind:
    """What other packages need to know about a kind.

    Attributes:
        name: the folder's name.
        words: what people call one such model: "classifier", "language model".
        does: what such a model does, for the model card: "gives a text one of its labels".
        verb: the command that uses it.
        corpus: the kind of corpus it is trained and evaluated on: "text", "labelled", "tagged", "parallel",
            "conversation" or "questions".
        entry: the dataclass of an entry of `models` (see `lexmill.params.models.Model`).
        role: of the network families it can use: "causal", "encoder", "encoder_decoder", "static", "bag" or
            "words".
        further_roles: other roles that it can use too.
        both_directions: whether it also takes causal families that can be read in both directions, and reads them so.
        metrics: the test split's metrics to show; the first decides.
        counted: what the training loss counts as targets: "tokens", "texts", "pairs".
        inputs: what a model reads, from its entry as plain data; raises KeyError if a key is missing.
        facts: what the report and the card say about an entry besides what they say of every model: (words, value).
        example: (input, output) of one of the evaluation's samples.
        limits: the model card's warnings, from the entry as plain data.
        baseline: settings of its baselines, from its entry as plain data; models that share baselines must agree on
            all settings but `samples`.
        baseline_tokenizer: whether its baselines use its tokenizer.
        label_form: of a labelled corpus, what its labels must be (`params.readers.LabelForm`); None: anything.
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
    facts: Callable[[Any], list[tuple[str, str]]]
    example: Callable[[Mapping[str, Any]], tuple[Any, Any]]
    limits: Callable[[Mapping[str, Any]], tuple[str, ...]]
    baseline: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda _: {}
    baseline_tokenizer: bool = False
    label_form: Literal["number", "set"] | None = None
    further_roles: tuple[Role, ...] = ()
    both_directions: bool = False

    @property
    def roles(self) -> tuple[Role, ...]:
        """Return all roles of the families it can use."""
        return (self.role, *self.further_roles)

    @property
    def one(self) -> str:
        """One such model with its article: "a classifier", "an encoder"."""
        return f"{'an' if self.words[0] in 'aeiou' else 'a'} {self.words}"

    def evaluate_settings(self, plain: Mapping[str, Any]) -> Any:
        """Return the `evaluate` part of an entry from plain data.

        Raises:
            UserErrors: all errors in it.
        """
        errors: list[str] = []
        found = build(get_type_hints(self.entry)["evaluate"], plain, errors)
        if found is None:
            raise UserErrors(errors)
        return found

    @property
    def scores_sentences(self) -> bool:
        """Whether it has a module `sentences`."""
        return plugins.has("kinds", self.name, "sentences")

    @property
    def predicts_masked_tokens(self) -> bool:
        """Whether it has a module `masked`."""
        return plugins.has("kinds", self.name, "masked")

    def module(self, name: str) -> ModuleType:
        """Return one of the kind's modules: `task`, `evaluate` ..."""
        return plugins.load("kinds", self.name, name)


def names() -> tuple[str, ...]:
    """Return the names of all kinds, sorted."""
    return plugins.names("kinds")


def find(name: object) -> Kind:
    """Return the kind of that name.

    Raises:
        UserError: there is none; names the nearest.
    """
    if name not in names():
        raise UserError(f"there is no kind of model {name!r}{nearest(str(name), names())}")
    kind: Kind = plugins.load("kinds", str(name)).KIND
    if kind.name != name:
        raise UserError(f"kinds/{name}: the name of its KIND is '{kind.name}'; it must be the folder's")
    return kind


def every() -> Sequence[Kind]:
    """Return all kinds, sorted by name."""
    return [find(name) for name in names()]


def metric_names() -> tuple[str, ...]:
    """Return the metrics of all kinds, each once."""
    return tuple(dict.fromkeys(metric.name for kind in every() for metric in kind.metrics))
