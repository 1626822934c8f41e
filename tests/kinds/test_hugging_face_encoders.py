"""Every kind that is made of encoders, started from encoders of `transformers`: trained, stopped, exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml

from lexmill import kinds, params, tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_folder
from lexmill.corpora.fetching.checkpoint_folder import fetch_checkpoint
from lexmill.data.texts import encode
from lexmill.kinds.classifier.task import ClassificationTask
from lexmill.models import folder, pretrained
from lexmill.models.common.state import weights
from lexmill.models.declaration import unlike
from lexmill.params.corpora import FileSource
from lexmill.registry.hugging_face import export
from lexmill.stages import evaluate, import_tokenizer, train
from tests.support.prepared import write_prepared
from tests.support.small_project import whole
from tests.support.tiny_encoders import make_tiny_encoder

WORDS = ["film", "plot", "actor", "scene", "the", "fine", "dull", "who", "?"]
RECIPE: dict[str, Any] = {
    "method": "gradient",
    "optimizer": {"name": "adamw", "lr": 0.005},
    "schedule": {"name": "linear", "warmup": "10 %"},
    "length": "4 steps",
    "batch": 8,
    "validate_every": "2 steps",
}


def labelled(form: str) -> dict[str, Any]:
    reader = {"format": "jsonl", "text": "text", "label": "label", "label_form": {"kind": form}}
    return {"kind": "labelled", "reader": reader}


CORPORA: dict[str, dict[str, Any]] = {
    "classifier": labelled("name"),
    "regressor": labelled("number"),
    "multilabel_classifier": labelled("set"),
    "tagger": {"kind": "tagged", "unit": "sentence", "reader": {"format": "conll", "scheme": "iob2"}},
    "answerer": {"kind": "questions", "reader": {"format": "squad"}},
}
DATA = {"answerer": {"stride": 5, "max_question": 6, "max_answer": 3}}


def record(kind: str, words: list[str]) -> dict[str, Any]:
    """A record of the kind's corpus; its label, number, tags or answer hang on a word."""
    fine = "fine" in words
    if kind == "tagger":
        return {"words": words, "tags": ["B-x" if word == "fine" else "O" for word in words]}
    text = " ".join(words)
    if kind == "answerer":
        answers = [{"text": "fine", "start": text.index("fine")}] if fine else []
        return {"question": "who ?", "context": text, "answers": answers}
    label = {"classifier": ("no", "yes"), "regressor": ("1", "2.5"), "multilabel_classifier": ("none", "a;b")}[kind]
    return {"text": text, "label": label[fine]}


def records(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    found = []
    for i in range(count):
        words = [*generator.choice(WORDS[:5], generator.integers(1, 5)).tolist(), "fine" if i % 2 else "dull"]
        generator.shuffle(words)
        found.append(record(kind, words))
    return found


def prepare(kind: str, model_type: str, **recipe: Any) -> None:
    """params.yaml, the corpus, the checkpoint and its tokenizer, in the present folder."""
    make_tiny_encoder(layout.checkpoint("tiny"), model_type, WORDS)
    _, shape, _ = pretrained.read_shape(layout.checkpoint("tiny"))
    model = {
        "kind": kind,
        "family": "hugging_face_encoder",
        "shape": shape,
        "data": {"corpus": "made", "tokenizer": "tiny", "max_tokens": 24} | DATA.get(kind, {}),
        "start": "artifacts/checkpoints/tiny",
        "recipe": RECIPE | recipe,
        "evaluate": {},
    }
    source = {"kind": "file", "paths": ["x"]}
    data = {
        "experiment": "test",
        "data_seed": 1,
        "training_seed": 1,
        "corpora": {"made": CORPORA[kind] | {"source": source}},
        "checkpoints": {"tiny": {"source": source}},
        "models": {"one": model},
        "evaluation": {"bootstrap_samples": 100},
    }
    Path("params.yaml").write_text(yaml.safe_dump(whole(data)), encoding="utf-8")
    import_tokenizer.main("tiny")
    splits = {"train": records(kind, 48, 0), "valid": records(kind, 16, 1), "test": records(kind, 12, 2)}
    write_prepared(layout.corpus("made"), CORPORA[kind]["kind"], splits)
    if kind == "tagger":
        path = layout.corpus("made") / "manifest.json"
        manifest = {**json.loads(path.read_text()), "labels": ["B-x", "I-x", "O"], "entities": True}
        path.write_text(json.dumps(manifest))


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n", encoding="utf-8")
    return tmp_path


def model() -> tuple[dict[str, Any], Any, tokenizers.Tokenizer]:
    config, module = folder.load(layout.model("one"))
    return config, module, tokenizers.load(layout.model("one") / "tokenizer")


@pytest.mark.usefixtures("workspace")
def test_a_roberta_learns_and_a_stopped_training_ends_like_a_straight_one(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare("classifier", "roberta", length="10 epochs", validate_every="1 epochs")
    train.main("one")
    evaluate.main("one")
    assert json.loads(layout.metrics("evaluate", "one").read_text())["test"]["accuracy"] > 0.9
    straight = sha256_folder(layout.model("one")), layout.curve("one").read_bytes()
    Path("execution.yaml").write_text("threads: 1\ncheckpoint_seconds: 0\n", encoding="utf-8")
    original = ClassificationTask.batch

    def stop(task: ClassificationTask, step: int, rank: int, world: int) -> Any:
        if step == 17:
            raise RuntimeError("pulled plug")
        return original(task, step, rank, world)

    with monkeypatch.context() as patch:
        patch.setattr(ClassificationTask, "batch", stop)
        with pytest.raises(RuntimeError, match="pulled plug"):
            train.main("one")
    train.main("one")
    assert (sha256_folder(layout.model("one")), layout.curve("one").read_bytes()) == straight


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize(
    ("model_type", "recipe", "frozen"),
    [
        ("roberta", {"frozen_blocks": 1}, ("network.embeddings", "network.encoder.layer.0.")),
        ("distilbert", {"frozen_blocks": 1}, ("network.embeddings", "network.transformer.layer.0.")),
        ("modernbert", {"frozen_blocks": 1, "layer_decay": 0.5}, ("network.embeddings", "network.layers.0.")),
        ("deberta-v2", {"lora_rank": 2}, ("network.embeddings",)),
    ],
)
def test_blocks_are_frozen_and_low_ranks_learn(
    model_type: str, recipe: dict[str, Any], frozen: tuple[str, ...]
) -> None:
    prepare("classifier", model_type, **recipe)
    train.main("one")
    _, module, _ = model()
    before = pretrained.read(layout.checkpoint("tiny")).state
    after = weights(module.encoder)
    changed = {name for name, value in after.items() if not torch.equal(value, before[name][: len(value)])}
    assert changed
    assert not any(name.startswith(frozen) for name in changed)


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("kind", [kind for kind in CORPORA if kind != "classifier"])
def test_every_other_kind_of_encoders_trains_from_it(kind: str) -> None:
    prepare(kind, "roberta")
    assert "hugging_face_encoder" in (type(params.load().models["one"]).__name__, params.load().models["one"].family)
    train.main("one")
    evaluate.main("one")
    assert kinds.find(kind).metrics[0].name in json.loads(layout.metrics("evaluate", "one").read_text())["test"]


def logits_there(target: Path, auto: str, *texts: Any) -> tuple[list[list[int]], Any]:
    """The ids of texts and the model's output there."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(target)
    there, loading = getattr(transformers, auto).from_pretrained(target, output_loading_info=True)
    assert not any(loading.values()), loading
    batch = tokenizer(*texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        out = there(**batch)
    return [row[real.bool()].tolist() for row, real in zip(batch["input_ids"], batch["attention_mask"], strict=True)], (
        out,
        batch["attention_mask"],
    )


TEXTS = ["the fine plot", "dull", "actor scene film the plot ?"]
EXPORTED = ["roberta", "xlm-roberta", "distilbert", "electra", "mpnet", "deberta-v2"]


@pytest.mark.parametrize("model_type", EXPORTED)
def test_a_classifier_there_has_the_same_tokens_and_logits(workspace: Path, model_type: str) -> None:
    prepare("classifier", model_type)
    train.main("one")
    export(layout.model("one"), workspace / "export", "one")
    config, module, tokenizer = model()
    ids, (out, real) = logits_there(workspace / "export", "AutoModelForTokenClassification", TEXTS)
    assert ids == encode(tokenizer, TEXTS, config["max_tokens"])
    wanted = (out.logits * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True)
    for row, logits in zip(ids, wanted, strict=True):
        mine = module(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.bool))[0]
        torch.testing.assert_close(mine, logits, atol=1e-4, rtol=0)
    fetch_checkpoint(FileSource("file", ("export/*",)), workspace, workspace / "again")
    again = pretrained.read(workspace / "again")
    first = pretrained.read(layout.model("one"))
    assert unlike(config["family"], config["shape"], again.family, again.shape) == {}
    assert all(again.state[name].equal(tensor) for name, tensor in first.state.items())


@pytest.mark.parametrize("model_type", ["roberta", "electra"])
def test_a_classifier_of_pairs_there_reads_them_alike(workspace: Path, model_type: str) -> None:
    prepare("classifier", model_type)
    for path in layout.corpus("made").glob("*.jsonl"):
        lines = path.read_text().splitlines()
        path.write_text("".join(json.dumps({**json.loads(line), "second": "the plot"}) + "\n" for line in lines))
    train.main("one")
    export(layout.model("one"), workspace / "export", "one")
    config, module, tokenizer = model()
    sides = (["the fine plot", "dull"], ["actor", "the film ?"])
    ids, (out, real) = logits_there(workspace / "export", "AutoModelForTokenClassification", *sides)
    assert ids == encode(tokenizer, list(zip(*sides, strict=True)), config["max_tokens"])
    wanted = (out.logits * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True)
    for row, logits in zip(ids, wanted, strict=True):
        mine = module(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.bool))[0]
        torch.testing.assert_close(mine, logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("model_type", ["roberta", "electra"])
def test_an_answerer_there_reads_pairs_alike(workspace: Path, model_type: str) -> None:
    prepare("answerer", model_type)
    train.main("one")
    export(layout.model("one"), workspace / "export", "one")
    _, module, tokenizer = model()
    ids, (out, _) = logits_there(workspace / "export", "AutoModelForQuestionAnswering", ["who ?"], ["the fine plot"])
    assert ids == encode(tokenizer, [("who ?", "the fine plot")], 24)
    tokens = torch.tensor(ids)
    head = 1 + len(tokenizer.encode("who ?")) + len(tokenizer.between)
    segments = (torch.arange(tokens.shape[1]) >= head).long()[None]
    mine = module(tokens, torch.ones_like(tokens, dtype=torch.bool), segments)[0]
    there = torch.stack([out.start_logits[0], out.end_logits[0]], dim=-1)
    torch.testing.assert_close(mine, there, atol=1e-4, rtol=0)


@pytest.mark.usefixtures("workspace")
def test_a_tagger_there_has_the_same_logits(workspace: Path) -> None:
    prepare("tagger", "mpnet")
    train.main("one")
    export(layout.model("one"), workspace / "export", "one")
    _, module, _ = model()
    ids, (out, _) = logits_there(workspace / "export", "AutoModelForTokenClassification", ["the fine plot"])
    tokens = torch.tensor(ids)
    words = torch.tensor([[-1, 0, 1, 2, -1]])
    mine = module(tokens, torch.ones_like(tokens, dtype=torch.bool), words).emissions[0]
    torch.testing.assert_close(mine, out.logits[0, 1:4], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("model_type", "recipe", "message"),
    [
        ("modernbert", {}, "one more layer and a norm under the head of a modernbert"),
        (
            "roberta",
            {"pooling": "max"},
            r"classifier with a head that does not read the mean .*recipe.pooling: max",
        ),
    ],
)
def test_heads_that_do_not_fit_are_refused(
    workspace: Path, model_type: str, recipe: dict[str, Any], message: str
) -> None:
    prepare("classifier", model_type, **recipe)
    train.main("one")
    with pytest.raises(UserError, match=message):
        export(layout.model("one"), workspace / "export", "one")
    assert not (workspace / "export").exists()
