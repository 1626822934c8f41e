"""Names that pretrained models bring into params.yaml: each must lead somewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill import params
from lexmill.base import layout
from lexmill.base.storage import write_json
from lexmill.commands import check
from lexmill.models.declaration import unlike
from lexmill.params.references import reference_faults
from tests.stages.test_continued_pretraining import PARAMS, TUNED
from tests.support.pretrained import save_gpt2

MODEL = {"corpus": "notes", "train": "notes", "tokenizer": "own", "init_from": "conf/initialization/gpt2.yaml"}


def plain() -> dict[str, Any]:
    return {
        "corpora": {"notes": {"kind": "text"}, "pairs": {"kind": "parallel"}},
        "tokenizers": {"own": {"corpus": "notes"}},
        "checkpoints": {"smol": {}},
        "imported_tokenizers": {"theirs": {"checkpoint": "smol"}},
        "encodings": {
            "a": {"corpus": "notes", "tokenizer": "own"},
            "b": {"corpus": "notes", "tokenizer": "theirs"},
        },
        "language_models": {
            "base": dict(MODEL),
            "tuned": MODEL | {"init_from": "artifacts/models/base"},
            "smol": MODEL | {"init_from": "artifacts/checkpoints/smol", "tokenizer": "theirs"},
        },
        "baselines": {"language_model": {"notes": {"corpus": "notes", "tokenizer": "theirs"}}},
    }


def test_recipes_models_checkpoints_and_imported_tokenizers_are_known() -> None:
    assert reference_faults(plain()) == []


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("imported_tokenizers.theirs.checkpoint", "smoll", "there is no checkpoint 'smoll', did you mean 'smol'?"),
        ("language_models.tuned.init_from", "artifacts/models/bas", "there is no language model 'bas', did you mean"),
        ("language_models.smol.init_from", "artifacts/checkpoints/x", "there is no checkpoint 'x'; known: smol"),
        ("language_models.smol.init_from", "downloads/gpt2", "'downloads/gpt2' is neither a recipe"),
        ("language_models.smol.init_from", "artifacts/tokens/a", "'artifacts/tokens/a' is neither a recipe"),
        ("language_models.base.init_from", "artifacts/models/base", "it starts from itself: base -> base"),
        ("language_models.base.init_from", "artifacts/models/tuned", "it starts from itself: base -> tuned -> base"),
        ("language_models.base.tokenizer", "theirz", "there is no tokenizer 'theirz', did you mean 'theirs'?"),
        ("tokenizers.theirs", {"corpus": "notes"}, "tokenizers has an entry of that name"),
        ("imported_tokenizers.a b", {"checkpoint": "smol"}, "a name has letters, digits"),
        ("translators.t", {"corpus": "pairs", "tokenizer": "theirs"}, "'theirs' is imported; a translator needs"),
    ],
)
def test_what_leads_nowhere_is_told(path: str, value: Any, told: str) -> None:
    data = plain()
    group, name, *key = path.split(".")
    entries = data.setdefault(group, {})
    if key:
        entries[name][key[0]] = value
    else:
        entries[name] = value
    faults = reference_faults(data)
    assert any(told in fault for fault in faults), faults


def test_check_names_recipes_and_checkpoint_files_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = TUNED | {"init_from": "conf/initialization/gpt3.yaml"}
    Path("params.yaml").write_text(yaml.safe_dump({**PARAMS, "language_models": {"m": model}}))
    Path("rows.txt").write_text("a row\n")
    recipes = Path("conf/initialization")
    recipes.mkdir(parents=True)
    (recipes / "gpt2.yaml").write_text("name: gpt2\nstd: 0.02\n")
    faults = check.gather(check._file_checks())
    assert len(faults) == 2
    assert faults[0].startswith("params.yaml: checkpoints.tiny.source: gpt2/* matches no file")
    assert faults[1] == (
        "params.yaml: language_models.m.init_from: there is no file 'conf/initialization/gpt3.yaml', did you mean"
        " 'conf/initialization/gpt2.yaml'?"
    )


def shaped(**changes: Any) -> dict[str, Any]:
    return TUNED | {"shape": TUNED["shape"] | changes}


def faults_of(models: dict[str, Any]) -> list[str]:
    Path("params.yaml").write_text(yaml.safe_dump({**PARAMS, "language_models": models}))
    return [*check.gather([params.load]), *check.gather(check._file_checks())]


def test_check_compares_the_shape_of_a_start_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that another entry trains is compared by params.yaml; the user's own files as they lie there."""
    monkeypatch.chdir(tmp_path)
    Path("rows.txt").write_text("a row\n")
    save_gpt2(tmp_path / "gpt2")
    again = {"init_from": "artifacts/models/tuned"}
    # Another dropout and a shorter context are no other shape.
    assert faults_of({"tuned": shaped(context=16), "again": shaped(context=8, dropout=0.5) | again}) == []

    assert faults_of({"tuned": TUNED, "again": shaped(n_layer=3, context=64) | again}) == [
        "params.yaml: language_models.again.init_from: artifacts/models/tuned has context 32, n_layer 2, this model has"
        " context 64, n_layer 3; only dropout may differ, and context be shorter"
    ]
    llama = {"family": "llama", "shape": TUNED["shape"] | {"n_kv_head": 2, "d_ffn": 16}}
    assert faults_of({"tuned": TUNED, "again": TUNED | llama | again}) == [
        "params.yaml: language_models.again.init_from: artifacts/models/tuned has family gpt, this model has family"
        " llama; the family must be the same"
    ]
    assert faults_of({"tuned": shaped(d_model=32)}) == [
        "params.yaml: language_models.tuned.init_from: artifacts/checkpoints/tiny has d_head 8, d_model 16, this model"
        " has d_head 16, d_model 32; only dropout may differ, and context be shorter"
    ]


def test_check_compares_the_shape_of_a_fetched_or_registered_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the folder that was brought, as long as it came from the source of today."""
    monkeypatch.chdir(tmp_path)
    Path("rows.txt").write_text("a row\n")
    source = {"kind": "registered", "model": "base", "version": "3", "sha256": "0" * 64}
    monkeypatch.setitem(PARAMS, "checkpoints", {"tiny": {"source": source}})
    assert faults_of({"tuned": shaped(n_layer=3)}) == []  # nobody knows yet
    folder = layout.checkpoint("tiny")
    save_gpt2(folder)
    write_json(folder / "manifest.json", {"files": [], "source": source})
    assert faults_of({"tuned": TUNED}) == []
    (fault,) = faults_of({"tuned": shaped(n_layer=3)})
    assert "artifacts/checkpoints/tiny has n_layer 2, this model has n_layer 3;" in fault
    write_json(folder / "manifest.json", {"files": [], "source": source | {"version": "2"}})
    assert faults_of({"tuned": shaped(n_layer=3)}) == []  # another version will come
    Path("own.gguf").write_bytes(b"of another shape by now")
    own = {"kind": "file", "paths": ["own.gguf"]}
    monkeypatch.setitem(PARAMS, "checkpoints", {"tiny": {"source": own}})
    write_json(folder / "manifest.json", {"files": [], "source": {**own, "sha256": []}})
    assert faults_of({"tuned": shaped(n_layer=3)}) == []  # what was made of it before tells nothing


def test_a_shape_of_before_a_field_was_there_has_its_usual_value() -> None:
    shape = {"n_layer": 2, "n_head": 2, "d_model": 16, "context": 32, "norm": "pre"}
    now = shape | {"dropout": 0.1, "d_head": 8, "activation": "gelu_tanh"}
    assert unlike("gpt", now, "gpt", shape) == {}
    assert unlike("gpt", now | {"activation": "gelu"}, "gpt", shape) == {"activation": ("gelu_tanh", "gelu")}
