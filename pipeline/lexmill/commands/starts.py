"""Whether a language model has the shape of the checkpoint that it starts from, told before a stage has run.

(Of a model that another entry of params.yaml trains, params.yaml itself knows the shape: `Params.faults`.)
A checkpoint's shape is read where it is known: in the user's own files, or in the folder that the checkpoint stage
left, as long as that came from the source of today. One that is yet to be fetched is compared by the training.
Cost: the reading of a small file, and the start of torch.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path, PurePosixPath
from typing import Any

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.storage import read_json
from lexmill.corpora.fetching import pins
from lexmill.corpora.fetching.files import locate
from lexmill.params import Params
from lexmill.params.corpora import FileSource, HubSource, RegisteredSource


def check_start(choices: Params, name: str, path: Path) -> None:
    """Raise `UserError` where `models.<name>` and the checkpoint at `path` have other shapes."""
    from lexmill.models.pretrained import read_shape

    model, folder = choices.models[name], _folder(choices, path.name)
    if folder is None:
        return
    family, shape, _ = read_shape(folder)
    if fault := model.start_fault(name, family, shape):
        raise UserError(fault, "params.yaml")


def _folder(choices: Params, name: str) -> Path | None:
    """Where the config.json of a checkpoint lies; None: its shape is not known yet."""
    source = choices.checkpoints[name].source
    if isinstance(source, FileSource):
        try:
            found = locate(source, Path.cwd())
        except UserError:
            return None  # told already
        configs = [place for place in found if PurePosixPath(place).name == "config.json"]
        if configs:  # the topmost is the model's, as the checkpoint stage takes it
            return found[min(configs, key=lambda place: len(PurePosixPath(place).parts))].parent
    if isinstance(source, FileSource) or (isinstance(source, HubSource) and Path(source.dataset).is_dir()):
        return None  # the user's own files may have changed since; what was made of them tells nothing
    folder = layout.checkpoint(name)
    return folder if _made_of(folder, _today(source, name)) else None


def _today(source: Any, name: str) -> Any:
    """The source with its pin put in; None where it has none, which is told already."""
    try:
        return source if isinstance(source, RegisteredSource) else pins.pinned(source, "checkpoints", name).source
    except UserError:
        return None


def _made_of(folder: Path, source: Any) -> bool:
    """Whether the checkpoint's folder came from this source, by its manifest."""
    if source is None:
        return False
    try:
        manifest = read_json(folder / "manifest.json")
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("source") == json.loads(json.dumps(dataclasses.asdict(source)))
