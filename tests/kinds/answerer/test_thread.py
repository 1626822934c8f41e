"""From questions to an answerer: each stage, a stopped training, the package, the exported folder and the way back."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.nn import functional

from lexmill import params, tokenizers
from lexmill.base import layout, storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import sha256_folder
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.rows import read_rows
from lexmill.kinds.answerer.command import as_input
from lexmill.kinds.answerer.predict import spans
from lexmill.kinds.answerer.task import SpanTask
from lexmill.kinds.answerer.threshold import tune
from lexmill.kinds.answerer.windows import Sizes, WindowBatches, encode, target, windows
from lexmill.models import folder
from lexmill.registry import package
from lexmill.registry.hugging_face import export
from lexmill.registry.loader import load_package
from lexmill.registry.logged_model import signature
from lexmill.stages import baseline, evaluate, import_tokenizer, train
from lexmill.training.task import tensors
from tests.support.prepared import write_prepared
from tests.support.small_project import whole
from tests.support.tiny_bert import make_tiny_bert

NAMES, THINGS = ["ada", "bob", "eve", "kim"], ["mill", "boat", "wall", "tree"]
FILLER = ["and", "so", "it", "was", "old", "far", "away"]
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "initializer_range": 0.2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
DATA = {"corpus": "asked", "tokenizer": "tiny", "max_tokens": 16, "stride": 5, "max_question": 4, "max_answer": 3}
MODEL: dict[str, Any] = {
    "kind": "answerer",
    "family": "bert",
    "shape": SHAPE,
    "data": DATA,
    "start": "artifacts/checkpoints/tiny",
    "recipe": {
        "method": "gradient",
        "optimizer": {"name": "adamw", "lr": 0.003},
        "schedule": {"name": "linear", "warmup": "10 %"},
        "length": "200 steps",
        "batch": 32,
        "validate_every": "50 steps",
    },
    "evaluate": {},
}


def records(count: int, seed: int) -> list[dict[str, Any]]:
    """Questions who made the mill, about a text in which Ada did; a quarter asks where, which no text says."""
    generator = np.random.default_rng(seed)
    made = []
    for number in range(count):
        who, what = str(generator.choice(NAMES)), str(generator.choice(THINGS))
        before, after = (" ".join(generator.choice(FILLER, generator.integers(0, 6))) for _ in range(2))
        context = f"{before} {who.title()} made the {what}, {after}".strip()
        word = "where" if number % 4 == 3 else "who"
        answers = [] if word == "where" else [{"text": who.title(), "start": context.index(who.title())}]
        made.append({"question": f"{word} made the {what}?", "context": context, "answers": answers})
    return made


def write_params(models: dict[str, Any]) -> None:
    data = {
        "experiment": "test",
        "data_seed": 1,
        "training_seed": 1,
        "corpora": {
            "asked": {"kind": "questions", "source": {"kind": "file", "paths": ["x"]}, "reader": {"format": "squad"}}
        },
        "checkpoints": {
            "tiny": {"source": {"kind": "file", "paths": ["x"]}},
            "again": {"source": {"kind": "file", "paths": ["x"]}},
        },
        "models": models,
        "evaluation": {"bootstrap_samples": 100},
    }
    Path("params.yaml").write_text(yaml.safe_dump(whole(data)), encoding="utf-8")


def make_workspace(root: Path) -> None:
    (root / "execution.yaml").write_text("threads: 1\n", encoding="utf-8")
    splits = {"train": records(400, 0), "valid": records(60, 1), "test": records(60, 2), "test_more": records(8, 3)}
    write_prepared(root / layout.corpus("asked"), "questions", splits)
    words = [*NAMES, *THINGS, *FILLER, "who", "where", "made", "the", "?", ","]
    make_tiny_bert(root / layout.checkpoint("tiny"), words, **SHAPE)
    import_tokenizer.main("tiny")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    write_params({"answers": MODEL})
    make_workspace(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("LEXMILL_EXECUTION", "execution.yaml")
        write_params({"answers": MODEL})
        make_workspace(root)
        train.main("answers")
        evaluate.main("answers")
        baseline.main("answerer-asked")
    return root


@pytest.fixture
def inside(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    return trained


def metrics(stage: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = storage.read_json(layout.metrics(stage, name))
    return found


def records_of(split: str) -> list[dict[str, Any]]:
    return list(PreparedCorpus(layout.corpus("asked")).records(split))


@pytest.mark.usefixtures("inside")
def test_the_answer_is_learned_and_so_is_that_there_is_none() -> None:
    found = metrics("evaluate", "answers")["test"]
    assert found["questions"] == 60
    assert found["without_answer"] == 15
    assert found["has_answer_exact_match"] > 0.9
    assert found["no_answer_exact_match"] > 0.7
    baselines = metrics("baseline", "answerer-asked")
    assert baselines["no_answer"]["f1"] == 0.25
    for name in ("whole_context", "first_sentence", "similar_sentence", "no_answer"):
        assert found["f1"] > baselines[name]["f1"] + 0.2
    training = metrics("train", "answers")
    assert training["train_questions"] == 400
    assert training["train_questions_without_answer"] == 100
    assert training["train_questions_cut"] == 400  # who made the mill ?, of four tokens
    assert training["train_answers_in_no_window"] == 0
    assert training["train_windows"] > 400
    assert (layout.plots("answers") / "words.png").is_file()


@pytest.mark.usefixtures("inside")
def test_rows_are_the_answers_of_the_network_and_texts_are_of_the_context_to_the_character() -> None:
    config, module = folder.load(layout.model("answers"))
    tokenizer = tokenizers.load(layout.tokenizer("tiny"))
    for split, file in (("test", "rows.jsonl"), ("test_more", "rows-test_more.jsonl")):
        rows = read_rows(layout.predictions("answers") / file)
        some = records_of(split)
        pairs = [(one["question"], one["context"]) for one in some]
        found = spans(module, tokenizer, pairs, Sizes.of(config), 1000)
        for row, record, one in zip(rows, some, found, strict=True):
            given = one.given(config["threshold"])
            assert row["predicted"] == given.text == record["context"][given.start : given.end]
            assert row["answers"] == [answer["text"] for answer in record["answers"]]
    samples = storage.read_json(layout.samples("answers"))["samples"]
    assert json.loads(samples[0]["input"])["question"] == records_of("test")[0]["question"]


@pytest.mark.usefixtures("inside")
def test_the_threshold_is_chosen_on_the_valid_split_alone() -> None:
    config, module = folder.load(layout.model("answers"))
    tokenizer = tokenizers.load(layout.tokenizer("tiny"))
    assert isinstance(config["threshold"], float)
    assert tune(module, tokenizer, records_of("valid"), Sizes.of(config)) == (
        pytest.approx(config["threshold"], abs=1e-4),
        pytest.approx(metrics("train", "answers")["valid_f1"]),
    )
    answered = [one for one in records_of("valid") if one["answers"]]
    assert tune(module, tokenizer, answered, Sizes.of(config))[0] is None


@pytest.mark.usefixtures("inside")
@torch.no_grad()
def test_the_loss_is_the_mean_of_both_cross_entropies() -> None:
    config, module = folder.load(layout.model("answers"))
    tokenizer, some = tokenizers.load(layout.tokenizer("tiny")), records_of("valid")[:9]
    encoded = encode(tokenizer, [(one["question"], one["context"]) for one in some], 4)
    made = list(windows(tokenizer, encoded, Sizes.of(config)))
    targets = [target(window, encoded[window.item].spans, some[window.item]["answers"]) for window in made]
    batches = WindowBatches(made, targets, 5, seed=0)
    task = SpanTask(module, batches, batches)
    wanted, right = 0.0, 0
    for window, (start, end) in zip(made, targets, strict=True):
        ids = torch.tensor([window.ids])
        kinds = (torch.arange(len(window.ids)) >= window.begin).long()[None]
        logits = module(ids, torch.ones_like(ids, dtype=torch.bool), kinds)[0]
        for side, place in enumerate((start, end)):
            wanted += float(functional.cross_entropy(logits[:, side], torch.tensor(place))) / 2
        right += [int(logits[:, side].argmax()) for side in (0, 1)] == [start, end]
    sums = [
        torch.as_tensor(task.validation_sums(module, tensors(batch, torch.device("cpu"))))
        for batch in task.validation_batches(0, 1)
    ]
    assert len(sums) > 1
    assert task.validation_metrics(torch.stack(sums).sum(0).tolist()) == {
        "valid_loss": pytest.approx(wanted / len(made), rel=1e-4),
        "valid_right": right / len(made),
        "valid_windows": len(made),
    }
    loss, count = task.loss_sum(module, tensors(task.batch(0, 0, 1), torch.device("cpu")))
    assert (count, float(loss) > 0) == (5, True)


def test_a_stopped_training_ends_like_a_straight_one(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert workspace
    short = copy.deepcopy(MODEL)
    short["recipe"] |= {"length": "8 steps", "validate_every": "3 steps"}
    write_params({"answers": short})
    train.main("answers")
    straight = sha256_folder(layout.model("answers")), layout.curve("answers").read_bytes()
    Path("execution.yaml").write_text("threads: 1\ncheckpoint_seconds: 0\n", encoding="utf-8")
    original = SpanTask.batch

    def stop(self: Any, step: int, rank: int, world: int) -> Any:
        if step == 5:
            raise RuntimeError("pulled plug")
        return original(self, step, rank, world)

    with monkeypatch.context() as patch:
        patch.setattr(SpanTask, "batch", stop)
        with pytest.raises(RuntimeError, match="pulled plug"):
            train.main("answers")
    train.main("answers")
    assert (sha256_folder(layout.model("answers")), layout.curve("answers").read_bytes()) == straight


@pytest.mark.usefixtures("workspace")
def test_what_cannot_be_trained_is_refused() -> None:
    long = copy.deepcopy(MODEL)
    long["data"] |= {"max_tokens": 25}
    write_params({"answers": long})
    with pytest.raises(UserError, match="max_tokens is 25, but the network has 24 positions; lower it"):
        train.main("answers")
    write_params({"answers": MODEL})
    shutil.rmtree(layout.corpus("asked"))
    write_prepared(layout.corpus("asked"), "questions", {"train": records(9, 0)})
    with pytest.raises(UserError, match="the valid split is empty"):
        train.main("answers")
    data = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    data["models"]["answers"]["data"] |= {"max_question": 13}
    with pytest.raises(UserErrors, match="13 and 3 special tokens leave no room for the context"):
        params.parse(data)


@pytest.mark.usefixtures("inside")
def test_the_package_answers_and_its_card_says_how() -> None:
    made = package.write(params.load(), "answers")
    (answer,) = load_package(made).predict([as_input("who made the mill?", "So Ada made the mill,  far away")])
    assert answer["answer"] == "Ada"
    assert (answer["start"], answer["end"]) == (3, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        outputs = signature(storage.read_json(made / "package.json")).outputs
    assert [one["name"] for one in outputs.to_dict()] == ["answer", "start", "end", "score"]
    card = (made / "card.md").read_text(encoding="utf-8")
    assert "`lexmill answer --model answers`" in card
    assert "no answer is longer than 3" in card


_APART = """
import json, sys
from importlib.abc import MetaPathFinder

class NoLexmill(MetaPathFinder):
    def find_spec(self, name, *rest):
        if name.split(".")[0] == "lexmill":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoLexmill())
import torch, transformers
folder, pairs = sys.argv[1], json.loads(sys.argv[2])
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
model, loading = transformers.AutoModelForQuestionAnswering.from_pretrained(folder, output_loading_info=True)
assert not any(loading.values()), loading
for question, context in pairs:
    batch = tokenizer(question, context, return_tensors="pt")
    with torch.no_grad():
        found = model(**batch)
    print(json.dumps([batch["input_ids"][0].tolist(), found.start_logits[0].tolist(), found.end_logits[0].tolist()]))
"""


@pytest.mark.usefixtures("inside")
def test_transformers_alone_gives_the_same_logits_and_the_folder_comes_back(tmp_path: Path) -> None:
    export(layout.model("answers"), tmp_path / "there", "answers")
    pairs = [("made the mill?", "So Ada made the mill"), ("who?", "Eve,")]
    command = [sys.executable, "-c", _APART, str(tmp_path / "there"), json.dumps(pairs)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    config, module = folder.load(layout.model("answers"))
    tokenizer = tokenizers.load(layout.tokenizer("tiny"))
    made = list(windows(tokenizer, encode(tokenizer, pairs, 4), Sizes.of(config)))
    for window, line in zip(made, lines, strict=True):
        ids, *logits = json.loads(line)
        assert ids == window.ids
        kinds = (torch.arange(len(ids)) >= window.begin).long()[None]
        with torch.no_grad():
            ours = module(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool), kinds)[0]
        torch.testing.assert_close(ours.T, torch.tensor(logits), atol=1e-4, rtol=0)
    readme = (tmp_path / "there" / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: question-answering" in readme
    # The head comes back with the encoder: at a learning rate of 0, training changes nothing.
    shutil.copytree(tmp_path / "there", layout.checkpoint("again"), dirs_exist_ok=True)
    back = copy.deepcopy(MODEL)
    back |= {"start": "artifacts/checkpoints/again"}
    back["data"] |= {"tokenizer": "again"}
    back["recipe"] |= {"optimizer": {"name": "adamw", "lr": 1e-30, "weight_decay": 0.0}, "length": "1 steps"}
    back["recipe"]["schedule"] = {"name": "constant", "warmup": "0 steps"}
    before = Path("params.yaml").read_text(encoding="utf-8")
    try:
        write_params({"back": back})
        import_tokenizer.main("again")
        train.main("back")
    finally:
        Path("params.yaml").write_text(before, encoding="utf-8")
    first, second = (load_file(layout.model(name) / "model.safetensors") for name in ("answers", "back"))
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, atol=1e-7, rtol=0)
