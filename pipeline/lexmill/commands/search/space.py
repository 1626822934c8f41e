"""Search spaces: conf/search/*.yaml as checked dataclasses.

    model: gpt                                            # an entry of params.yaml
    trials: 20
    seed: 1
    pruner: median
    startup: 5
    space:                                                # keys of that entry
      recipe.optimizer.lr: {kind: log_uniform, low: 0.005, high: 0.1}

Each bound and choice is checked as a value of params.yaml before anything runs. Keys that change the data of a metric
are refused: metrics of different tokenizers or corpora cannot be compared.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lexmill import params
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build, flatten, nearest, spec
from lexmill.base.yaml_file import read_yaml
from lexmill.params import Params

FOLDER = Path("conf") / "search"
# Keys of the data that a model learns from or is measured on, or that shape no training.
_NOT_SEARCHED = ("kind", "family", "start", "evaluate", "data.corpus", "data.train", "data.tokenizer")
_MOST_TOGETHER = 64
_DIGITS = 4

Value = int | float | str | bool | None


class Plain:
    """A scalar of YAML: a number, text, true, false or null."""

    @classmethod
    def parse(cls, value: Any) -> Value:
        """Return the value itself.

        Raises:
            ValueError: it is a list or a mapping.
        """
        if value is None or isinstance(value, int | float | str | bool):
            return value
        raise ValueError(f"{value!r} is no single value")


class _Range:
    """What the ranges share."""

    low: float
    high: float

    def errors(self) -> list[str]:
        return [] if self.low < self.high else [f"high: {self.high} must be above low, {self.low}"]

    @property
    def ends(self) -> tuple[Value, ...]:
        return self.low, self.high

    def _short(self, value: float) -> float:
        """Round to four digits, as a person copies them, within the bounds."""
        return min(max(float(f"{value:.{_DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Uniform(_Range):
    """A number of a range."""

    kind: Literal["uniform"] = spec("a number of a range")
    low: float = spec("the least")
    high: float = spec("the greatest")

    def draw(self, trial: Any, key: str) -> Value:
        """Return the trial's value for params.yaml."""
        return self._short(trial.suggest_float(key, self.low, self.high))


@dataclass(frozen=True)
class LogUniform(_Range):
    """A positive number of a range, uniform in its logarithm."""

    kind: Literal["log_uniform"] = spec("a number of a range, uniform in its logarithm")
    low: float = spec("the least", above=0)
    high: float = spec("the greatest", above=0)

    def draw(self, trial: Any, key: str) -> Value:
        """Return the trial's value for params.yaml."""
        return self._short(trial.suggest_float(key, self.low, self.high, log=True))


@dataclass(frozen=True)
class Integer(_Range):
    """A whole number of a range."""

    kind: Literal["integer"] = spec("a whole number of a range")
    low: int = spec("the least")
    high: int = spec("the greatest")
    step: int = spec("from one to the next", 1, low=1)

    def errors(self) -> list[str]:
        uneven = (self.high - self.low) % self.step
        return super().errors() or ([f"step: {self.step} does not lead from low to high"] if uneven else [])

    def draw(self, trial: Any, key: str) -> Value:
        """Return the trial's value for params.yaml."""
        return int(trial.suggest_int(key, self.low, self.high, step=self.step))


@dataclass(frozen=True)
class Choice:
    """One of several values, in no order."""

    kind: Literal["choice"] = spec("one of some values")
    values: tuple[Plain, ...] = spec("the values")

    def errors(self) -> list[str]:
        if len(self.values) < 2:
            return ["values: give two or more"]
        seen = [(type(value), value) for value in self.values]
        return [f"values: {value!r} is given twice" for value in {v for t, v in seen if seen.count((t, v)) > 1}]

    @property
    def ends(self) -> tuple[Value, ...]:
        return self.values  # type: ignore[return-value]  # Plain parses to the values themselves

    def draw(self, trial: Any, key: str) -> Value:
        """Return the trial's value for params.yaml."""
        found: Value = trial.suggest_categorical(key, list(self.values))
        return found


Dimension = Uniform | LogUniform | Integer | Choice


@dataclass(frozen=True)
class Search:
    """One conf/search/*.yaml."""

    model: str = spec("the model of params.yaml whose choices are searched")
    trials: int = spec("trainings in all", low=1, high=1_000_000)
    seed: int = spec("of the draws: the same search finds the same again", low=0)
    pruner: Literal["median", "hyperband", "none"] = spec("what ends hopeless trainings early")
    startup: int = spec("random trials at first, which median does not prune", low=1)
    space: dict[str, Dimension] = spec("keys of the model's entry and what is tried for them")

    def errors(self) -> list[str]:
        return [] if self.space else ["space: it is empty; give at least one key"]


def load(name: str, root: Path) -> Search:
    """Read a search of conf/search/.

    Raises:
        UserError, UserErrors: there is none, or it has errors.
    """
    path = root / FOLDER / f"{name}.yaml"
    if not path.is_file():
        known = [file.stem for file in (root / FOLDER).glob("*.yaml")]
        raise UserError(f"there is no search '{name}' in {FOLDER}/{nearest(name, known)}")
    errors: list[str] = []
    found = build(Search, read_yaml(path), errors)
    if errors or found is None:
        raise UserErrors([f"{FOLDER / path.name}: {error}" for error in errors])
    return found


@dataclass(frozen=True)
class Target:
    """The searched model of params.yaml, and the whole file as plain data."""

    name: str
    data: Mapping[str, Any]

    @property
    def stage(self) -> str:
        """Return the address of its training stage."""
        return f"train@{self.name}"

    @property
    def path(self) -> str:
        return f"models.{self.name}"

    @property
    def entry(self) -> dict[str, Any]:
        found: dict[str, Any] = self.data["models"][self.name]
        return found

    def with_values(self, values: Mapping[str, Value]) -> dict[str, Any]:
        """Return all of params.yaml with these values in the model's entry."""
        data: dict[str, Any] = copy.deepcopy(dict(self.data))
        for key, value in values.items():
            inner = data["models"][self.name]
            *parents, last = key.split(".")
            for parent in parents:
                inner = inner[parent]
            inner[last] = value
        return data


def target(search: Search, choices: Params, root: Path) -> Target:
    """Return the model of params.yaml that a search names.

    Raises:
        UserError: there is none.
    """
    if search.model in choices.models:
        return Target(search.model, read_yaml(root / "params.yaml"))
    raise UserError(f"the search's model '{search.model}' is not in params.yaml{nearest(search.model, choices.models)}")


def check(search: Search, about: Target, file: str) -> None:
    """Check every bound and choice as a value of params.yaml.

    If there are few combinations, check all of them, which also finds sizes that do not fit together.

    Raises:
        UserErrors: with all errors.
    """
    errors = _names(search, about)
    if not errors:
        ends = {key: dimension.ends for key, dimension in search.space.items()}
        if math.prod(map(len, ends.values())) <= _MOST_TOGETHER:
            tried = [dict(zip(ends, one, strict=True)) for one in itertools.product(*ends.values())]
        else:
            tried = [{key: value} for key, values in ends.items() for value in values]
        errors = _invalid(about, tried)
    if errors:
        raise UserErrors([f"{file}: {error}" for error in errors])


def _names(search: Search, about: Target) -> list[str]:
    keys = flatten(about.entry)
    found = []
    for key in search.space:
        if any(key == one or key.startswith(f"{one}.") for one in _NOT_SEARCHED):
            found.append(f"space.{key}: it changes the data of the metric, or shapes no training; choose other keys")
        elif key.startswith(f"{about.path}."):
            found.append(f"space.{key}: keys are those of the entry; write {key.removeprefix(f'{about.path}.')}")
        elif key not in keys:
            found.append(f"space.{key}: {about.path} has no such key{nearest(key, keys)}")
    return found


def _invalid(about: Target, tried: list[dict[str, Value]]) -> list[str]:
    """Return the errors of params.yaml with these values, each once, with the values that first showed it."""
    found: dict[str, str] = {}
    for values in tried:
        try:
            params.parse(about.with_values(values), "")
        except UserErrors as raised:
            for error in raised.errors:
                found.setdefault(error.removeprefix(": "), as_text(values))
    return [f"space: with {values}: {error}" for error, values in found.items()]


def as_text(values: Mapping[str, Value]) -> str:
    """Return the values as text: `optimizer.lr=0.01, shape.n_layer=4`."""
    return ", ".join(f"{key}={value}" for key, value in values.items())
