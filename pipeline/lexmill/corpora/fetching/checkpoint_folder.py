"""A fetched pretrained model as one flat folder in Hugging Face format, checked before anything trains on it.

Only data is kept: weights as safetensors, JSON, text and SentencePiece files. Pickles (`.bin`, `.pt`, `.pkl`) and code
(`.py`) are left out, so that nothing from outside can run. A GGUF file is converted (`gguf_file`); a model folder of
lexmill keeps its layout, with the tokenizer in its own folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from lexmill.base import plugins
from lexmill.base.errors import UserError
from lexmill.base.outside import parsing, read_json_object
from lexmill.base.storage import new_folder
from lexmill.base.weight_files import INDEX, WEIGHTS, weight_files
from lexmill.corpora.fetching.fetch import describe, fill, prefix_errors, write_manifest
from lexmill.corpora.fetching.pins import check_files
from lexmill.corpora.fetching.source_folder import SourceFolder
from lexmill.params.corpora import Source

_KEPT = (".json", ".safetensors", ".txt", ".model", ".spm", ".vocab", ".jinja", ".md")
_TOKENIZERS = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "tokenizer.model",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
)


def fetch_checkpoint(
    source: Source, workspace: str | Path, target_folder: str | Path, pin: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Fill `target_folder` with a pretrained model: config.json, weights, tokenizer, manifest.json.

    The model's folder is that of the topmost config.json among the fetched files; without one, a single GGUF file is
    the model. `source`, `pin` and the returned manifest are as for `fetch`.

    Raises:
        UserError, RetryableError: as `fetch`; also where config.json, weights or tokenizer are missing or damaged.
    """
    with prefix_errors(describe(source)), new_folder(target_folder) as folder:
        came, model = folder / ".came", SourceFolder(folder)
        came.mkdir()
        fetched = SourceFolder(came)
        fill(source, Path(workspace), fetched)
        check_files(fetched.files, pin)
        names = [entry["path"] for entry in fetched.files]
        ggufs = [name for name in names if name.endswith(".gguf")]
        if len(ggufs) == 1 and not any(PurePosixPath(name).name == "config.json" for name in names):
            from lexmill.corpora.fetching.gguf_file import convert

            convert(came / ggufs[0], model)
            fetched.remove()
            return write_manifest(model, source)
        top = _model_folder(names)
        for entry in fetched.files:
            path = PurePosixPath(entry["path"])
            if path.is_relative_to(top) and path.suffix in _KEPT:
                model.take(came / path, path.relative_to(top).as_posix(), entry)
        fetched.remove()
        check_checkpoint(folder)
        return write_manifest(model, source)


def _model_folder(names: list[str]) -> PurePosixPath:
    configs = [PurePosixPath(name) for name in names if PurePosixPath(name).name == "config.json"]
    if not configs:
        raise UserError(f"no config.json among the {len(names)} fetched files; add the model's folder to `members`")
    depth = min(len(path.parts) for path in configs)
    top = [path.parent for path in configs if len(path.parts) == depth]
    if len(top) > 1:
        raise UserError(f"holds several models ({', '.join(map(str, top))}); choose one of them in `members`")
    return top[0]


def check_checkpoint(folder: Path) -> None:
    """Raise `UserError` unless the folder holds a readable config, whole safetensors weights and a tokenizer."""
    try:
        config = read_json_object(folder / "config.json")
    except UserError as error:
        raise UserError(f"config.json cannot be read: {error.message}") from None
    ours = str(config.get("kind")) in plugins.names("kinds")
    if not ours and not isinstance(config.get("model_type"), str):
        raise UserError("config.json has no model_type; it is not a Hugging Face model")
    if not any((folder / name).is_file() for name in (WEIGHTS, INDEX)):
        raise UserError(
            f"no {WEIGHTS} among the fetched files; only safetensors weights are read (pickled .bin files can run"
            " code): choose a package that has them, or convert it once"
        )
    for path in weight_files(folder):
        _check_weights(path)
    place = folder / "tokenizer" if ours else folder
    if not any((place / name).is_file() for name in _TOKENIZERS):
        raise UserError(f"no tokenizer among the fetched files (one of {', '.join(_TOKENIZERS)}); widen `members`")


def _check_weights(path: Path) -> None:
    """Raise `UserError` unless a safetensors file has a readable header and the size that the header gives."""
    from safetensors import safe_open

    with parsing(f"{path.name} is damaged"), safe_open(path, framework="np") as weights:
        if not list(weights.keys()):
            raise UserError(f"{path.name} holds no tensor")
