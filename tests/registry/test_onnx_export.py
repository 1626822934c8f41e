"""`lexmill export --to onnx`: a process with neither lexmill nor torch gives the same answers."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lexmill import kinds, tokenizers
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.commands.deploy import export_model
from lexmill.data.texts import encode
from lexmill.decoding.predictor import Predictor
from lexmill.kinds.tagger.predict import tag_sentences
from lexmill.models import folder as model_folder
from lexmill.registry import export_checks, onnx_export
from lexmill.registry.onnx_export import export_onnx
from tests.registry.test_export import make

BERT = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 256,
    "max_position_embeddings": 48,
}
TEXTS = ["one", "a longer text </s> of several words, Grüße 東京", "x " * 60, "[SEP]"]
PAIRS = [("who turned it", "the miller turned the wheel"), ("a", "b")]
# A process that can have neither.
APART = """
import sys
sys.modules["lexmill"] = sys.modules["torch"] = None
import json, pathlib
import numpy as np, onnxruntime, tokenizers

for line in sys.stdin:
    name, texts = json.loads(line)
    folder = pathlib.Path(name)
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    tokenizer.enable_padding()
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    encoded = tokenizer.encode_batch([tuple(one) if isinstance(one, list) else one for one in texts])
    given = {
        "input_ids": np.array([one.ids for one in encoded]),
        "attention_mask": np.array([one.attention_mask for one in encoded]),
        "token_type_ids": np.array([one.type_ids for one in encoded]),
    }
    (found,) = session.run(None, {one.name: given[one.name] for one in session.get_inputs()})
    config = json.loads((folder / "config.json").read_text())
    print(json.dumps({"config": config, "found": found.tolist()}), flush=True)
"""
Apart = Callable[[Path, list[Any]], dict[str, Any]]


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    """The answers of an exported folder to texts, by that process."""
    command = [sys.executable, "-c", APART]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked, said = process.stdin, process.stdout

        def answer(folder: Path, texts: list[Any]) -> dict[str, Any]:
            print(json.dumps([str(folder), texts]), file=asked, flush=True)
            found: dict[str, Any] = json.loads(said.readline())
            return found

        yield answer
        asked.close()


def predictor(folder: Path) -> Predictor:
    config, module = model_folder.load(folder)
    opened: Predictor = (
        kinds.find(config["kind"])
        .module("predict")
        .Predictor("made", config, module, tokenizers.load(folder / "tokenizer"))
    )
    return opened


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier, `model`, and its export, `there`."""
    place = tmp_path_factory.mktemp("classifier")
    more = {"labels": ["bad", "fair", "good"], "dropout": 0.1, "max_tokens": 40}
    export_onnx(make(place / "model", "bert", BERT, "classifier", **more), place / "there", "made")
    return place


def test_a_classifier_gives_the_same_probabilities(classifier: Path, apart: Apart) -> None:
    there = apart(classifier / "there", TEXTS)
    labels = ["bad", "fair", "good"]
    assert there["config"] == {"kind": "classifier", "labels": labels, "max_tokens": 40, "int8": False}
    ours = [list(one["scores"].values()) for one in predictor(classifier / "model").predict(TEXTS)]
    np.testing.assert_allclose(there["found"], ours, atol=1e-4)
    assert np.ptp(ours, axis=0).max() > 0.05  # they depend on the text
    files = sorted(path.name for path in (classifier / "there").iterdir())
    assert files == ["README.md", "config.json", "model.onnx", "tokenizer.json"]


def test_the_lines_of_the_card_run(classifier: Path) -> None:
    card = (classifier / "there" / "README.md").read_text(encoding="utf-8")
    lines = card.partition("```python\n")[2].partition("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=classifier / "there", capture_output=True, text=True, check=True
    )
    printed = ast.literal_eval(done.stdout)
    ours = predictor(classifier / "model").predict(["a text", "another, longer one"])
    assert [label for label, _ in printed] == [one["label"] for one in ours]
    np.testing.assert_allclose([score for _, score in printed], [one["score"] for one in ours], atol=1e-4)


@pytest.mark.parametrize(
    ("family", "shape", "pooling"),
    [
        ("llama", {"n_layer": 1, "n_head": 2, "n_kv_head": 1, "d_model": 16, "d_ffn": 24, "context": 48}, "last"),
        ("text_mlp", {"n_layer": 1, "d_model": 16}, "mean"),
    ],
)
def test_other_families(tmp_path: Path, family: str, shape: dict[str, Any], pooling: str, apart: Apart) -> None:
    more = {"labels": ["no", "yes"], "dropout": 0.0, "max_tokens": 40, "pooling": pooling}
    made = make(tmp_path / "model", family, shape, "classifier", **more)
    export_onnx(made, tmp_path / "there", "made")
    ours = [list(one["scores"].values()) for one in predictor(made).predict(TEXTS)]
    np.testing.assert_allclose(apart(tmp_path / "there", TEXTS)["found"], ours, atol=1e-4)


@pytest.mark.parametrize("levels", [[], [1.0, 2.0, 5.0]])
def test_a_regressor_gives_the_same_number(tmp_path: Path, levels: list[float], apart: Apart) -> None:
    labels = [f"above {level:g}" for level in levels[:-1]] or ["number"]
    more = {"labels": labels, "levels": levels, "dropout": 0.0, "max_tokens": 40}
    made = make(tmp_path / "model", "bert", BERT, "regressor", **more)
    export_onnx(made, tmp_path / "there", "made")
    ours = [one["number"] for one in predictor(made).predict(TEXTS)]
    np.testing.assert_allclose(apart(tmp_path / "there", TEXTS)["found"], ours, atol=1e-4)


def test_each_label_of_several(tmp_path: Path, apart: Apart) -> None:
    more = {"labels": ["a", "b"], "thresholds": [0.3, 0.5], "dropout": 0.0, "max_tokens": 40}
    made = make(tmp_path / "model", "bert", BERT, "multilabel_classifier", **more)
    export_onnx(made, tmp_path / "there", "made")
    there = apart(tmp_path / "there", TEXTS)
    assert there["config"]["thresholds"] == [0.3, 0.5]
    ours = [list(one["scores"].values()) for one in predictor(made).predict(TEXTS)]
    np.testing.assert_allclose(there["found"], ours, atol=1e-4)


def test_pairs_of_texts(tmp_path: Path, apart: Apart) -> None:
    more = {"labels": ["no", "yes"], "dropout": 0.0, "max_tokens": 40, "separator": 3}
    shape = BERT | {"type_vocab_size": 2}
    made = make(tmp_path / "model", "bert", shape, "classifier", **more)
    export_onnx(made, tmp_path / "there", "made")
    short = [("one side", "other"), ("a", "b")]
    ours = [list(one["scores"].values()) for one in predictor(made).predict(["\t".join(pair) for pair in short])]
    np.testing.assert_allclose(apart(tmp_path / "there", short)["found"], ours, atol=1e-4)


def test_a_tagger_gives_the_same_tags(tmp_path: Path, apart: Apart) -> None:
    tags = ["O", "B-x", "I-x"]
    more = {"tags": tags, "scheme": "iob2", "pieces": "mean", "head": "softmax", "dropout": 0.0, "max_tokens": 40}
    made = make(tmp_path / "model", "bert", BERT, "tagger", **more)
    export_onnx(made, tmp_path / "there", "made")
    sentence = "anna went home ."
    logits = np.array(apart(tmp_path / "there", [sentence])["found"][0])[1:-1]  # one for each byte
    words = [logits[slice(*one.span())] for one in re.finditer(r"\S+", sentence)]
    scores = [word.mean(axis=0) for word in words]
    config, module = model_folder.load(made)
    ours = tag_sentences(module, tokenizers.load(made / "tokenizer"), [sentence.split()], config, 100)
    assert ours == [[tags[int(one.argmax())] for one in scores]]


def test_an_answerer_gives_the_same_scores_of_spans(tmp_path: Path, apart: Apart) -> None:
    more = {"spans": True, "max_tokens": 48, "max_question": 16, "stride": 8, "max_answer": 8, "threshold": 0.0}
    made = make(tmp_path / "model", "bert", BERT | {"type_vocab_size": 2}, "answerer", **more)
    export_onnx(made, tmp_path / "there", "made")
    found = apart(tmp_path / "there", PAIRS)["found"]
    _, module = model_folder.load(made)
    for (question, context), logits in zip(PAIRS, found, strict=True):
        (ids,) = encode(tokenizers.load(made / "tokenizer"), [(question, context)], 48)
        segments = [0] * (len(question.encode()) + 2) + [1] * (len(context.encode()) + 1)
        with torch.inference_mode():
            ours = module(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), torch.tensor([segments]))
        np.testing.assert_allclose(np.array(logits)[: len(ids)], ours[0].numpy(), atol=1e-4)


def test_a_sentence_encoder_gives_the_same_vectors(tmp_path: Path, apart: Apart) -> None:
    made = make(tmp_path / "model", "bert", BERT, "sentence_encoder", embedding="mean", positive="", max_tokens=40)
    export_onnx(made, tmp_path / "there", "made")
    ours = predictor(made).vectors(TEXTS)
    np.testing.assert_allclose(apart(tmp_path / "there", TEXTS)["found"], ours, atol=1e-4)


def test_int8_is_smaller_and_near(classifier: Path, tmp_path: Path, apart: Apart) -> None:
    export_onnx(classifier / "model", tmp_path / "there", "made", int8=True)
    folders = (classifier / "there", tmp_path / "there")
    whole, rounded = (np.array(apart(folder, TEXTS)["found"]) for folder in folders)
    assert 1e-5 < np.abs(whole - rounded).max() < 0.1
    sizes = [(folder / "model.onnx").stat().st_size for folder in folders]
    assert sizes[1] < 0.85 * sizes[0]
    assert storage.read_json(tmp_path / "there" / "config.json")["int8"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"family": "gru", "shape": {"n_layer": 1, "d_model": 8, "context": 48}}
            | {"kind": "classifier", "labels": ["no", "yes"], "dropout": 0.0},
            "is a classifier of family 'gru', for which torch cannot write a graph that takes batches of any length",
        ),
        (
            {"family": "bert", "shape": BERT, "kind": "tagger", "tags": ["X"]}
            | {"scheme": "none", "pieces": "first", "head": "crf", "dropout": 0.0},
            "a chain over its tags",
        ),
        (
            {"family": "gpt", "shape": {"n_layer": 1, "n_head": 2, "d_model": 16, "context": 48, "dropout": 0.0}}
            | {"kind": "language_model"},
            "for ONNX there are graphs that read whole texts",
        ),
    ],
)
def test_what_has_no_graph_is_refused(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    config: dict[str, Any],
    message: str,
) -> None:
    made = make(tmp_path / "model", max_tokens=40, **config)
    with pytest.raises(UserError, match=message):
        export_onnx(made, tmp_path / "there", "made")
    assert not (tmp_path / "there").exists()
    assert capfd.readouterr() == ("", "")


def test_answers_that_differ_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make(tmp_path / "model", "text_mlp", {"n_layer": 1, "d_model": 16}, "classifier", labels=["no", "yes"],
                dropout=0.0, max_tokens=40)  # fmt: skip
    write = onnx_export._write_graph

    def another(graph: torch.nn.Module, *rest: Any) -> None:
        with torch.no_grad():
            for parameter in graph.parameters():
                parameter.mul_(1.1)
        write(graph, *rest)
        with torch.no_grad():
            for parameter in graph.parameters():
                parameter.div_(1.1)

    monkeypatch.setattr(onnx_export, "_write_graph", another)
    with pytest.raises(UserError, match="whose answers ONNX Runtime would give otherwise"):
        export_onnx(made, tmp_path / "there", "made")
    assert not (tmp_path / "there").exists()


def test_int8_belongs_to_onnx(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--int8 belongs to --to onnx or ctranslate2"):
        export_model("made", tmp_path / "there", tmp_path, int8=True)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_checks, "find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(UserError, match=r"ONNX needs onnxscript: pip install 'lexmill\[onnx\]'"):
        export_onnx(tmp_path, tmp_path / "there", "made")
