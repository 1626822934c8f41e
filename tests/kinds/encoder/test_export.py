"""Exported encoders: a process without lexmill gives the same logits, and the folder comes back as a checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from lexmill import tokenizers
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.models import build, family, folder, pretrained
from lexmill.models.common.state import weights
from lexmill.models.start import start
from lexmill.registry.hugging_face import export
from lexmill.tokenizers.imported import import_tokenizer
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save

SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
# A process that cannot have lexmill.
APART = """
import sys
sys.modules["lexmill"] = None
import json, torch, transformers
folder, auto, text = sys.argv[1:]
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
model, loading = getattr(transformers, auto).from_pretrained(folder, output_loading_info=True)
assert not any(loading.values()), loading
batch = tokenizer(text + tokenizer.mask_token, return_tensors="pt")
outputs = model.eval()(**batch)
found = {"name": type(model).__name__, "ids": batch["input_ids"][0].tolist(), "logits": outputs[0][0].tolist()}
if "Pre" in auto:
    found["pair"] = outputs[1][0].tolist()
print("FOUND " + json.dumps(found))
"""


def make(target: Path, more: Mapping[str, Any] | None = None, name: str = "bert", **heads: Any) -> Path:
    """A model folder with a byte tokenizer, every weight away from its fresh value."""
    (target / "tokenizer").mkdir(parents=True)
    save(assemble("byte", byte_model(), lowercase=False), target / "tokenizer")
    pretraining = {"objective": "masked", "pairs": "none", "generator": {}} | heads
    config = {"kind": "encoder", "family": name, "vocab_size": 261, "pretraining": pretraining}
    config |= {"shape": asdict(family(name).shape(**SHAPE | dict(more or {}))), "max_tokens": 40, "corpus": "plays"}
    torch.manual_seed(5)
    module = build(config)
    with torch.no_grad():
        for value in weights(module).values():
            value.add_(torch.randn_like(value) * 0.3)
    folder.save(target, config, module)
    return target


@pytest.mark.parametrize(
    ("pairs", "auto", "name"),
    [
        ("none", "AutoModelForMaskedLM", "BertForMaskedLM"),
        ("next_sentence", "AutoModelForPreTraining", "BertForPreTraining"),
    ],
)
def test_a_process_without_lexmill_gives_the_same(tmp_path: Path, pairs: str, auto: str, name: str) -> None:
    model = make(tmp_path / "model", {"layer_norm_eps": 0.1}, pairs=pairs)
    export(model, tmp_path / "export", "plays")
    asked = [sys.executable, "-c", APART, str(tmp_path / "export"), auto, "To be,"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=tmp_path)
    (line,) = [line for line in done.stdout.split("\n") if line.startswith("FOUND ")] or [done.stderr]
    found = json.loads(line.removeprefix("FOUND "))
    tokenizer = tokenizers.load(model / "tokenizer")
    ids = [tokenizer.bos_id, *tokenizer.encode("To be,"), tokenizer.mask_id, tokenizer.eos_id]
    assert (found["name"], found["ids"]) == (name, ids)
    _, module = folder.load(model)
    tokens = torch.tensor([ids])
    every = torch.ones_like(tokens, dtype=torch.bool)
    with torch.inference_mode():
        logits, order = module(tokens, every, every)
    np.testing.assert_allclose(found["logits"], logits, rtol=1e-4, atol=1e-4)
    if order is not None:
        np.testing.assert_allclose(found["pair"], order[0], rtol=1e-4, atol=1e-4)


def test_it_comes_back_as_a_checkpoint(tmp_path: Path) -> None:
    model = make(tmp_path / "model", pairs="next_sentence")
    export(model, tmp_path / "export", "plays")
    assert "AutoModelForPreTraining" in (tmp_path / "export" / "README.md").read_text(encoding="utf-8")
    found, own = pretrained.read(tmp_path / "export"), pretrained.read(model)
    assert (found.family, found.vocab_size) == ("bert", 261)
    assert found.state.keys() == own.state.keys()
    assert all(torch.equal(found.state[name], own.state[name]) for name in own.state)
    (tmp_path / "tokenizer").mkdir()
    import_tokenizer(tmp_path / "export", tmp_path / "tokenizer")
    config = folder.read_config(model)
    module = build(config)
    start(module, config, tmp_path / "export", tmp_path / "tokenizer")
    _, whole = folder.load(model)
    for name, parameter in whole.named_parameters():
        assert torch.equal(module.get_parameter(name), parameter), name


ELECTRA = {"model_type": "electra", "pad_token_id": 0, "options": {"embedding_size": 8}}
# A process that cannot have lexmill: a detector's logits of a padded batch, and its generator's.
REPLACED = """
import sys
sys.modules["lexmill"] = None
import json, torch, transformers
folder, texts = sys.argv[1], json.loads(sys.argv[2])
tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
batch = tokenizer(texts, padding=True, return_tensors="pt")
found = {"ids": batch["input_ids"].tolist(), "mask": batch["attention_mask"].tolist()}
for auto, below in (("AutoModelForPreTraining", ""), ("AutoModelForMaskedLM", "generator")):
    load = getattr(transformers, auto).from_pretrained
    model, loading = load(folder, subfolder=below, output_loading_info=True)
    assert not any(loading.values()), loading
    found[type(model).__name__] = model.eval()(**batch).logits.tolist()
print("FOUND " + json.dumps(found))
"""


@pytest.mark.parametrize(
    ("name", "more", "generator"),
    [
        ("bert", {"layer_norm_eps": 0.1}, {"num_hidden_layers": 1}),
        ("bert", {}, {"hidden_size": 8, "intermediate_size": 12}),
        ("hugging_face_encoder", ELECTRA, {"hidden_size": 8, "intermediate_size": 12}),
    ],
    ids=["shares the embedding", "a narrower one", "a narrower embedding"],
)
def test_a_process_without_lexmill_finds_the_same_replaced_tokens(
    tmp_path: Path, name: str, more: dict[str, Any], generator: dict[str, int]
) -> None:
    model = make(tmp_path / "model", more, name, objective="replaced", generator=generator)
    export(model, tmp_path / "export", "plays")
    asked = [sys.executable, "-c", REPLACED, str(tmp_path / "export"), json.dumps(["To be,", "or not to be"])]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, cwd=tmp_path)
    (line,) = [line for line in done.stdout.split("\n") if line.startswith("FOUND ")] or [done.stderr]
    found = json.loads(line.removeprefix("FOUND "))
    assert found.keys() == {"ids", "mask", "ElectraForPreTraining", "ElectraForMaskedLM"}
    tokens, mask = torch.tensor(found["ids"]), torch.tensor(found["mask"]).bool()
    tokenizer = tokenizers.load(model / "tokenizer")
    assert tokens[0, mask[0]].tolist() == [tokenizer.bos_id, *tokenizer.encode("To be,"), tokenizer.eos_id]
    _, module = folder.load(model)
    with torch.inference_mode():
        logits = module.find(tokens, mask)
        of_tokens, _ = module.generator(tokens, mask, mask)
    np.testing.assert_allclose(np.array(found["ElectraForPreTraining"])[mask], logits[mask], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.array(found["ElectraForMaskedLM"])[mask], of_tokens, rtol=1e-4, atol=1e-4)
    assert logits[mask].std() > 0.1
    # It comes back as an ELECTRA, with its head.
    again = pretrained.read(tmp_path / "export")
    assert (again.family, again.shape["model_type"]) == ("hugging_face_encoder", "electra")
    sizes = {"family": again.family, "shape": again.shape, "vocab_size": again.vocab_size}
    more_of = {"kind": "encoder", "pretraining": {"objective": "replaced", "pairs": "none", "generator": generator}}
    other = build(sizes | more_of).eval()
    (tmp_path / "tokenizer").mkdir()
    import_tokenizer(tmp_path / "export", tmp_path / "tokenizer")
    start(other, sizes, tmp_path / "export", tmp_path / "tokenizer")
    with torch.inference_mode():
        np.testing.assert_allclose(other.find(tokens, mask)[mask], logits[mask], rtol=1e-4, atol=1e-4)


def test_a_detector_with_another_activation_is_refused(tmp_path: Path) -> None:
    model = make(tmp_path / "model", {"hidden_act": "relu"}, objective="replaced")
    with pytest.raises(UserError, match=r"shape\.hidden_act: relu cannot be exported"):
        export(model, tmp_path / "export", "plays")
    assert not (tmp_path / "export").exists()


def test_a_classifier_that_starts_from_a_detector_is_exported_as_a_bert(tmp_path: Path) -> None:
    model = make(tmp_path / "model", objective="replaced", generator={"num_hidden_layers": 1})
    config = {"kind": "classifier", "family": "bert", "shape": SHAPE, "vocab_size": 261, "max_tokens": 40}
    config |= {"labels": ["a", "b", "c"], "dropout": 0.0}
    classifier = build(config).eval()
    start(classifier, config, model, model / "tokenizer")
    _, whole = folder.load(model)
    for name, parameter in classifier.encoder.named_parameters():
        assert torch.equal(parameter, whole.encoder.get_parameter(name)), name
    folder.save(tmp_path / "labels", config, classifier)
    shutil.copytree(model / "tokenizer", tmp_path / "labels" / "tokenizer")
    export(tmp_path / "labels", tmp_path / "export", "labels")
    there = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "export")
    assert type(there).__name__ == "BertForTokenClassification"
    tokens = torch.arange(5, 17)[None]
    with torch.no_grad():
        mine = classifier(tokens, torch.ones_like(tokens, dtype=torch.bool))
        torch.testing.assert_close(mine, there(tokens).logits.mean(1), atol=1e-4, rtol=0)


@pytest.mark.parametrize(("layers", "fresh"), [(1, set()), (2, {"generator"})])
def test_another_detector_starts_with_its_heads_and_a_generator_of_equal_sizes(
    tmp_path: Path, layers: int, fresh: set[str]
) -> None:
    model = make(tmp_path / "model", objective="replaced", generator={"num_hidden_layers": 1})
    config = folder.read_config(model)
    config["pretraining"] = {**config["pretraining"], "generator": {"num_hidden_layers": layers}}
    module, (_, whole) = build(config), folder.load(model)
    drawn = {name: value.clone() for name, value in weights(module).items()}
    start(module, config, model, model / "tokenizer")
    for name, value in weights(module).items():
        wanted = drawn if name.partition(".")[0] in fresh else weights(whole)
        assert torch.equal(value, wanted[name]), name


def test_an_encoder_without_a_counterpart_is_refused(tmp_path: Path) -> None:
    model = make(tmp_path / "model")
    config = storage.read_json(model / "config.json") | {
        "family": "modern_encoder",
        "shape": family("modern_encoder").tiny,
    }
    storage.write_json(model / "config.json", config)
    with pytest.raises(UserError, match="'plays' is an encoder of family 'modern_encoder', which has no counterpart"):
        export(model, tmp_path / "export", "plays")
