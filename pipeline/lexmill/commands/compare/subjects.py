"""The models of a comparison: choices of conf/model/ on the same corpus, tokenizer and context."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lexmill import kinds, params
from lexmill.base.errors import UserError
from lexmill.base.strict import flatten, nearest, pick
from lexmill.base.yaml_file import read_yaml
from lexmill.config.compose import compose
from lexmill.config.undoing import written
from lexmill.params import Params
from lexmill.params.derived import derive
from lexmill.params.models import Model
from lexmill.report.comparison_charts import METRIC

FOLDER = Path("conf") / "model"
_SHARED = ("data.corpus", "data.train", "data.tokenizer", "data.mask_documents", "shape.context")


@dataclass(frozen=True)
class Subject:
    """One model of a comparison.

    Attributes:
        preset: its file in conf/model/.
        name: its name in params.yaml.
        entry: its entry of `models`.
        base: params.yaml as plain data, for all but the models.
    """

    preset: str
    name: str
    entry: Mapping[str, Any]
    base: Mapping[str, Any]

    def data(self, seed: int) -> dict[str, Any]:
        """Return params.yaml with this model alone and this training seed."""
        data = {**self.base, "models": {self.name: dict(self.entry)}, "training_seed": seed}
        return {**data, **derive(data)}

    def parsed(self) -> Params:
        """Return these params checked; raise `UserErrors` with all errors."""
        return params.parse(self.data(int(self.base["training_seed"])), f"conf/model/{self.preset}.yaml")

    @property
    def model(self) -> Model:
        """Return the checked entry."""
        return self.parsed().models[self.name]

    @property
    def reads(self) -> list[str]:
        """Return the paths that its stages read, besides those that they make."""
        inputs = self.data(0)["inputs"][self.name]
        found = [inputs["start"], inputs["data"], *(f"artifacts/{key}/{inputs[one]}" for key, one in _FOLDERS)]
        return list(dict.fromkeys(found))

    def with_entry(self, entry: Mapping[str, Any]) -> Subject:
        """Return this model with another entry."""
        return dataclasses.replace(self, entry=entry)

    def with_rate(self, factor: float) -> Subject:
        """Return this model with every peak rate of its optimizer times `factor`, in four digits."""
        entry = copy.deepcopy(dict(self.entry))
        optimizer = entry["recipe"]["optimizer"]
        for key in optimizer:
            if key == "lr" or key.endswith("_lr"):
                optimizer[key] = float(f"{optimizer[key] * factor:.4g}")
        return self.with_entry(entry)

    @property
    def rate(self) -> float:
        """Return the peak learning rate."""
        return float(self.entry["recipe"]["optimizer"]["lr"])


_FOLDERS = (("tokenizers", "tokenizer"), ("corpora", "corpus"))


def load(presets: Sequence[str], data: str | None, root: Path) -> list[Subject]:
    """Return the models of a comparison, checked against each other.

    Args:
        presets: names of conf/model/; empty: every `*_tiny` that learns next tokens alone.
        data: the model of params.yaml whose data all read; None: each reads its own.
        root: the workspace.

    Raises:
        UserError: a preset is unknown or no language model, or they differ in what they must share.
        UserErrors: an entry has errors.
    """
    base = read_yaml(root / "params.yaml")
    choices = params.load(root / "params.yaml")
    files = sorted(path.stem for path in (root / FOLDER).glob("*.yaml"))
    for preset in presets:
        if preset not in files:
            raise UserError(f"there is no preset '{preset}' in {FOLDER}/{nearest(preset, files)}")
    names = list(dict.fromkeys(presets)) or [
        one for one in files if one.endswith("_tiny") and _fits(one, root, next_tokens_alone=True)
    ]
    for preset in names:
        if not _fits(preset, root):
            raise UserError(f"the preset {preset} is no language model; only those are compared")
    if not names:
        raise UserError(f"there is no language model named *_tiny in {FOLDER}/; name the presets to compare")
    shared = None if data is None else dataclasses.asdict(pick(choices.models, data, "models").data)
    composed = _composed(names, shared, root)
    for preset, entry in zip(names, composed, strict=True):
        if "length" not in entry["recipe"]:
            raise UserError(f"the preset {preset} is trained by no steps; compare its network")
    found = [
        Subject(preset, preset.replace(".", "_"), entry, base) for preset, entry in zip(names, composed, strict=True)
    ]
    _check_shared(found)
    for subject in found:
        subject.parsed()
    return found


def _fits(preset: str, root: Path, next_tokens_alone: bool = False) -> bool:
    """Return whether a preset, or one it is built on, says that it is measured in bits per byte of running text."""
    data = read_yaml(root / FOLDER / f"{preset}.yaml")
    if next_tokens_alone and data.get("recipe", {}).get("method", "gradient") != "gradient":
        return False
    if "kind" in data:
        kind = kinds.find(data["kind"])
        return kind.corpus == "text" and METRIC in {metric.name for metric in kind.metrics}
    below = [one for one in data.get("defaults", []) if isinstance(one, str) and one != "_self_"]
    return any(_fits(one, root) for one in below)


def _composed(names: Sequence[str], shared: Mapping[str, Any] | None, root: Path) -> list[dict[str, Any]]:
    """Return the entry of each preset, read with the data `shared` if it is given."""
    overrides = []
    for number, name in enumerate(names):
        overrides.append(f"+model@models.compared_{number}={name}")
        overrides += [
            f"++models.compared_{number}.data.{key}={written(value)}" for key, value in (shared or {}).items()
        ]
    models = yaml.safe_load(compose(overrides, root))["models"]
    return [models[f"compared_{number}"] for number in range(len(names))]


def _check_shared(subjects: Sequence[Subject]) -> None:
    for key in _SHARED:
        values: dict[Any, list[str]] = {}
        for subject in subjects:
            values.setdefault(flatten(subject.entry).get(key), []).append(subject.preset)
        if len(values) > 1:
            differing = ", ".join(f"{value} for {' and '.join(names)}" for value, names in values.items())
            how = "--data MODEL gives all the same" if key.startswith("data.") else "compare those that share it"
            raise UserError(f"the presets differ in {key}: {differing}; {how}")
