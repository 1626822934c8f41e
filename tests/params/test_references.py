"""Names that pretrained models bring into params.yaml: each must lead somewhere."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill import params
from lexmill.base import layout
from lexmill.base.storage import write_json
from lexmill.commands import check
from lexmill.models.declaration import unlike
from lexmill.params.derived import derive
from lexmill.params.references import reference_errors
from tests.support.pretrained import save_gpt2
from tests.support.small_project import MODEL as SMALL
from tests.support.small_project import params_of, whole

TUNED = {
    **SMALL,
    "shape": {"n_layer": 2, "n_head": 2, "d_model": 16, "context": 32, "dropout": 0.0},
    "data": SMALL["data"] | {"tokenizer": "tiny"},
    "start": "artifacts/checkpoints/tiny",
}
PARAMS = {**params_of(8), "checkpoints": {"tiny": {"source": {"kind": "file", "paths": ["gpt2/*"]}}}}


ROWS = "".join(f"row {i}\n\n" for i in range(200))  # enough paragraphs for each split


def model(start: str = "conf/initialization/gpt2.yaml", tokenizer: str = "own", **more: Any) -> dict[str, Any]:
    data = {"corpus": "notes", "train": "notes", "tokenizer": tokenizer}
    return {"kind": "language_model", "family": "gpt", "data": data, "start": start} | more


def plain() -> dict[str, Any]:
    return {
        "corpora": {"notes": {"kind": "text"}, "pairs": {"kind": "parallel"}},
        "tokenizers": {"own": {"corpus": "notes"}},
        "checkpoints": {"smol": {}},
        "models": {
            "base": model(),
            "tuned": model("artifacts/models/base"),
            "smol": model("artifacts/checkpoints/smol", "smol"),
        },
    }


def test_recipes_models_checkpoints_and_imported_tokenizers_are_known() -> None:
    assert reference_errors(plain()) == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("models.tuned.start", "artifacts/models/bas", "there is no model 'bas', did you mean 'base'?"),
        ("models.smol.start", "artifacts/checkpoints/x", "there is no checkpoint 'x'; known: smol"),
        ("models.smol.start", "downloads/gpt2", "'downloads/gpt2' is neither a recipe"),
        ("models.smol.start", "artifacts/tokens/a", "'artifacts/tokens/a' is neither a recipe"),
        ("models.base.start", "artifacts/models/base", "it starts from itself: base -> base"),
        ("models.base.start", "artifacts/models/tuned", "it starts from itself: base -> tuned -> base"),
        ("models.base.data.tokenizer", "owm", "there is no tokenizer or checkpoint 'owm', did you mean 'own'?"),
        ("models.smol.data.tokenizer", "smoll", "there is no tokenizer or checkpoint 'smoll', did you mean 'smol'?"),
        ("models.base.data.corpus", "pairs", "'pairs' is a parallel corpus, a text one is needed"),
        ("models.a b", model(), "a name has letters, digits"),
        ("checkpoints.a b", {}, "a name has letters, digits"),
        ("checkpoints.notes", {}, "corpora has an entry of that name"),
        ("tokenizers.other", {"corpus": "note"}, "tokenizers.other.corpus: there is no corpus 'note', did you mean"),
    ],
)
def test_what_leads_nowhere_is_reported(path: str, value: Any, message: str) -> None:
    data = plain()
    *parents, last = path.split(".")
    functools.reduce(dict.__getitem__, parents, data)[last] = value
    errors = reference_errors(data)
    assert any(message in error for error in errors), errors


def test_a_checkpoint_is_no_data_set_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoints = {"tiny": {"source": {"kind": "hub", "dataset": "someone/model"}}}
    Path("params.yaml").write_text(yaml.safe_dump(whole({**PARAMS, "checkpoints": checkpoints})))
    (error,) = check.gather([params.load])
    assert "checkpoints.tiny.source.kind: hub loads data sets, not models; name a model's files" in error


def test_a_trained_tokenizer_goes_before_a_checkpoints_of_its_name() -> None:
    assert derive(plain())["imported_tokenizers"] == {"smol": {"checkpoint": "smol"}}
    data = plain()
    data["tokenizers"]["smol"] = {"corpus": "notes"}
    assert derive(data)["imported_tokenizers"] == {}


def test_check_names_recipes_and_checkpoint_files_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = TUNED | {"start": "conf/initialization/gpt3.yaml"}
    Path("params.yaml").write_text(yaml.safe_dump(whole({**PARAMS, "models": {"m": model}})))
    Path("rows.txt").write_text(ROWS)
    recipes = Path("conf/initialization")
    recipes.mkdir(parents=True)
    (recipes / "gpt2.yaml").write_text("name: gpt2\nstd: 0.02\n")
    errors = check.gather(check._file_checks())
    assert len(errors) == 2
    assert errors[0].startswith("params.yaml: checkpoints.tiny.source: gpt2/* matches no file")
    assert errors[1] == (
        "params.yaml: models.m.start: there is no file 'conf/initialization/gpt3.yaml', did you mean"
        " 'conf/initialization/gpt2.yaml'?"
    )


def shaped(**changes: Any) -> dict[str, Any]:
    return TUNED | {"shape": TUNED["shape"] | changes}


def errors_of(models: dict[str, Any]) -> list[str]:
    Path("params.yaml").write_text(yaml.safe_dump(whole({**PARAMS, "models": models})))
    return [*check.gather([params.load]), *check.gather(check._file_checks())]


def test_check_compares_the_shape_of_a_start_before_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that another entry trains is compared by params.yaml; the user's own files as they lie there."""
    monkeypatch.chdir(tmp_path)
    Path("rows.txt").write_text(ROWS)
    save_gpt2(tmp_path / "gpt2")
    again = {"start": "artifacts/models/tuned"}
    # Another dropout and a shorter context are no other shape.
    assert errors_of({"tuned": shaped(context=16), "again": shaped(context=8, dropout=0.5) | again}) == []

    assert errors_of({"tuned": TUNED, "again": shaped(n_layer=3, context=64) | again}) == [
        "params.yaml: models.again.start: artifacts/models/tuned has context 32, n_layer 2, this model has"
        " context 64, n_layer 3; only dropout may differ, and context be shorter"
    ]
    llama = {"family": "llama", "shape": TUNED["shape"] | {"n_kv_head": 2, "d_ffn": 16}}
    assert errors_of({"tuned": TUNED, "again": TUNED | llama | again}) == [
        "params.yaml: models.again.start: artifacts/models/tuned has family gpt, this model has family"
        " llama; the family must be the same"
    ]
    assert errors_of({"tuned": shaped(d_model=32)}) == [
        "params.yaml: models.tuned.start: artifacts/checkpoints/tiny has d_head 8, d_model 16, this model"
        " has d_head 16, d_model 32; only dropout may differ, and context be shorter"
    ]


def test_check_compares_the_shape_of_a_fetched_or_registered_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the folder that was brought, as long as it came from the source of today."""
    monkeypatch.chdir(tmp_path)
    Path("rows.txt").write_text(ROWS)
    source = {"kind": "registered", "model": "base", "version": "3", "sha256": "0" * 64}
    monkeypatch.setitem(PARAMS, "checkpoints", {"tiny": {"source": source}})
    assert errors_of({"tuned": shaped(n_layer=3)}) == []  # nobody knows yet
    folder = layout.checkpoint("tiny")
    save_gpt2(folder)
    write_json(folder / "manifest.json", {"files": [], "source": source})
    assert errors_of({"tuned": TUNED}) == []
    (error,) = errors_of({"tuned": shaped(n_layer=3)})
    assert "artifacts/checkpoints/tiny has n_layer 2, this model has n_layer 3;" in error
    write_json(folder / "manifest.json", {"files": [], "source": source | {"version": "2"}})
    assert errors_of({"tuned": shaped(n_layer=3)}) == []  # another version will come
    Path("own.gguf").write_bytes(b"of another shape by now")
    own = {"kind": "file", "paths": ["own.gguf"]}
    monkeypatch.setitem(PARAMS, "checkpoints", {"tiny": {"source": own}})
    write_json(folder / "manifest.json", {"files": [], "source": {**own, "sha256": []}})
    assert errors_of({"tuned": shaped(n_layer=3)}) == []  # what an earlier run made of it does not count


def test_a_shape_of_before_a_field_was_there_has_its_usual_value() -> None:
    shape = {"n_layer": 2, "n_head": 2, "d_model": 16, "context": 32, "norm": "pre"}
    now = shape | {"dropout": 0.1, "d_head": 8, "activation": "gelu_tanh"}
    assert unlike("gpt", now, "gpt", shape) == {}
    assert unlike("gpt", now | {"activation": "gelu"}, "gpt", shape) == {"activation": ("gelu_tanh", "gelu")}
