"""Start, delimiter and extract tokens that a classifier adds to a language model's tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml

from lexmill import models, tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError, UserErrors
from lexmill.data.texts import encode
from lexmill.kinds.classifier import task as training
from lexmill.kinds.classifier.predict import classify_texts
from lexmill.models import folder as model_folder
from lexmill.params import load
from lexmill.params.derived import PARTS
from lexmill.registry.hugging_face import export
from lexmill.stages import evaluate, tokenizer, train
from lexmill.tokenizers.task_tokens import TASK_TOKENS, add_task_tokens, with_task_tokens
from tests.kinds.classifier.made_models import RECIPE, write_network
from tests.support.labelled_model import FINE_TUNING
from tests.support.small_project import whole

OWN = RECIPE | {"pooling": "last", "task_tokens": True, "language_loss": 0.5}


def store_language_model(family: str) -> dict[str, torch.Tensor]:
    """Write a language model with the classifier's tokenizer to start from; return its weights."""
    torch.manual_seed(3)
    folder, words = layout.model("language"), tokenizers.load(layout.tokenizer("words"))
    sizes = {**models.family(family).tiny, "context": 40}
    config = {"family": family, "shape": sizes, "vocab_size": words.vocab_size}
    module: Any = models.build(config)
    model_folder.save(folder, {"kind": "language_model", **config}, module)
    shutil.copytree(layout.tokenizer("words"), folder / model_folder.TOKENIZER)
    return {name: one.detach().clone() for name, one in module.named_parameters()}


def start_from_it() -> None:
    plain = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    plain["models"]["sentiment"]["start"] = "artifacts/models/language"
    language = {**plain["models"]["sentiment"], "kind": "language_model", "start": "start.yaml"}
    language["recipe"] = {key: value for key, value in FINE_TUNING.items() if key != "patience"} | {"batch": 40}
    language["data"] = {"corpus": "books", "train": "books", "tokenizer": "words", "mask_documents": False}
    language["evaluate"] = {"prompts": []}
    reader = {"format": "text"}
    plain["corpora"]["books"] = {"kind": "text", "source": {"kind": "file", "paths": ["x"]}, "reader": reader}
    plain["models"]["language"] = language
    for part in PARTS:
        plain.pop(part, None)
    Path("params.yaml").write_text(yaml.safe_dump(whole(plain)), encoding="utf-8")


@pytest.mark.usefixtures("word_workspace")
def test_texts_and_pairs_stand_between_tokens_of_their_own() -> None:
    plain = tokenizers.load(layout.tokenizer("words"))
    found = with_task_tokens(layout.tokenizer("words"))
    size = plain.vocab_size
    assert found.vocab_size == size + 3
    (one, other), most = plain.encode_batch(["a film", "<start>"]), 40
    assert found.encode_batch(["a film", "<start>"]) == [one, other], "what looks like the token stays text"
    assert encode(found, ["a film", ("a film", "<start>")], most) == [
        [size, *one, size + 2],
        [size, *one, size + 1, *other, size + 2],
    ]
    assert found.decode([size, *one, size + 1, size + 2]) == plain.decode(one)
    assert plain.fingerprint != found.fingerprint

    folder = shutil.copytree(layout.tokenizer("words"), "extended")
    add_task_tokens(Path(folder))
    again = tokenizers.load(folder)
    assert (again.fingerprint, again.between) == (found.fingerprint, [size + 1])
    with pytest.raises(UserError, match="has such a token"):
        with_task_tokens(Path(folder))


@pytest.mark.usefixtures("word_workspace")
@pytest.mark.parametrize("family", ["gpt", "llama"])
def test_a_language_model_learns_them_beside_its_own(family: str, tmp_path: Path) -> None:
    shape = {**models.family(family).tiny, "context": 40}
    write_network(family, OWN | {"length": "4 epochs"}, "bpe", shape=shape)
    tokenizer.main("words")
    weights = store_language_model(family)
    start_from_it()
    kept = weights["embedding.weight"]

    seen: list[torch.Tensor] = []
    original = training.new_network

    def network(*arguments: Any) -> Any:
        module = original(*arguments)
        seen.append(module.encoder.embedding.weight.detach().clone())
        return module

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "new_network", network)
        train.main("sentiment")
    assert torch.equal(seen[0][: len(kept)], kept)
    assert 0.5 < (seen[0][len(kept) :].std() / kept.std()).item() < 1.5

    evaluate.main("sentiment")
    config, module = model_folder.load(layout.model("sentiment"))
    assert config["vocab_size"] == len(kept) + 3
    words = tokenizers.load(layout.model("sentiment") / model_folder.TOKENIZER)
    assert words.backend.id_to_token(words.eos_id) == TASK_TOKENS[2]
    texts = ["a good film", "no film at all"]
    ours = classify_texts(module, words, texts, config, 9)

    export(layout.model("sentiment"), tmp_path / "there", "sentiment")
    there = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "there")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "there")
    ids = encode(words, texts, 40)
    assert theirs(texts)["input_ids"] == ids
    assert theirs("one", "two")["input_ids"] == encode(words, [("one", "two")], 40)[0]
    batch = theirs(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        np.testing.assert_allclose(there(**batch).logits.softmax(dim=1), ours, atol=1e-5)


@pytest.mark.usefixtures("word_workspace")
def test_an_encoder_has_tokens_of_its_own() -> None:
    write_network("modern_encoder", RECIPE | {"task_tokens": True})
    with pytest.raises(UserErrors, match=r"recipe\.task_tokens: family 'modern_encoder' has tokens of its own"):
        load()
