"""Check before any stage runs that a language model has the shape of the checkpoint that it starts from.

The shape is read from the user's own files, or from the folder of the checkpoint stage if that was made from the
present source. A checkpoint that is not fetched yet is compared by the training; a model of params.yaml by
`Params.errors`.
Cost: one small file is read, and torch is started.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path, PurePosixPath

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.storage import read_json
from lexmill.corpora.fetching import pins
from lexmill.corpora.fetching.files import locate
from lexmill.params import Params
from lexmill.params.corpora import FileSource, HubSource, RegisteredSource


def check_start(choices: Params, name: str, path: Path) -> None:
    """Raise `UserError` if `models.<name>` and the checkpoint at `path` have different shapes."""
    from lexmill.models.pretrained import read_shape

    folder = _folder(choices, path.name)
    if folder is None:
        return
    model = choices.models[name]
    family, shape, _ = read_shape(folder, model.family)
    if error := model.start_error(name, family, shape):
        raise UserError(error, "params.yaml")


def _folder(choices: Params, name: str) -> Path | None:
    """Return the folder of a checkpoint's config.json; None if its shape is not known yet."""
    source = choices.checkpoints[name].source
    if isinstance(source, FileSource):
        try:
            found = locate(source, Path.cwd())
        except UserError:
            return None  # reported already
        configs = [place for place in found if PurePosixPath(place).name == "config.json"]
        if configs:  # as the checkpoint stage, take the topmost
            return found[min(configs, key=lambda place: len(PurePosixPath(place).parts))].parent
    if isinstance(source, FileSource) or (isinstance(source, HubSource) and Path(source.dataset).is_dir()):
        return None  # the user's own files may have changed since the stage ran
    folder = layout.checkpoint(name)
    try:
        if not isinstance(source, RegisteredSource):
            source = pins.pinned(source, "checkpoints", name).source
        manifest = read_json(folder / "manifest.json")
    except (UserError, OSError, ValueError):
        return None  # no pin, which is reported already, or not fetched yet
    made_of = manifest.get("source") if isinstance(manifest, dict) else None
    return folder if made_of == json.loads(json.dumps(dataclasses.asdict(source))) else None
