"""From conversations to chat and reward models: each stage, a stopped training, packages, the exported folders."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from safetensors.torch import load_file

from lexmill import params, tokenizers
from lexmill.base import layout, storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import sha256_folder
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.conversations import answer_prompt, encode, messages_of
from lexmill.decoding.settings import Sampling
from lexmill.evaluation.rows import read_rows
from lexmill.kinds.chat_model.answers import AnswerTask
from lexmill.kinds.chat_model.preferences import PreferenceTask
from lexmill.kinds.chat_model.replies import replies
from lexmill.kinds.reward_model.predict import rewards
from lexmill.kinds.reward_model.task import RewardTask
from lexmill.models import build, folder
from lexmill.registry import package
from lexmill.registry.hugging_face import export
from lexmill.registry.loader import load_package
from lexmill.stages import baseline, evaluate, train
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save
from tests.support.prepared import write_prepared
from tests.support.small_project import whole

SHAPE = {
    "n_layer": 1,
    "n_head": 2,
    "n_kv_head": 1,
    "d_model": 16,
    "d_ffn": 32,
    "context": 64,
    "dropout": 0.0,
    "d_head": 0,
    "rope_theta": 1000.0,
    "norm_eps": 1e-5,
    "tie_embeddings": True,
}
RECIPE: dict[str, Any] = {
    "method": "gradient",
    "optimizer": {"name": "adamw", "lr": 0.01},
    "schedule": {"name": "linear", "warmup": "2 steps"},
    "length": "24 steps",
    "batch": 256,
    "validate_every": "6 steps",
}
DATA = {"corpus": "talks", "tokenizer": "bytes"}
BASE = {"family": "llama", "shape": SHAPE, "data": DATA, "start": "artifacts/models/base"}
MODELS: dict[str, Any] = {
    "chat": {**BASE, "kind": "chat_model", "recipe": RECIPE | {"length": "80 steps"}, "evaluate": {"max_tokens": 8}},
    "dpo": {
        **BASE,
        "kind": "chat_model",
        "start": "artifacts/models/chat",
        "recipe": RECIPE | {"objective": "preferences", "length": "60 steps", "batch": 8, "beta": 0.3},
        "evaluate": {"max_tokens": 8},
    },
    "lora": {
        **BASE,
        "kind": "chat_model",
        "recipe": RECIPE | {"length": "80 steps", "lora_rank": 4, "lora_alpha": 8.0},
        "evaluate": {"max_tokens": 8},
    },
    "reward": {**BASE, "kind": "reward_model", "recipe": RECIPE | {"batch": 8}, "evaluate": {}},
}
TASKS = {"chat": AnswerTask, "lora": AnswerTask, "dpo": PreferenceTask, "reward": RewardTask}


def talks(count: int, seed: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        number = int(generator.integers(10))
        answer, other = ("yes", "no") if number % 2 else ("no", "yes")
        said = [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": answer}]
        made.append({"messages": said, "rejected": other})
    return made


def write_params(**models: Any) -> None:
    base = copy.deepcopy(MODELS["chat"]) | {"start": "gpt2.yaml"}
    data = {
        "experiment": "test",
        "data_seed": 1,
        "training_seed": 1,
        "corpora": {
            "talks": {
                "kind": "conversation",
                "source": {"kind": "file", "paths": ["x"]},
                "reader": {"format": "conversations", "messages": "m", "rejected": "r"},
            }
        },
        "tokenizers": {"bytes": {"corpus": "talks", "kind": "byte"}},
        "models": {"base": base, **(models or MODELS)},
        "evaluation": {"bootstrap_samples": 100},
    }
    Path("params.yaml").write_text(yaml.safe_dump(whole(data)), encoding="utf-8")


def make_workspace(root: Path) -> None:
    """A workspace with a base model, here of a chat model's kind, that was trained on nothing."""
    (root / "execution.yaml").write_text("threads: 1\n", encoding="utf-8")
    (root / "gpt2.yaml").write_text("name: gpt2\nstd: 0.02\n", encoding="utf-8")
    splits = {"train": talks(160, 0), "valid": talks(24, 1), "test": talks(40, 2), "test_hard": talks(8, 3)}
    write_prepared(root / layout.corpus("talks"), "conversation", splits)
    made = root / layout.tokenizer("bytes")
    made.mkdir(parents=True)
    save(assemble("byte", byte_model(), lowercase=False), made)
    tokenizer = tokenizers.load(made)
    config = {"kind": "language_model", "family": "llama", "shape": SHAPE, "vocab_size": tokenizer.vocab_size}
    torch.manual_seed(1)
    target = root / layout.model("base")
    folder.save(target, {**config, "corpus": "talks", "tokenizer_fingerprint": tokenizer.fingerprint}, build(config))
    shutil.copytree(made, target / "tokenizer")


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    make_workspace(tmp_path)
    write_params()
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace in which everything was trained and evaluated."""
    root = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("LEXMILL_EXECUTION", "execution.yaml")
        make_workspace(root)
        write_params()
        for name in MODELS:
            train.main(name)
            evaluate.main(name)
        for kind in ("chat_model", "reward_model"):
            baseline.main(f"{kind}-talks")
    return root


@pytest.fixture
def inside(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(trained)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    return trained


def metrics(stage: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = storage.read_json(layout.metrics(stage, name))
    return found


@pytest.mark.usefixtures("inside")
def test_answers_are_learned_and_preferences_sharpen_them() -> None:
    chat, dpo = metrics("evaluate", "chat")["test"], metrics("evaluate", "dpo")["test"]
    assert chat["conversations"] == 40
    assert chat["perplexity"] < 10  # of 261 tokens
    assert dpo["preference_accuracy"] > max(0.9, chat["preference_accuracy"] - 0.05)
    preferences = metrics("train", "dpo")
    assert preferences["valid_accuracy"] > 0.9
    assert preferences["valid_margin"] > 0.1
    assert preferences["valid_kl"] > 0
    assert metrics("evaluate", "reward")["test"]["preference_accuracy"] > 0.9
    longer = metrics("baseline", "reward_model-talks")["longer_answer"]["preference_accuracy"]
    odd = sum(
        int(row["messages"][0]["content"][0]) % 2 for row in PreparedCorpus(layout.corpus("talks")).records("test")
    )
    assert longer == pytest.approx(odd / 40)
    assert not (layout.plots("chat") / "words.png").exists(), "yes and no are no map"
    assert "byte_ngram" in metrics("baseline", "chat_model-talks")


@pytest.mark.usefixtures("inside")
def test_low_rank_adaptation_changes_the_blocks_matrices_by_that_rank_and_nothing_else() -> None:
    before, after = (load_file(layout.model(name) / "model.safetensors") for name in ("base", "lora"))
    assert before.keys() == after.keys()
    for name, value in after.items():
        if name.startswith("blocks.") and value.ndim == 2:
            change = torch.linalg.svdvals((value - before[name]).double())
            assert (change > 1e-5 * change[0]).sum() == 4, name
        else:
            assert torch.equal(value, before[name]), name
    assert metrics("train", "lora")["valid_loss"] < metrics("train", "lora")["train_loss"] + 1
    assert metrics("train", "lora")["parameters"] == metrics("train", "chat")["parameters"]


def test_muon_is_refused_with_low_rank_adaptation(workspace: Path) -> None:
    assert workspace
    muon = {"name": "muon", "lr": 0.02, "momentum": 0.95, "weight_decay": 0.1, "adamw_lr": 0.003}
    with pytest.raises(UserErrors, match="muon is for whole matrices; with lora_rank take adamw"):
        params.parse(_changed(lora_rank=4, optimizer=muon))


@pytest.mark.usefixtures("inside")
def test_rows_are_those_of_the_network_alone() -> None:
    _, module = folder.load(layout.model("chat"))
    tokenizer = tokenizers.load(layout.tokenizer("bytes"))
    rows = read_rows(layout.predictions("chat") / "rows-test_hard.jsonl")
    records = list(PreparedCorpus(layout.corpus("talks")).records("test_hard"))
    for row, record in zip(rows, records, strict=True):
        (one,) = encode(tokenizer, [messages_of(record)])
        logits = module(torch.tensor(one.ids[None, :-1]))[0].double().log_softmax(-1)
        nats = -logits.gather(1, torch.tensor(one.ids[1:, None]))[:, 0].detach().numpy()
        assert row["nats"] == pytest.approx(nats[one.learned[1:]].sum(), rel=1e-4)
        assert row["nats"] == pytest.approx(row["chosen_nats"])
    samples = storage.read_json(layout.samples("chat"))["samples"]
    records = list(PreparedCorpus(layout.corpus("talks")).records("test"))
    assert samples[0]["expected"] == records[0]["messages"][1]["content"]
    sampling = Sampling(8, temperature=0)
    assert samples[0]["answer"] == replies(module, tokenizer, [records[0]["messages"][:1]], sampling)[0]


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_stopped_training_ends_like_a_straight_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    short = {key: {**entry, "recipe": {**entry["recipe"], "length": "8 steps"}} for key, entry in MODELS.items()}
    write_params(**{key: {**entry, "start": "artifacts/models/base"} for key, entry in short.items()})
    train.main(name)
    straight = sha256_folder(layout.model(name)), layout.curve(name).read_bytes()
    Path("execution.yaml").write_text("threads: 1\ncheckpoint_seconds: 0\n", encoding="utf-8")
    task: Any = TASKS[name]
    original = task.batch

    def stop(self: Any, step: int, rank: int, world: int) -> Any:
        if step == 5:
            raise RuntimeError("pulled plug")
        return original(self, step, rank, world)

    with monkeypatch.context() as patch:
        patch.setattr(task, "batch", stop)
        with pytest.raises(RuntimeError, match="pulled plug"):
            train.main(name)
    train.main(name)
    assert (sha256_folder(layout.model(name)), layout.curve(name).read_bytes()) == straight


@pytest.mark.usefixtures("workspace")
def test_preferences_need_rejected_answers_and_splits_something_to_learn() -> None:
    plain = [{"messages": one["messages"]} for one in talks(9, 0)]
    shutil.rmtree(layout.corpus("talks"))
    write_prepared(layout.corpus("talks"), "conversation", {"train": plain, "valid": [], "test": plain})
    with pytest.raises(UserError, match="9 of 9 conversations of train have no rejected answer; name its column"):
        train.main("reward")
    with pytest.raises(UserError, match="the valid split has no answers"):
        train.main("chat")


def test_a_batch_of_part_of_a_window_is_refused(workspace: Path) -> None:
    assert workspace
    with pytest.raises(UserErrors, match=r"models.chat.recipe.batch: 100 is not a multiple of shape.context \(64\)"):
        params.parse(_changed(batch=100))


def _changed(**recipe: Any) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
    data["models"]["chat"]["recipe"] |= recipe
    return data


@pytest.mark.usefixtures("inside")
def test_packages_answer_and_their_cards_say_how() -> None:
    choices = params.load()
    for name, asked in (("chat", "3?"), ("reward", json.dumps(talks(1, 5)[0]["messages"]))):
        made = package.write(choices, name)
        (answer,) = load_package(made).predict([asked])
        card = (made / "card.md").read_text(encoding="utf-8")
        assert f"or `lexmill {'chat' if name == 'chat' else 'reward'} --model {name}`" in card
        assert isinstance(answer, str if name == "chat" else float)


@pytest.mark.usefixtures("inside")
def test_transformers_reads_a_chat_model_and_its_template(tmp_path: Path) -> None:
    export(layout.model("chat"), tmp_path / "chat", "chat")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "chat")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "chat")
    _, module = folder.load(layout.model("chat"))
    asked = [{"role": "user", "content": "3?"}]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    ours = tokenizers.load(layout.tokenizer("bytes"))
    assert ids[0].tolist() == answer_prompt(ours, asked)
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, module(ids), atol=1e-4, rtol=0)
    assert "apply_chat_template" in (tmp_path / "chat" / "README.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("inside")
def test_transformers_gives_the_rewards_of_a_reward_model(tmp_path: Path) -> None:
    export(layout.model("reward"), tmp_path / "reward", "reward")
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "reward")
    _, module = folder.load(layout.model("reward"))
    tokenizer = tokenizers.load(layout.tokenizer("bytes"))
    some = [one["messages"] for one in talks(3, 7)]
    ours = rewards(module, tokenizer, some, 1000)
    for one, wanted in zip(encode(tokenizer, some), ours, strict=True):
        with torch.no_grad():
            (found,) = theirs(torch.tensor(one.ids[None])).logits[0].tolist()
        assert found == pytest.approx(wanted, abs=1e-4)
