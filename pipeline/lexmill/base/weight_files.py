"""Which safetensors files hold the weights of a folder in Hugging Face format: one, or those that an index names."""

from __future__ import annotations

from pathlib import Path

from lexmill.base.errors import UserError
from lexmill.base.outside import read_json_object

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """Return the files of a folder's weights, sorted.

    Raises:
        UserError: there are none, only pickled ones, or one that the index names is missing or outside the folder.
    """
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        pickled = sorted(path.name for path in folder.glob("*.bin"))
        why = "; {} is a pickle, which can run code and is never read: convert it once"
        raise UserError(f"there are no safetensors weights here{why.format(pickled[0]) if pickled else ''}", folder)
    found = read_json_object(folder / INDEX).get("weight_map")
    if not isinstance(found, dict) or not found or not all(map(_is_name, found.values())):
        raise UserError("not an index of weights: weight_map must give a file name for each tensor", folder / INDEX)
    names = sorted(set(found.values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UserError(f"{', '.join(missing[:3])}{more}, which the index of the weights names, is missing", folder)
    return [folder / name for name in names]


def _is_name(value: object) -> bool:
    """Whether a value is the plain name of a safetensors file."""
    return isinstance(value, str) and value.endswith(".safetensors") and "/" not in value and value.isprintable()
