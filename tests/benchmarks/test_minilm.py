"""MiniLM beside its peers: the peer computes the same, and both sides train by the same choices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import minilm
from lexmill import params
from lexmill.data.texts import encode, pad
from lexmill.kinds.classifier import Classifier
from lexmill.registry.hugging_face import export
from tests.registry.test_export import make
from tests.registry.test_onnx_export import BERT, TEXTS


def test_the_peer_gives_our_probabilities(tmp_path: Path) -> None:
    labels = ["no", "yes"]
    make(tmp_path / "model", "bert", BERT, "classifier", labels=labels, dropout=0.1, max_tokens=40)
    ours = minilm._predictor(tmp_path / "model")
    export(tmp_path / "model", tmp_path / "there", "made")
    peer = minilm.pooled_bert(tmp_path / "there", labels)
    tokens, mask = pad(encode(ours.tokenizer, TEXTS, 40))
    with torch.inference_mode():
        chances = peer(torch.from_numpy(tokens), torch.from_numpy(mask).long()).logits.softmax(dim=1)
    found = [list(one["scores"].values()) for one in ours.predict(TEXTS)]
    np.testing.assert_allclose(chances.numpy(), found, atol=1e-5)


def test_its_params_are_those_of_the_preset_with_few_texts() -> None:
    model = params.parse(minilm._choices(256)).models["minilm"]
    assert isinstance(model, Classifier)
    assert model.data.max_train == 256


def test_an_unknown_part_is_an_error() -> None:
    with pytest.raises(SystemExit):
        minilm.main(["clasify"])


def test_texts_go_in_calls_of_a_size() -> None:
    assert minilm._calls(["a", "b", "c"], 2) == [["a", "b"], ["c"]]
