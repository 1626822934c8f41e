"""A tagger that starts from a causal network and reads it in both directions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from lexmill import models, params
from lexmill.base import layout
from lexmill.base.errors import UserErrors
from lexmill.kinds.tagger.predict import tag_sentences
from lexmill.models import folder as model_folder
from lexmill.models import pretrained
from lexmill.models.common.state import weights
from lexmill.models.start import start
from lexmill.registry.loader import load_package
from lexmill.stages import baseline, evaluate, register, tokenizer, train
from tests.kinds.tagger.made_project import DECODER, write_decoder


@pytest.mark.usefixtures("workspace")
def test_it_learns_evaluates_and_tags() -> None:
    write_decoder()
    tokenizer.main("words")
    size = json.loads((layout.tokenizer("words") / "tokenizer.json").read_text(encoding="utf-8"))
    config: dict[str, Any] = {"kind": "language_model", "family": "decoder", "shape": DECODER}
    config["vocab_size"] = len(size["model"]["vocab"])
    network = models.build(config)
    model_folder.save(layout.checkpoint("tiny"), config, network)
    shutil.copytree(layout.tokenizer("words"), layout.checkpoint("tiny") / model_folder.TOKENIZER)

    write_decoder(layout.checkpoint("tiny").as_posix())
    tags = {"direction": "both", "tags": ["O"], "scheme": "none", "pieces": "first", "head": "softmax", "dropout": 0.0}
    headed: Any = models.build({**config, **tags})
    start(headed, {**config, **tags}, layout.checkpoint("tiny"), layout.tokenizer("words"))
    for name, tensor in weights(headed.encoder.network).items():
        assert torch.equal(tensor, weights(network)[name]), name

    train.main("ner")
    assert json.loads(layout.metrics("train", "ner").read_text(encoding="utf-8"))["valid_entity_f1"] > 0.8
    assert pretrained.read(layout.model("ner")).state.keys() == weights(network).keys()
    evaluate.main("ner")
    baseline.main("tagger-names")
    register.main("ner")
    package = load_package(layout.package("ner"))
    trained, module = model_folder.load(layout.model("ner"))
    words = ["anna", "went", "in", "ulm"]
    (answer,) = package.predict(["anna went in ulm"])
    assert answer["tags"] == tag_sentences(module, package.tokenizer, [words], trained, 100)[0]


@pytest.mark.usefixtures("workspace")
def test_other_causal_families_are_no_encoders() -> None:
    write_decoder()
    assert params.load().models["ner"].family == "decoder"
    text = Path("params.yaml").read_text(encoding="utf-8")
    Path("params.yaml").write_text(text.replace("family: decoder", "family: llama"), encoding="utf-8")
    with pytest.raises(UserErrors, match=r"models\.ner\.family: 'llama' is unknown"):
        params.load()
