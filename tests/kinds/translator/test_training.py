"""The stage on a tiny workspace: what it reads, writes and refuses."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.data.encoding import encode_corpus
from lexmill.models import folder as model_folder
from lexmill.stages import train
from lexmill.tokenizers import kinds, load, saving
from lexmill.training import engine
from tests.support.small_project import whole

RECIPE: dict[str, Any] = {
    "method": "gradient",
    "optimizer": {"name": "adamw", "lr": 0.003},
    "schedule": {"name": "inverse_square_root", "warmup": "2 steps"},
    "length": "6 steps",
    "batch": 64,
    "validate_every": "2 steps",
    "keep": "average",
    "averaged": 2,
}
MODEL: dict[str, Any] = {
    "kind": "translator",
    "family": "transformer",
    "shape": {
        "encoder_layers": 1,
        "decoder_layers": 1,
        "n_head": 2,
        "d_model": 16,
        "d_ffn": 24,
        "dropout": 0.1,
        "max_positions": 12,
    },
    "data": {"corpus": "pairs", "tokenizer": "letters"},
    "start": "xavier.yaml",
    "recipe": RECIPE,
    "evaluate": {},
}
PARAMS = {
    "experiment": "test",
    "data_seed": 1,
    "training_seed": 2,
    "corpora": {
        "pairs": {
            "kind": "parallel",
            "languages": ["en", "de"],
            "source": {"kind": "file", "paths": ["a", "b"]},
            "reader": {"format": "parallel_text", "source": ["a"], "target": ["b"]},
        }
    },
    "tokenizers": {"letters": {"corpus": "pairs", "kind": "character"}},
    "models": {"toy": MODEL},
}


def write_params(**changes: Any) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(whole({**PARAMS, **changes})))


def make_tokenizer(letters: str) -> Path:
    folder = layout.tokenizer("letters")
    folder.mkdir(parents=True, exist_ok=True)
    saving.save(kinds.assemble("character", kinds.character_model(list(letters)), lowercase=False), folder)
    return folder


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n")
    Path("xavier.yaml").write_text("name: xavier\nembedding_std: 0\n")
    write_params()
    make_tokenizer("abcd")
    encode()
    return tmp_path


def encode(turned: bool = False) -> None:
    """The pairs: a text and its reverse; `turned`: of each pair the other way about, so that all lengths stay."""
    rng = random.Random(0)
    texts = ["".join(rng.choice("abcd") for _ in range(rng.randint(1, 9))) for _ in range(80)]
    pairs = [{"source": text, "target": text[::-1]} for text in texts]
    if turned:
        pairs = [{"source": pair["target"], "target": pair["source"]} for pair in pairs]
    too_long = {"source": "a" * 12, "target": "a"}
    splits = {"train": [*pairs[:60], too_long], "valid": pairs[60:]}
    with storage.new_folder(layout.tokens("pairs", "letters")) as folder:
        encode_corpus(folder, "parallel", splits, load(layout.tokenizer("letters")), "0" * 64)


def outputs() -> dict[str, str]:
    paths = (path for place in ("artifacts/models", "metrics", "reports") for path in Path(place).rglob("*"))
    return {str(path): storage.sha256_file(path) for path in paths if path.is_file()}


def test_it_writes_a_model_that_loads_and_the_same_bytes_again(workspace: Path) -> None:
    train.main("toy")
    config, module = model_folder.load(layout.model("toy"))
    assert config["kind"] == "translator"
    assert config["family"] == "transformer"
    tokenizer = load(layout.model("toy") / "tokenizer")
    assert config["tokenizer_fingerprint"] == tokenizer.fingerprint
    assert module.vocab_size == tokenizer.vocab_size
    metrics = storage.read_json(layout.metrics("train", "toy"))
    assert metrics["steps"] == 6
    assert metrics["train_pairs"] == 60
    assert (metrics["train_dropped"], metrics["valid_dropped"]) == (1, 0)
    assert metrics["parameters"] == module.count_parameters()
    header, *rows = layout.curve("toy").read_text().splitlines()
    assert header == "step,tokens,epoch,train_loss,valid_loss,lr,grad_norm,skipped"
    assert len(rows) == 6
    first = outputs()
    assert len(first) == 7
    # Its schedule does not hang on the length, so a longer training may go on from here.
    assert [path.name for path in (workspace / ".lexmill" / "checkpoints").glob("*/step-*")] == ["step-00000006"]
    train.main("toy")
    assert outputs() == first


def test_an_unknown_name_is_refused_with_the_nearest_known(workspace: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'toy'"):
        train.main("toi")


class NotTrained(Exception):
    """Raised in place of a training."""


def caught(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What trainings are known by, one after the other; none is made."""
    seen: list[str] = []

    def fit(*_: Any, identity: dict[str, Any], **__: Any) -> None:
        seen.append(storage.canonical_json(identity))
        raise NotTrained

    monkeypatch.setattr(engine, "fit", fit)
    return seen


def test_a_checkpoint_belongs_to_whatever_was_learned_from(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = caught(monkeypatch)
    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: encode(turned=True),
        lambda: (make_tokenizer("dcba"), encode(turned=True)),
        lambda: Path("xavier.yaml").write_text("name: xavier\nembedding_std: 0.02\n"),
        lambda: write_params(models={"toy": MODEL | {"recipe": RECIPE | {"label_smoothing": 0.3}}}),
        lambda: write_params(data_seed=5),
    ]
    for change in changes:
        change()
        with pytest.raises(NotTrained):
            train.main("toy")
    assert len(set(seen)) == len(changes)


def test_shards_of_another_tokenizer_are_refused(workspace: Path) -> None:
    make_tokenizer("abcde")
    with pytest.raises(UserError, match="another tokenizer"):
        train.main("toy")
    assert not layout.model("toy").exists()


def test_shards_that_are_missing_are_named(workspace: Path) -> None:
    (layout.tokens("pairs", "letters") / "manifest.json").unlink()
    with pytest.raises(UserError, match="run the encode stage"):
        train.main("toy")
