"""`lexmill export`: a folder that transformers alone reads, with the same ids and logits; and the way back in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from lexmill import tokenizers
from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.commands.deploy import export_model
from lexmill.corpora.fetching.checkpoint_folder import fetch_checkpoint
from lexmill.data.texts import encode
from lexmill.models import build, families, family, folder, pretrained
from lexmill.models.common.state import weights
from lexmill.models.declaration import unlike
from lexmill.params import parse
from lexmill.params.corpora import FileSource
from lexmill.registry.hugging_face import export
from lexmill.tokenizers.imported import import_tokenizer, origin, origin_of
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save
from tests.support.pretrained import save_gpt2, save_llama

TEXTS = ["To be, or not to be", "</s> typed, Grüße 東京\n", "  two  spaces"]
GPT = {"n_layer": 2, "n_head": 2, "d_model": 16, "context": 48, "dropout": 0.1, "d_head": 0, "norm": "pre"}
LLAMA = {
    "n_layer": 2,
    "n_head": 4,
    "n_kv_head": 2,
    "d_model": 16,
    "d_ffn": 24,
    "context": 48,
    "dropout": 0.1,
    "d_head": 0,
    "rope_theta": 700.0,
    "norm_eps": 1e-4,
    "tie_embeddings": True,
}
# A process that has transformers and cannot have lexmill: it reads one folder after another.
APART = """
import json, sys
from importlib.abc import MetaPathFinder

class NoLexmill(MetaPathFinder):
    def find_spec(self, name, *rest):
        if name.split(".")[0] == "lexmill":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NoLexmill())
try:
    import lexmill
except ModuleNotFoundError:
    pass
else:
    sys.exit("lexmill is there")
import torch
import transformers

texts = json.loads(sys.argv[1])
for line in sys.stdin:
    folder, auto = json.loads(line)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    loader = getattr(transformers, auto)
    model, loading = loader.from_pretrained(folder, output_loading_info=True)
    assert not any(loading.values()), loading
    ids = tokenizer(texts, truncation=True)["input_ids"]
    found = {"name": type(model).__name__, "ids": ids, "eos": [tokenizer.eos_token_id, model.config.eos_token_id]}
    batch = None if auto == "AutoModelForCausalLM" else tokenizer(
        texts, padding=True, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        if auto == "AutoModelForSeq2SeqLM":
            written = model.generate(**batch, do_sample=False, num_beams=1)
            found["written"] = tokenizer.batch_decode(written, skip_special_tokens=True)
            found["logits"] = model(**batch, decoder_input_ids=batch["input_ids"]).logits.tolist()
        elif auto == "AutoModelForTokenClassification":
            real = batch["attention_mask"].unsqueeze(-1)
            found["logits"] = ((model(**batch).logits * real).sum(1) / real.sum(1)).tolist()
            found["labels"] = [model.config.id2label[i] for i in range(model.config.num_labels)]
        elif auto == "AutoModelForSequenceClassification":
            found["logits"] = model(**batch).logits.tolist()  # of one batch, padded
            found["labels"] = [model.config.id2label[i] for i in range(model.config.num_labels)]
        else:
            found["logits"] = [model(torch.tensor([row])).logits[0].tolist() for row in ids]
    print("FOUND " + json.dumps(found), flush=True)
"""


class Apart:
    """That process, started when it is first asked, and again after an error."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._log = folder, folder / "log"
        self._process: subprocess.Popen[str] | None = None

    def read(self, exported: Path, auto: str = "AutoModelForCausalLM") -> dict[str, Any]:
        """The name of the class that reads a folder, its ids and logits of TEXTS, and what else the class gives."""
        if self._process is None:
            with open(self._log, "w") as log:
                self._process = subprocess.Popen(
                    [sys.executable, "-c", APART, json.dumps(TEXTS)],
                    cwd=self._folder,
                    text=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(exported), auto]) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("FOUND "):
                found: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
                return found
        self.end()
        raise AssertionError(self._log.read_text())

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apart]:
    process = Apart(tmp_path_factory.mktemp("apart"))
    yield process
    process.end()


def make(target: Path, family: str, shape: dict[str, Any], kind: str = "language_model", **more: Any) -> Path:
    """A model folder with a byte tokenizer, every weight away from its fresh value."""
    (target / "tokenizer").mkdir(parents=True)
    save(assemble("byte", byte_model(), lowercase=False), target / "tokenizer")
    fingerprint = storage.sha256_file(target / "tokenizer" / "tokenizer.json")
    config = {"kind": kind, "family": family, "shape": shape, "vocab_size": 261, "corpus": "plays", **more}
    torch.manual_seed(5)
    module = build(config)
    with torch.no_grad():
        for value in weights(module).values():
            value.add_(torch.randn_like(value) * 0.3)
    folder.save(target, {**config, "tokenizer_fingerprint": fingerprint}, module)
    return target


EXPORTED: list[tuple[str, dict[str, Any], str]] = [
    ("gpt", GPT, "GPT2LMHeadModel"),
    ("gpt", GPT | {"activation": "gelu"}, "GPT2LMHeadModel"),
    ("llama", LLAMA, "LlamaForCausalLM"),
    ("llama", LLAMA | {"tie_embeddings": False, "d_head": 6, "n_kv_head": 4}, "LlamaForCausalLM"),
]


def test_every_causal_family_is_exported_here_or_refused_below() -> None:
    assert {name for name in families("causal") if family(name).model_types} == {name for name, _, _ in EXPORTED}


@pytest.mark.parametrize(("family", "shape", "theirs"), EXPORTED)
def test_a_process_without_lexmill_gives_the_same(
    tmp_path: Path, apart: Apart, family: str, shape: dict[str, Any], theirs: str
) -> None:
    model = make(tmp_path / "model", family, shape)
    export(model, tmp_path / "export", "plays")
    found = apart.read(tmp_path / "export")
    assert found["name"] == theirs
    _, module = folder.load(model)
    tokenizer = tokenizers.load(model / "tokenizer")
    assert found["eos"] == [tokenizer.eos_id, tokenizer.eos_id]
    for text, ids, logits in zip(TEXTS, found["ids"], found["logits"], strict=True):
        assert ids == tokenizer.encode(text)
        with torch.no_grad():
            torch.testing.assert_close(module(torch.tensor([ids]))[0], torch.tensor(logits), atol=1e-4, rtol=0)


LABELS = ["/Arts & Entertainment", "NaN", "Sport"]


def test_a_classifier_apart_has_the_same_logits_and_labels(tmp_path: Path, apart: Apart) -> None:
    shape = family("bert").tiny | {"max_position_embeddings": 40, "hidden_act": "gelu_new", "layer_norm_eps": 1e-5}
    model = make(tmp_path / "model", "bert", dict(shape), "classifier", labels=LABELS, dropout=0.1, max_tokens=9)
    export(model, tmp_path / "export", "topics")
    found = apart.read(tmp_path / "export", "AutoModelForTokenClassification")
    assert found["name"] == "BertForTokenClassification"
    assert found["labels"] == LABELS
    tokenizer = tokenizers.load(model / "tokenizer")
    _, module = folder.load(model)
    for ids, row, logits in zip(found["ids"], encode(tokenizer, TEXTS, 9), found["logits"], strict=True):
        assert ids == row
        with torch.no_grad():
            mine = module(torch.tensor([row]), torch.ones(1, len(row), dtype=torch.bool))[0]
        torch.testing.assert_close(mine, torch.tensor(logits), atol=1e-4, rtol=0)


SCORED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("gpt", GPT, {"labels": LABELS}),
    ("gpt", GPT, {"labels": LABELS, "head_bias": True}),
    ("llama", LLAMA, {"labels": LABELS[:2]}),
    ("llama", LLAMA | {"tie_embeddings": False}, {"labels": LABELS}),
]
LAST = {"pooling": "last", "head_bias": False, "dropout": 0.1, "max_tokens": 15}


@pytest.mark.parametrize(("family", "shape", "head"), SCORED)
def test_a_causal_classifier_apart_has_the_same_logits_and_labels(
    tmp_path: Path, apart: Apart, family: str, shape: dict[str, Any], head: dict[str, Any]
) -> None:
    model = make(tmp_path / "model", family, shape, "classifier", **LAST | head)
    export(model, tmp_path / "export", "topics")
    found = apart.read(tmp_path / "export", "AutoModelForSequenceClassification")
    assert found["name"] == {"gpt": "GPT2", "llama": "Llama"}[family] + "ForSequenceClassification"
    assert found["labels"] == head["labels"]
    assert found["ids"] == encode(tokenizers.load(model / "tokenizer"), TEXTS, 15)
    _, module = folder.load(model)
    for ids, logits in zip(found["ids"], found["logits"], strict=True):
        with torch.no_grad():
            mine = module(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))[0]
        torch.testing.assert_close(mine, torch.tensor(logits), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("family", "shape"), [("gpt", GPT), ("llama", LLAMA)])
def test_a_causal_classifier_of_pairs_there_reads_them_alike(
    tmp_path: Path, family: str, shape: dict[str, Any]
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = make(
        tmp_path / "model", family, shape, "classifier", labels=LABELS, separator=3, **{**LAST, "max_tokens": 40}
    )
    export(model, tmp_path / "export", "topics")
    there, reads = (
        auto.from_pretrained(tmp_path / "export") for auto in (AutoModelForSequenceClassification, AutoTokenizer)
    )
    pairs = [("To be,", "or not to be"), ("東京", "</s>")]
    batch = reads(*map(list, zip(*pairs, strict=True)), padding=True, truncation=True, return_tensors="pt")
    ours, mask = encode(tokenizers.load(model / "tokenizer"), pairs, 40), batch["attention_mask"].bool()
    assert [row[real].tolist() for row, real in zip(batch["input_ids"], mask, strict=True)] == ours
    _, module = folder.load(model)
    with torch.no_grad():
        torch.testing.assert_close(module(batch["input_ids"], mask), there(**batch).logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("save_theirs", [save_gpt2, partial(save_llama, tie_word_embeddings=True)])
def test_a_classifier_whose_tokenizer_has_no_padding_gets_one(tmp_path: Path, apart: Apart, save_theirs: Any) -> None:
    save_theirs(tmp_path / "theirs")
    (tmp_path / "model" / "tokenizer").mkdir(parents=True)
    tokenizer = import_tokenizer(tmp_path / "theirs", tmp_path / "model" / "tokenizer")
    assert tokenizer.pad_id == tokenizer.eos_id
    found = pretrained.read(tmp_path / "theirs")
    config = {"kind": "classifier", "family": found.family, "vocab_size": tokenizer.vocab_size, "labels": LABELS}
    config |= {"shape": found.shape | {"dropout": 0.0}, **LAST}
    torch.manual_seed(5)
    module = build(config)
    folder.save(tmp_path / "model", config, module.eval())
    export(tmp_path / "model", tmp_path / "export", "topics")
    there = apart.read(tmp_path / "export", "AutoModelForSequenceClassification")
    assert there["ids"] == encode(tokenizer, TEXTS, 15)
    for ids, logits in zip(there["ids"], there["logits"], strict=True):
        with torch.no_grad():
            mine = module(torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.bool))[0]
        torch.testing.assert_close(mine, torch.tensor(logits), atol=1e-4, rtol=0)
    again = pretrained.read(tmp_path / "export")
    assert again.vocab_size == tokenizer.vocab_size + 1
    assert origin(tmp_path / "export") == origin(tmp_path / "theirs")
    (tmp_path / "again").mkdir()
    assert import_tokenizer(tmp_path / "export", tmp_path / "again").pad_id == tokenizer.vocab_size


def test_a_reward_model_whose_tokenizer_has_no_padding_gets_one(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    save_gpt2(tmp_path / "theirs")
    (tmp_path / "model" / "tokenizer").mkdir(parents=True)
    tokenizer = import_tokenizer(tmp_path / "theirs", tmp_path / "model" / "tokenizer")
    found = pretrained.read(tmp_path / "theirs")
    config = {"kind": "reward_model", "family": "gpt", "vocab_size": tokenizer.vocab_size, "reward": True}
    config["shape"] = found.shape | {"dropout": 0.0}
    torch.manual_seed(5)
    module = build(config).eval()
    with torch.no_grad():
        module.get_parameter("head.weight").normal_()
    folder.save(tmp_path / "model", config, module)
    export(tmp_path / "model", tmp_path / "export", "reward")
    there = AutoModelForSequenceClassification.from_pretrained(tmp_path / "export")
    assert type(there).__name__ == "GPT2ForSequenceClassification"
    pad = there.config.pad_token_id
    rows = torch.tensor([[5, 6, tokenizer.eos_id, pad], [5, 6, 7, tokenizer.eos_id]])
    with torch.no_grad():
        mine = module(torch.where(rows == pad, 0, rows), torch.tensor([2, 3]))
        torch.testing.assert_close(mine, there(rows).logits[:, 0], atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("family", "head", "message"),
    [
        ("llama", {"pooling": "mean"}, r"does not read the state of a text's last token \(recipe.pooling: mean\)"),
        ("llama", {"head_bias": True}, "a Llama under a head with a bias cannot be exported"),
        ("gpt", {"head_bias": True, "labels": [f"{i}" for i in range(17)]}, "the bias of this head cannot be exported"),
    ],
)
def test_causal_classifiers_that_transformers_cannot_compute_are_refused(
    tmp_path: Path, family: str, head: dict[str, Any], message: str
) -> None:
    shape = {"gpt": GPT, "llama": LLAMA}[family]
    model = make(tmp_path / "model", family, shape, "classifier", **{"labels": LABELS, **LAST, **head})
    with pytest.raises(UserError, match=message):
        export(model, tmp_path / "export", "topics")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(("norm", "theirs"), [("pre", "PegasusForConditionalGeneration"), ("post", "MarianMTModel")])
def test_a_translator_apart_has_the_same_logits_and_greedy_translations(
    tmp_path: Path, apart: Apart, norm: str, theirs: str
) -> None:
    shape = family("transformer").tiny | {"encoder_layers": 2, "d_model": 18, "norm": norm, "max_positions": 48}
    model = make(tmp_path / "model", "transformer", {**shape, "dropout": 0.1}, "translator")
    export(model, tmp_path / "export", "en_de")
    found = apart.read(tmp_path / "export", "AutoModelForSeq2SeqLM")
    assert found["name"] == theirs
    tokenizer = tokenizers.load(model / "tokenizer")
    _, module = folder.load(model)
    rows = [[*tokenizer.encode(text), tokenizer.eos_id] for text in TEXTS]
    assert found["ids"] == rows
    width = max(map(len, rows))
    tokens = torch.tensor([row + [tokenizer.pad_id] * (width - len(row)) for row in rows])
    with torch.no_grad():
        mine = module(tokens, tokens != tokenizer.pad_id, tokens)  # type: ignore[operator]
    for row, here, there in zip(rows, mine, torch.tensor(found["logits"]), strict=True):
        torch.testing.assert_close(here[: len(row)], there[: len(row)], atol=2e-4, rtol=0)
    for row, written in zip(rows, found["written"], strict=True):
        assert written == tokenizer.decode(greedy(module, row, tokenizer, 47))  # to the last of 48 positions


def greedy(module: Any, source: list[int], tokenizer: tokenizers.Tokenizer, most: int) -> list[int]:
    """The likeliest next token, again and again, without a cache."""
    target = [tokenizer.bos_id]
    while len(target) <= most and target[-1] != tokenizer.eos_id:
        with torch.no_grad():
            logits = module(
                torch.tensor([source]), torch.ones(1, len(source), dtype=torch.bool), torch.tensor([target])
            )
        target.append(int(logits[0, -1].argmax()))
    return target


@pytest.mark.parametrize("save_theirs", [save_gpt2, save_llama])
def test_a_model_with_an_imported_tokenizer(tmp_path: Path, apart: Apart, save_theirs: Any) -> None:
    theirs = save_theirs(tmp_path / "theirs")
    model = tmp_path / "model"
    (model / "tokenizer").mkdir(parents=True)
    tokenizer = import_tokenizer(tmp_path / "theirs", model / "tokenizer")
    found = pretrained.read(tmp_path / "theirs")
    config = {"kind": "language_model", "family": found.family, "vocab_size": found.vocab_size, "corpus": "plays"}
    config["shape"] = found.shape | {"dropout": 0.0}
    module = build(config)
    module.load_state_dict(found.state, strict=False)
    folder.save(model, config, module)
    export(model, tmp_path / "export", "plays")
    got = apart.read(tmp_path / "export")
    for text, ids, logits in zip(TEXTS, got["ids"], got["logits"], strict=True):
        assert ids == tokenizer.encode(text)
        with torch.no_grad():
            torch.testing.assert_close(theirs(torch.tensor([ids])).logits[0], torch.tensor(logits), atol=1e-4, rtol=0)
    assert origin(tmp_path / "export") == origin_of(model / "tokenizer") == origin(tmp_path / "theirs")


@pytest.mark.parametrize(
    ("name", "shape", "kind", "more"),
    [
        ("gpt", GPT, "language_model", {}),
        ("bert", family("bert").tiny, "classifier", {"labels": LABELS, "dropout": 0.0, "max_tokens": 9}),
        ("gpt", GPT, "classifier", {"labels": LABELS, **LAST}),
        ("llama", LLAMA, "classifier", {"labels": LABELS, **LAST}),
        ("transformer", family("transformer").tiny, "translator", {}),
        ("transformer", {**family("transformer").tiny, "norm": "post"}, "translator", {}),
    ],
)
def test_what_was_exported_comes_in_again(
    tmp_path: Path, name: str, shape: dict[str, Any], kind: str, more: dict[str, Any]
) -> None:
    model = make(tmp_path / "model", name, resolved(name, shape), kind, **more)
    export(model, tmp_path / "export", "plays")
    fetch_checkpoint(FileSource("file", ("export/*",)), tmp_path, tmp_path / "checkpoint")
    again, first = pretrained.read(tmp_path / "checkpoint"), pretrained.read(model)
    assert (again.family, again.vocab_size) == (first.family, first.vocab_size)
    assert unlike(name, first.shape, again.family, again.shape) == {}
    assert again.state.keys() == first.state.keys()
    assert all(again.state[name].equal(tensor) for name, tensor in first.state.items())
    assert origin(tmp_path / "checkpoint") == origin(model)


def resolved(name: str, shape: Any) -> dict[str, Any]:
    """All sizes, defaults included, as a model folder has them."""
    return asdict(family(name).shape(**shape))


def test_a_model_folder_comes_in_as_it_is(tmp_path: Path) -> None:
    model = make(tmp_path / "model", "llama", LLAMA)
    fetch_checkpoint(FileSource("file", ("model/**",)), tmp_path, tmp_path / "checkpoint")
    assert pretrained.read(tmp_path / "checkpoint").ours
    assert origin(tmp_path / "checkpoint") == origin(model)


@pytest.mark.parametrize(
    ("family", "shape", "message"),
    [
        ("gpt", GPT | {"norm": "post"}, "post-norm"),
        ("gpt", GPT | {"d_head": 4}, "n_head \\* d_head is 8, but d_model 16"),
        *(
            (name, dict(family(name).tiny), f"family '{name}', which has no counterpart in transformers")
            for name in families("causal")
            if not family(name).model_types
        ),
    ],
)
def test_what_transformers_has_not_is_refused(tmp_path: Path, family: str, shape: dict[str, Any], message: str) -> None:
    model = make(tmp_path / "model", family, shape)
    with pytest.raises(UserError, match=message):
        export(model, tmp_path / "export", "plays")
    assert not (tmp_path / "export").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    model = make(tmp_path / "model", "gpt", GPT)
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        export(model, tmp_path / "export", "plays")
    assert [path.name for path in (tmp_path / "export").iterdir()] == ["mine.txt"]


@pytest.fixture
def workspace(published: tuple[Path, list[str]], tmp_path: Path) -> Path:
    """Where three models were published, with no model or package left: only the registry has them."""
    root = published[0]
    conf = tmp_path / "conf" / "execution"
    conf.mkdir(parents=True)
    uri = f"sqlite:///{root / 'mlflow.db'}"
    (conf / "local.yaml").write_text(f"tracking_uri: {uri}\n")
    from .plain import plain_params

    parse(plain_params())
    (tmp_path / "params.yaml").write_text(json.dumps(plain_params()))
    return tmp_path


def test_a_registered_champion_is_exported_with_its_card(
    workspace: Path, apart: Apart, capsys: pytest.CaptureFixture[str]
) -> None:
    export_model("gpt", workspace / "export", workspace)
    assert "the champion of 'gpt', version 1" in capsys.readouterr().out
    card = (workspace / "export" / "README.md").read_text()
    assert "# gpt" in card
    assert yaml.safe_load(card.split("---")[1])["language"] == ["en"]
    assert len(apart.read(workspace / "export")["ids"]) == len(TEXTS)


def test_this_projects_own_model_comes_first(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(workspace / layout.model("gpt"), "llama", LLAMA)
    export_model("gpt", workspace / "export", workspace)
    assert "artifacts/models/gpt" in capsys.readouterr().out
    assert "LlamaForCausalLM" in (workspace / "export" / "config.json").read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gtp", "the model 'gtp' is unknown, did you mean 'gpt'"),
    ],
)
def test_what_cannot_be_exported_is_reported(workspace: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        export_model(name, workspace / "export", workspace)
