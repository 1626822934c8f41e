"""Families that a classifier is made of, through the stages: pooling, word vectors, pixels, neighbours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml

from lexmill import models
from lexmill.base import layout
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import sha256_folder
from lexmill.kinds.classifier.predict import classify_texts
from lexmill.kinds.classifier.task import ClassificationTask
from lexmill.models import folder as model_folder
from lexmill.models.common.heads import NearestNeighbours, PooledClassifier
from lexmill.params import load
from lexmill.registry.hugging_face import export
from lexmill.stages import evaluate, tokenizer, train
from tests.kinds.classifier.made_models import RECIPE, write_network
from tests.support.labelled_model import FINE_TUNING
from tests.support.small_project import whole

LINEAR_PROBE = {"method": "linear_probe", "tolerance": 1e-4}
NEIGHBOURS = {"method": "nearest_neighbours", "neighbours": 3}


def trained() -> tuple[dict[str, Any], Any, dict[str, Any]]:
    train.main("sentiment")
    evaluate.main("sentiment")
    config, module = model_folder.load(layout.model("sentiment"))
    return config, module, json.loads(layout.metrics("evaluate", "sentiment").read_text(encoding="utf-8"))["test"]


@pytest.mark.usefixtures("word_workspace")
@pytest.mark.parametrize(
    ("family", "kind", "recipe"),
    [
        ("text_mlp", "bpe", RECIPE),
        ("text_cnn", "word", RECIPE | {"pooling": "max"}),
        ("gru", "bpe", RECIPE | {"pooling": "last"}),
        ("reservoir", "word", LINEAR_PROBE | {"pooling": "max"}),
        ("bag", "bpe", RECIPE | {"pooling": "none"}),
    ],
)
def test_the_planted_word_is_learned_with_a_tokenizer_trained_here(
    family: str, kind: str, recipe: dict[str, Any]
) -> None:
    write_network(family, recipe, kind)
    tokenizer.main("words")
    config, module, found = trained()
    assert isinstance(module, PooledClassifier)
    pooling = recipe.get("pooling", "mean")
    assert config.get("pooling", "mean") == ("mean" if pooling == "none" else pooling)
    # A third by chance; a reservoir of 16 fixed units and a bag of pieces of words, trained for seconds, learn less.
    assert found["accuracy"] > {"reservoir": 0.4, "bag": 0.6}.get(family, 0.7)


@pytest.mark.usefixtures("word_workspace")
@pytest.mark.parametrize(
    ("family", "recipe", "biased", "refused"),
    [
        ("gpt", RECIPE | {"pooling": "last"}, False, False),
        ("gpt", LINEAR_PROBE | {"pooling": "last"}, True, False),
        ("llama", RECIPE | {"pooling": "last"}, False, False),
        ("llama", RECIPE, True, True),
        ("llama", LINEAR_PROBE | {"pooling": "last"}, True, True),
        ("gru", RECIPE | {"pooling": "last"}, True, True),
    ],
)
def test_a_head_on_the_last_state_has_no_bias_where_transformers_has_none(
    tmp_path: Path, family: str, recipe: dict[str, Any], *, biased: bool, refused: bool
) -> None:
    write_network(family, recipe, "bpe")
    tokenizer.main("words")
    train.main("sentiment")
    config, module = model_folder.load(layout.model("sentiment"))
    assert (module.head.bias is not None, config.get("head_bias", True)) == (biased, biased)
    if refused:
        with pytest.raises(UserError):
            export(layout.model("sentiment"), tmp_path / "there", "sentiment")
        return
    from lexmill import tokenizers

    export(layout.model("sentiment"), tmp_path / "there", "sentiment")
    there = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "there")
    reads = transformers.AutoTokenizer.from_pretrained(tmp_path / "there")
    texts = ["a fine film", "dull " * 50, "so"]
    batch = reads(texts, padding=True, truncation=True, return_tensors="pt")
    ours = classify_texts(module, tokenizers.load(layout.model("sentiment") / model_folder.TOKENIZER), texts, config, 9)
    with torch.no_grad():
        np.testing.assert_allclose(there(**batch).logits.softmax(dim=1), ours, atol=1e-5)
    assert there.config.id2label == dict(enumerate(config["labels"]))


@pytest.mark.usefixtures("word_workspace")
def test_pixels_are_those_of_the_tokenizer_and_no_answer_depends_on_other_texts() -> None:
    write_network("pixel_cnn", RECIPE | {"length": "2 epochs", "pooling": "max"})
    config, module, _ = trained()
    from lexmill import tokenizers
    from lexmill.models.pixel_cnn.font import drawn

    words = tokenizers.load(layout.model("sentiment") / model_folder.TOKENIZER)
    (number, *_) = words.encode(" dull")
    assert module.encoder.pixels[number].tolist() == drawn(words.decode([number]), config["shape"]["characters"])
    texts = ["a fine film", "dull " * 50, "so"]
    together = classify_texts(module, words, texts, config, 4096)
    for text, row in zip(texts, together, strict=True):
        (alone,) = classify_texts(module, words, [text], config, 1)
        assert row == pytest.approx(alone, abs=1e-5)


@pytest.mark.usefixtures("word_workspace")
def test_a_stopped_training_with_batch_norm_ends_like_a_straight_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its statistics are part of the checkpoint."""
    write_network("pixel_cnn", RECIPE | {"length": "1 epochs", "pooling": "max"})
    train.main("sentiment")
    straight = sha256_folder(layout.model("sentiment"))
    Path("execution.yaml").write_text("threads: 1\ncheckpoint_seconds: 0\n", encoding="utf-8")
    original = ClassificationTask.batch

    def stop(task: ClassificationTask, step: int, rank: int, world: int) -> Any:
        if step == 9:
            raise RuntimeError("pulled plug")
        return original(task, step, rank, world)

    with monkeypatch.context() as patch:
        patch.setattr(ClassificationTask, "batch", stop)
        with pytest.raises(RuntimeError, match="pulled plug"):
            train.main("sentiment")
    train.main("sentiment")
    assert sha256_folder(layout.model("sentiment")) == straight


@pytest.mark.usefixtures("word_workspace")
def test_neighbours_are_stored_and_vote() -> None:
    write_network("text_mlp", NEIGHBOURS)
    config, module, found = trained()
    assert isinstance(module, NearestNeighbours)
    assert (config["neighbours"], config["train_texts"], module.vectors.shape) == (3, 120, (120, 16))
    assert module.vectors.norm(dim=1).tolist() == pytest.approx(np.ones(120), abs=1e-5)
    assert found["accuracy"] > 0.4  # of states that nothing has trained
    first = sha256_folder(layout.model("sentiment"))
    train.main("sentiment")
    assert sha256_folder(layout.model("sentiment")) == first


def store_vectors(width: int) -> torch.Tensor:
    """A model folder of word vectors over the corpus's own tokenizer."""
    import shutil

    from lexmill import tokenizers

    words = tokenizers.load(layout.tokenizer("words"))
    shape = {**models.family("skip_gram").tiny, "d_model": width}
    config = {"family": "skip_gram", "shape": shape, "vocab_size": words.vocab_size}
    module: Any = models.build(config)
    folder = layout.model("vectors")
    model_folder.save(folder, {"kind": "word_vectors", **config}, module)
    shutil.copytree(layout.tokenizer("words"), folder / model_folder.TOKENIZER)
    return module.embedding.weight.detach().clone()  # type: ignore[no-any-return]


def with_vectors(width: int) -> None:
    plain = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    vectors = {
        "kind": "word_vectors",
        "family": "skip_gram",
        "shape": {**models.family("skip_gram").tiny, "d_model": width},
        "data": {"corpus": "books", "tokenizer": "words"},
        "start": "start.yaml",
        "recipe": {key: value for key, value in FINE_TUNING.items() if key != "patience"},
        "evaluate": {"ppmi": {"window": 2, "dimensions": 2}},
    }
    plain["corpora"]["books"] = {
        "kind": "text",
        "source": {"kind": "file", "paths": ["x"]},
        "reader": {"format": "text"},
    }
    plain["models"]["vectors"] = vectors
    plain["models"]["sentiment"]["start"] = "artifacts/models/vectors"
    Path("params.yaml").write_text(yaml.safe_dump(whole(plain)), encoding="utf-8")


@pytest.mark.usefixtures("word_workspace")
def test_word_vectors_start_the_embedding_and_nothing_else() -> None:
    write_network("text_mlp", NEIGHBOURS)  # which trains nothing, so the start is what the model has
    tokenizer.main("words")
    vectors = store_vectors(16)
    with_vectors(16)
    train.main("sentiment")
    _, module = model_folder.load(layout.model("sentiment"))
    assert torch.equal(module.encoder.embedding.weight, vectors)  # type: ignore[union-attr]
    with_vectors(8)
    with pytest.raises(UserErrors, match=r"models\.sentiment\.start: .*d_model 8, this model has d_model 16"):
        load()
