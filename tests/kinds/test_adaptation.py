"""What every kind with a head on an encoder can do: adapt it in part, or lift a causal network's mask."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill import kinds, models
from lexmill.base import layout, plugins
from lexmill.models import folder as model_folder
from lexmill.models import pretrained
from lexmill.models.common.both_directions import BothDirections
from lexmill.models.common.state import weights
from lexmill.params.adaptation import Adaptation
from lexmill.stages import evaluate, train
from tests.support.labelled_model import FINE_TUNING, begin, entry, make_checkpoint, params_of, read_json, write
from tests.support.prepared import write_prepared

WORDS = ["film", "plot", "fine", "dull"]
DECODER = {"n_layer": 2, "n_head": 2, "d_model": 16, "d_ffn": 24, "context": 24}
LABELS = {"multilabel_classifier": ("good", "none"), "regressor": ("1", "0"), "sentence_encoder": ("1", "1")}


@pytest.fixture(params=LABELS)
def kind(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A workspace with texts for a kind and a checkpoint of a BERT."""
    begin(tmp_path, monkeypatch)
    high, low = LABELS[request.param]
    texts = [("film fine", high), ("plot dull", low), ("fine plot film", high), ("dull film", low)]
    rows = [{"text": text, "label": label, "second": f"{text} film"} for text, label in texts]
    write_prepared(layout.corpus("texts"), "labelled", {"train": rows * 4, "valid": rows, "test": rows})
    Path("xavier.yaml").write_text("name: xavier\n", encoding="utf-8")
    choose(request.param, {})
    make_checkpoint(WORDS)
    return str(request.param)


def choose(kind: str, changes: dict[str, Any], **recipe: Any) -> None:
    """Write the params.yaml of one epoch of a model."""
    second = {"second": "second"} if kind == "sentence_encoder" else {}
    model = entry(kind, "texts", FINE_TUNING | {"length": "1 epochs"} | recipe) | changes
    write(params_of({"one": model}, second))


def trained(kind: str, changes: dict[str, Any], **recipe: Any) -> tuple[dict[str, Any], Any]:
    """Train a model; return its config and network."""
    choose(kind, changes, **recipe)
    train.main("one")
    return model_folder.load(layout.model("one"))


def encoder_of(module: Any) -> dict[str, Tensor]:
    return weights(module.encoder)


def test_each_kind_with_a_head_on_an_encoder_adapts_it() -> None:
    found = set()
    for name in plugins.names("kinds"):
        recipe = typing.get_type_hints(kinds.find(name).entry)["recipe"]
        choices = typing.get_args(recipe) or (recipe,)
        if any(issubclass(one, Adaptation) for one in choices):
            found.add(name)
    headed = {name for name in plugins.names("kinds") if kinds.find(name).role == "encoder"} - {"encoder"}
    assert found == headed == {"answerer", "classifier", "tagger", *LABELS}
    assert {field.name for field in dataclasses.fields(Adaptation)} > {"layer_decay", "frozen_blocks", "lora_rank"}


def test_frozen_blocks_and_embeddings_stay(kind: str) -> None:
    before = pretrained.read(layout.checkpoint("tiny")).state
    after = encoder_of(trained(kind, {}, frozen_blocks=1, layer_decay=0.5)[1])
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert any(".layer.1." in name for name in changed)
    assert not any(".layer.0." in name or "embeddings" in name for name in changed)


def test_low_ranks_are_merged_into_the_matrices(kind: str) -> None:
    before = pretrained.read(layout.checkpoint("tiny")).state
    after = encoder_of(trained(kind, {}, lora_rank=2)[1])
    assert after.keys() == before.keys()
    matrix = "encoder.layer.0.attention.self.query.weight"
    assert torch.linalg.matrix_rank(after[matrix] - before[matrix], atol=1e-6) in (1, 2)
    assert torch.equal(after["embeddings.word_embeddings.weight"], before["embeddings.word_embeddings.weight"])


def test_a_causal_network_is_read_in_both_directions(kind: str) -> None:
    config, module = trained(kind, {"family": "decoder", "shape": DECODER, "start": "xavier.yaml"})
    assert config["direction"] == "both"
    assert isinstance(module.encoder, BothDirections)
    tokens = torch.tensor([[5, 6, 7, 8], [5, 6, 7, 6]])
    states = module.encoder.hidden(tokens, torch.ones_like(tokens, dtype=torch.bool))
    assert not torch.allclose(states[0, 0], states[1, 0])  # the first token sees the last
    evaluate.main("one")
    assert read_json(layout.metrics("evaluate", "one"))["test"]


def test_a_direction_that_a_family_does_not_have_is_an_error() -> None:
    config = {"family": "gpt", "shape": models.family("gpt").tiny, "vocab_size": 9, "direction": "both"}
    with pytest.raises(models.UserErrors, match="direction: 'both' is nothing that family 'gpt' does"):
        models.build(config)
