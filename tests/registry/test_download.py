"""A registered model as a checkpoint, pinned by version and fingerprint."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.storage import read_json, sha256_file
from lexmill.models import pretrained
from lexmill.params import parse
from lexmill.params.corpora import RegisteredSource
from lexmill.registry import package
from lexmill.registry.download import registered_model
from lexmill.stages import checkpoint
from lexmill.tokenizers.imported import origin

from .plain import plain_params


@pytest.fixture
def store(published: tuple[Path, list[str]]) -> tuple[Path, str]:
    return published[0], f"sqlite:///{published[0] / 'mlflow.db'}"


def source(root: Path, name: str = "gpt") -> RegisteredSource:
    fingerprint = package.read(root / "artifacts" / "packages" / name)["fingerprint"]
    return RegisteredSource("registered", name, "1", fingerprint)


def test_the_pinned_version_comes_as_a_checkpoint(store: tuple[Path, str], tmp_path: Path) -> None:
    root, uri = store
    manifest = registered_model(source(root), uri, tmp_path / "gpt", root)
    assert read_json(tmp_path / "gpt" / "manifest.json") == manifest
    assert manifest["source"]["version"] == "1"
    for entry in manifest["files"]:
        assert sha256_file(tmp_path / "gpt" / entry["path"]) == entry["sha256"]
    first, again = pretrained.read(root / "artifacts" / "models" / "gpt"), pretrained.read(tmp_path / "gpt")
    assert all(again.state[name].equal(tensor) for name, tensor in first.state.items())
    assert origin(tmp_path / "gpt") == origin(root / "artifacts" / "models" / "gpt")


def test_another_fingerprint_or_version_is_refused(store: tuple[Path, str], tmp_path: Path) -> None:
    root, uri = store
    right = source(root)
    with pytest.raises(UserError, match=f"has the fingerprint {right.sha256}, the params say {'0' * 64}"):
        registered_model(replace(right, sha256="0" * 64), uri, tmp_path / "gpt", root)
    with pytest.raises(UserError, match="has no version 7 of a model 'gpt'"):
        registered_model(replace(right, version="7"), uri, tmp_path / "gpt", root)
    with pytest.raises(UserError, match="has no version 1 of a model 'gtp'"):
        registered_model(replace(right, model="gtp"), uri, tmp_path / "gpt", root)
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_any_kind_comes_and_starts_only_its_like(store: tuple[Path, str], tmp_path: Path) -> None:
    root, uri = store
    registered_model(source(root, "en_de"), uri, tmp_path / "en_de", root)
    family, shape, ours = pretrained.read_shape(tmp_path / "en_de")
    assert (family, ours) == ("transformer", True)
    models = parse(plain_params()).models
    assert models["en_de"].start_error("en_de", family, shape) == ""
    assert "family" in models["gpt"].start_error("gpt", family, shape)


def test_the_stage_asks_the_registry_of_the_execution_settings(
    store: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, uri = store
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "here.yaml")
    Path("here.yaml").write_text(f"tracking_uri: {uri}\n")
    plain = plain_params()
    plain["checkpoints"]["base"] = {"source": asdict(source(root))}
    Path("params.yaml").write_text(json.dumps(plain))
    checkpoint.main("base")
    assert pretrained.read(layout.checkpoint("base")).ours
    plain["checkpoints"]["base"]["source"]["sha256"] = "0" * 64
    Path("params.yaml").write_text(json.dumps(plain))
    with pytest.raises(UserError, match=r"checkpoints\.base\.source: version 1 of 'gpt' has the fingerprint"):
        checkpoint.main("base")


def test_params_take_it_for_a_checkpoint_and_for_no_corpus() -> None:
    registered = {"kind": "registered", "model": "gpt", "version": "1", "sha256": "0" * 64}
    plain = plain_params()
    plain["checkpoints"]["base"] = {"source": registered}
    assert isinstance(parse(plain).checkpoints["base"].source, RegisteredSource)
    plain["corpora"]["plays"]["source"] = registered
    with pytest.raises(UserError, match=r"corpora\.plays\.source\.kind: 'registered' is unknown"):
        parse(plain)
