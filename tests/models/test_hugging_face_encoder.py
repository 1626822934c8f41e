"""Encoders of every shape against `transformers`: hidden states, tokens of pairs, sizes, and what is refused."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from lexmill import models, tokenizers
from lexmill.base import strict
from lexmill.base.errors import UserError, UserErrors
from lexmill.data.texts import encode
from lexmill.models import folder, pretrained
from lexmill.models.common.state import weights
from lexmill.models.declaration import unlike
from lexmill.models.hugging_face_encoder.hugging_face import CLASSES, configuration, write_config
from lexmill.models.hugging_face_encoder.shape import FAMILY, OPTIONS, Shape
from lexmill.models.start import start
from lexmill.tokenizers.imported import import_tokenizer
from tests.support.tiny_encoders import make_tiny_encoder

WORDS = ["the", "mill", "turns", "slowly", "water", "film", "good", "dull", "##s", "?"]
TYPES = list(CLASSES)
TEXTS = ["the mill turns", "water? good  film", "dull"]
HEADS: dict[str, dict[str, Any]] = {
    "alone": {},
    "labels": {"labels": ["a", "b"], "dropout": 0.0},
    "tags": {"tags": ["O", "B-x"], "dropout": 0.0, "scheme": "iob2", "pieces": "first", "head": "softmax"},
    "spans": {"spans": True},
}


def started(checkpoint: Path, **more: Any) -> tuple[Any, dict[str, Any], tokenizers.Tokenizer]:
    """A network that starts from the checkpoint, as a training makes it."""
    target = checkpoint.parent / "tokenizer"
    if not target.exists():
        target.mkdir()
        import_tokenizer(checkpoint, target)
    tokenizer = tokenizers.load(target)
    family, shape, _ = pretrained.read_shape(checkpoint)
    config = {"family": family, "shape": shape, "vocab_size": tokenizer.vocab_size, **more}
    module = models.build(config)
    start(module, config, checkpoint, target)
    return module.eval(), config, tokenizer


@pytest.mark.parametrize("model_type", TYPES)
def test_the_hidden_states_are_those_of_transformers(tmp_path: Path, model_type: str) -> None:
    theirs = make_tiny_encoder(tmp_path / "checkpoint", model_type, WORDS)
    module, config, tokenizer = started(tmp_path / "checkpoint")
    assert config["vocab_size"] < theirs.config.vocab_size, "padded rows are cut"
    assert module.d_model == 16
    assert module.max_positions == (38 if model_type in ("xlm-roberta", "roberta", "mpnet") else 40)
    rows = encode(tokenizer, TEXTS, 12)
    longest = torch.randint(5, tokenizer.vocab_size, (module.max_positions,)).tolist()
    rows.append(longest)
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(len(longest)) < lengths[:, None]
    for pad in (tokenizer.pad_id, 0):  # batches here are padded by any token
        tokens = torch.full(mask.shape, pad)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)] = torch.tensor(ids)
        with torch.no_grad():
            found = module.hidden(tokens, mask)
            for row, ids in enumerate(rows):
                wanted = theirs(input_ids=torch.tensor([ids])).last_hidden_state[0]
                torch.testing.assert_close(found[row, : len(ids)], wanted, atol=1e-5, rtol=0)
    assert module.hidden(tokens[:1], torch.zeros_like(mask[:1])).isfinite().all()
    with pytest.raises(ValueError, match="positions"):
        module.hidden(*(torch.ones(1, module.max_positions + 1, dtype=kind) for kind in (torch.long, torch.bool)))


@pytest.mark.parametrize("model_type", ["electra", "deberta-v2"])
def test_segments_are_read_where_the_shape_has_them(tmp_path: Path, model_type: str) -> None:
    theirs = make_tiny_encoder(tmp_path / "checkpoint", model_type, WORDS, type_vocab_size=2)
    module, _, tokenizer = started(tmp_path / "checkpoint")
    assert module.n_segments == 2
    tokens = torch.tensor(encode(tokenizer, [("the mill", "turns")], 12))
    segments = (torch.arange(tokens.shape[1]) > 3).long()[None]
    with torch.no_grad():
        found = module.hidden(tokens, torch.ones_like(tokens, dtype=torch.bool), segments)
        wanted = theirs(input_ids=tokens, token_type_ids=segments).last_hidden_state
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("model_type", TYPES)
def test_a_checkpoint_under_a_head_starts_a_network_under_each_head(tmp_path: Path, model_type: str, head: str) -> None:
    theirs = make_tiny_encoder(tmp_path / "checkpoint", model_type, WORDS, head="ForMaskedLM")
    module, config, tokenizer = started(tmp_path / "checkpoint", **HEADS[head])
    encoder = module if head == "alone" else module.encoder
    tokens = torch.tensor(encode(tokenizer, TEXTS[:1], 12))
    real = torch.ones_like(tokens, dtype=torch.bool)
    with torch.no_grad():
        wanted = theirs.base_model(input_ids=tokens).last_hidden_state
        torch.testing.assert_close(encoder.hidden(tokens, real), wanted, atol=1e-5, rtol=0)
    # A model folder of ours gives it back, and starts another one.
    kind = {"alone": "encoder", "labels": "classifier", "tags": "tagger", "spans": "answerer"}[head]
    folder.save(tmp_path / "model", {**config, "kind": kind}, module)
    _, again = folder.load(tmp_path / "model")
    assert all(torch.equal(value, weights(again)[name]) for name, value in weights(module).items())
    found = pretrained.read(tmp_path / "model")
    assert found.state.keys() == weights(encoder).keys()
    assert unlike(config["family"], config["shape"], found.family, found.shape) == {}


@pytest.mark.parametrize("model_type", TYPES)
def test_texts_and_pairs_have_the_tokens_that_transformers_gives_them(tmp_path: Path, model_type: str) -> None:
    make_tiny_encoder(tmp_path / "checkpoint", model_type, WORDS)
    _, _, tokenizer = started(tmp_path / "checkpoint")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    assert encode(tokenizer, TEXTS, 38) == theirs(TEXTS)["input_ids"]
    pairs = [("the mill", "turns slowly"), ("water?", "good")]
    wanted = theirs([one for one, _ in pairs], [other for _, other in pairs])["input_ids"]
    assert encode(tokenizer, pairs, 38) == wanted
    long = [("the mill " * 20, "water " * 20)]
    assert len(encode(tokenizer, long, 20)[0]) == 20
    assert tokenizer.mask_id is not None
    assert tokenizer.pad_id == theirs.pad_token_id
    assert tokenizer.encode("<s>[SEP]</s>")[0] not in (tokenizer.eos_id, tokenizer.bos_id), "typed, they stay text"


@pytest.mark.parametrize("model_type", TYPES)
def test_defaults_are_those_of_transformers_and_sizes_go_there_and_back(model_type: str) -> None:
    read = pretrained.mapping("hugging_face_encoder").read_shape
    shape = read({"model_type": model_type})
    assert shape["options"] == OPTIONS[model_type]
    errors: list[str] = []
    assert strict.build(Shape, shape, errors) is not None, errors
    assert read(write_config(shape, 70_000)) == shape
    changed = {**shape, "options": {**shape["options"], **_other(model_type)}}
    assert read(write_config(changed, 70_000)) == changed
    named = {key: value for key, value in shape.items() if key != "options"}
    assert unlike("hugging_face_encoder", shape, "hugging_face_encoder", shape) == {}
    assert unlike("hugging_face_encoder", {**named, "options": {}}, "hugging_face_encoder", shape) == {}
    differing = unlike("hugging_face_encoder", shape, "hugging_face_encoder", changed)
    assert list(differing) == [f"options.{name}" for name in sorted(_other(model_type))]


def _other(model_type: str) -> dict[str, Any]:
    """Another value of every option."""
    text = {"pos_att_type": "c2p|p2c", "norm_rel_ebd": "layer_norm", "conv_act": "gelu"}
    return {
        name: text[name] if isinstance(value, str) else not value if isinstance(value, bool) else value + 4
        for name, value in OPTIONS[model_type].items()
    }


def test_published_configurations_are_read() -> None:
    """As config.json of the published ModernBERT and DeBERTa-v3 has them, in the keys of their time."""
    read = pretrained.mapping("hugging_face_encoder").read_shape
    modern = read(
        {"model_type": "modernbert", "global_attn_every_n_layers": 2, "local_rope_theta": 7.5, "norm_eps": 0.1}
    )
    assert modern["options"]["global_attn_every_n_layers"] == 2
    assert modern["options"]["local_rope_theta"] == 7.5
    assert modern["layer_norm_eps"] == 0.1
    deberta = read({"model_type": "deberta-v2", "pos_att_type": "p2c|c2p", "position_buckets": 256})
    assert (deberta["options"]["pos_att_type"], deberta["options"]["position_buckets"]) == ("c2p|p2c", 256)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "gpt_neox"}, "model_type 'gpt_neox' cannot be read; one of: .*bert.*roberta.*modernbert"),
        ({"model_type": "roberta", "position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"model_type": "roberta", "is_decoder": True}, "is_decoder"),
        ({"model_type": "roberta", "hidden_size": "wide"}, "config.json cannot be read"),
        ({"model_type": "roberta", "hidden_size": 17}, "hidden_size: 17 is no multiple of num_attention_heads"),
        ({"model_type": "roberta", "num_hidden_layers": 10**9}, "num_hidden_layers: .* too large"),
        ({"model_type": "roberta", "max_position_embeddings": 2}, "the first 2 are no positions"),
        ({"model_type": "electra", "embedding_size": -4}, "options.embedding_size: -4 is no whole number"),
        ({"model_type": "deberta-v2", "embedding_size": 8}, "embedding_size is 8"),
        ({"model_type": "deberta-v2", "norm_rel_ebd": "x"}, "options.norm_rel_ebd: 'x' is none of"),
        (
            {"model_type": "modernbert", "layer_types": ["full_attention"] * 2 + ["sliding_attention"] * 20},
            "layer_types",
        ),
        (
            {"model_type": "modernbert", "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}},
            "rope_type is 'linear'",
        ),
    ],
)
def test_what_is_not_computed_here_is_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises((UserError, UserErrors), match=message):
        pretrained.read_shape(tmp_path)


def test_pickled_weights_and_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    make_tiny_encoder(checkpoint, "roberta", WORDS)
    _, config, _ = started(checkpoint)
    path = checkpoint / "model.safetensors"
    tensors = load_file(path)
    name = "encoder.layer.1.output.dense.weight"
    save_file({key: value for key, value in tensors.items() if key != name}, path)
    with pytest.raises(UserError, match=f"do not fit the model: 'network.{name}' is missing"):
        started(checkpoint)
    path.rename(checkpoint / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model\.bin is a pickle, which can run code and is never read"):
        started(checkpoint)
    (checkpoint / "pytorch_model.bin").rename(path)
    save_file(tensors, path)
    other = {**config, "shape": {**config["shape"], "hidden_size": 32, "options": {"type_vocab_size": 2}}}
    with pytest.raises(UserErrors) as caught:
        start(models.build(other), other, checkpoint, tmp_path / "tokenizer")
    assert "shape.hidden_size is 16 there, 32 in params.yaml" in str(caught.value)
    assert "shape.options.type_vocab_size is 1 there, 2 in params.yaml" in str(caught.value)


def test_options_of_another_shape_are_errors() -> None:
    errors: list[str] = []
    shape = {**FAMILY.tiny, "options": {"embedding_size": 8, "type_vocab_size": "two"}}
    assert strict.build(Shape, shape, errors, "shape") is None
    assert errors == [
        "shape.options.embedding_size: a roberta has no such option; known: type_vocab_size",
        "shape.options.type_vocab_size: 'two' is no number",
    ]
    with pytest.raises(UserError, match="pad_token_id is 1, but the vocabulary has 1 tokens"):
        models.build({"family": "hugging_face_encoder", "shape": asdict(Shape(**FAMILY.tiny)), "vocab_size": 1})
    assert {each.name for each in fields(Shape)} >= set(FAMILY.free)


def test_no_code_of_a_checkpoint_runs(tmp_path: Path) -> None:
    """`auto_map` names code beside the weights; the classes are always the library's own."""
    checkpoint = tmp_path / "checkpoint"
    make_tiny_encoder(checkpoint, "roberta", WORDS)
    (checkpoint / "evil.py").write_text("raise SystemExit('it ran')\n", encoding="utf-8")
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    (checkpoint / "config.json").write_text(json.dumps(config), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module, _, _ = started(checkpoint)
    assert type(module.network) is transformers.RobertaModel
    assert type(configuration("roberta", {})) is transformers.RobertaConfig
