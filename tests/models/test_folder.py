import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_folder, write_json
from lexmill.models import build, families, family, folder, pretrained
from lexmill.models.common.rows import ROWS

CONFIG: dict[str, Any] = {
    "kind": "language_model",
    "family": "gpt",
    "shape": {"n_layer": 2, "n_head": 2, "d_model": 16, "context": 8, "dropout": 0.1},
    "vocab_size": 19,
    "tokenizer_fingerprint": "0" * 64,
    "corpus": "tiny",
}


def test_a_saved_model_comes_back_the_same_and_in_eval_mode(tmp_path: Path) -> None:
    model = build(CONFIG).eval()
    folder.save(tmp_path / "m", CONFIG, model)
    config, loaded = folder.load(tmp_path / "m")
    tokens = torch.randint(19, (2, 8))
    assert config == CONFIG
    assert not loaded.training
    assert torch.equal(loaded(tokens), model(tokens))


def test_the_same_model_is_the_same_bytes(tmp_path: Path) -> None:
    model = build(CONFIG)
    folder.save(tmp_path / "a", CONFIG, model)
    _, loaded = folder.load(tmp_path / "a")
    folder.save(tmp_path / "b", dict(reversed(CONFIG.items())), loaded)
    assert sha256_folder(tmp_path / "a") == sha256_folder(tmp_path / "b")


def test_the_tied_matrix_is_stored_once(tmp_path: Path) -> None:
    from safetensors import safe_open

    folder.save(tmp_path, CONFIG, build(CONFIG))
    with safe_open(tmp_path / folder.WEIGHTS, "pt") as file:
        shapes = [tuple(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
        assert shapes.count((19, 16)) == 1
        assert file.metadata() == {"format": "pt"}


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json: there is no model here"):
        folder.load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "other"}'])
def test_a_broken_config_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / folder.CONFIG).write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json:(1:)? not a model's config"):
        folder.load(tmp_path)


def test_missing_and_broken_weights_are_named(tmp_path: Path) -> None:
    folder.save(tmp_path, CONFIG, build(CONFIG))
    path = tmp_path / folder.WEIGHTS
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match=r"model\.safetensors: the model's weights cannot be read"):
        folder.load(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=r"model\.safetensors: the model's weights are missing"):
        folder.load(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    folder.save(tmp_path, CONFIG, build(CONFIG))
    write_json(tmp_path / folder.CONFIG, {**CONFIG, "vocab_size": 20, "format": folder.FORMAT})
    with pytest.raises(UserError, match=r"'embedding\.weight' is \(19, 16\), the model has \(20, 16\)"):
        folder.load(tmp_path)


def test_an_unknown_family_is_refused_with_the_nearest_name() -> None:
    assert "gpt" in families()
    with pytest.raises(UserError, match=r"no model family 'gtp', did you mean 'gpt'\?"):
        build({"family": "gtp"})
    with pytest.raises(UserError, match="no model family 'common'"):
        build({"family": "common"})
    with pytest.raises(ValueError, match="must be one of"):
        folder.save("unused", {"kind": "other"}, torch.nn.Linear(1, 1))


def test_a_model_of_another_format_is_refused(tmp_path: Path) -> None:
    """The first format had the rows of a fused projection in another order: its weights would load, and be wrong."""
    folder.save(tmp_path / "m", CONFIG, build(CONFIG))
    path = tmp_path / "m" / folder.CONFIG
    write_json(path, CONFIG)
    for read in (folder.load, pretrained.read):
        with pytest.raises(UserError, match="a model of format 1, this lexmill reads 2: train it again"):
            read(path.parent)


def test_every_row_is_counted_while_transformers_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any thread of the process it then has torch.linspace put its numbers on the CPU."""
    linspace = torch.linspace
    monkeypatch.setattr(torch, "linspace", lambda *given, **more: linspace(*given, **{"device": "cpu", **more}))
    declared = family("linear_attention")
    for row in ROWS:
        shape = asdict(declared.shape(**declared.tiny | {"mixers": [row]}))
        with torch.device("meta"):
            build({"family": "linear_attention", "shape": shape, "vocab_size": 9})


def test_loading_draws_no_random_numbers_and_needs_no_compiler(tmp_path: Path) -> None:
    """Each family, in a process of its own: torch's compiler is seconds of imports."""
    for name in families():
        declared = family(name)
        shape = asdict(declared.shape(**declared.tiny))
        config = {"kind": "language_model", "family": name, "shape": shape, "vocab_size": 9}
        folder.save(tmp_path / name, config, build(config))
    script = """
import sys, torch
from lexmill.models import folder
state = torch.get_rng_state()
for path in sys.argv[1:]:
    folder.load(path)
assert torch.equal(state, torch.get_rng_state())
print("torch._dynamo" in sys.modules)
"""
    others = [name for name in families() if "transformers" in family(name).libraries]  # which imports it anyway
    assert others == ["hugging_face_encoder", "hugging_face_translator"]
    for names, found in ((sorted({*families()} - {*others}), "False\n"), (others, "True\n")):
        folders = [str(tmp_path / name) for name in names]
        done = subprocess.run([sys.executable, "-c", script, *folders], capture_output=True, text=True, check=False)
        assert done.stdout == found, done.stderr
