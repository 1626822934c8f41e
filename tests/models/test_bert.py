"""The BERT classifier against `transformers`, its checkpoints and its tokenizer."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, BertConfig, BertModel

from lexmill import models
from lexmill.base.errors import UserError, UserErrors
from lexmill.models import folder as model_folder
from lexmill.models.bert.model import Bert
from lexmill.models.bert.shape import Activation, Shape
from lexmill.models.common.heads import PooledClassifier
from lexmill.models.common.state import load_weights, weights
from lexmill.models.pretrained import read_shape
from lexmill.models.start import start
from lexmill.tokenizers.imported import import_tokenizer
from tests.support.pretrained import save_gpt2
from tests.support.tiny_bert import SPECIALS, make_tiny_bert

WORDS = ["a", "good", "bad", "film", "sep", "[", "]", "##s"]
LABELS = ["negative", "positive", "so-so"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    make_tiny_bert(folder, WORDS)
    return folder


def build(checkpoint: Path) -> tuple[PooledClassifier, dict[str, Any]]:
    """A classifier on the checkpoint's encoder, and its config."""
    torch.manual_seed(1)
    tokenizer = checkpoint.parent / "tokenizer"
    if not tokenizer.exists():
        tokenizer.mkdir()
        import_tokenizer(checkpoint, tokenizer)
    family, shape, _ = read_shape(checkpoint)
    vocab_size = len([*SPECIALS, *WORDS])
    config = {"family": family, "shape": shape, "vocab_size": vocab_size, "labels": LABELS, "dropout": 0.5}
    module = models.build(config)
    assert isinstance(module, PooledClassifier)
    start(module, config, checkpoint, tokenizer)
    return module.eval(), config


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.tensor([[2, 5, 6, 8, 3], [2, 6, 3, 0, 0], [2, 3, 0, 0, 0]])
    return tokens, tokens != 0


def test_equal_to_the_mean_of_what_transformers_gives(checkpoint: Path) -> None:
    module, _ = build(checkpoint)
    oracle = AutoModel.from_pretrained(checkpoint, attn_implementation="eager").eval()
    tokens, mask = batch()
    for row in range(3):
        length = int(mask[row].sum())
        hidden = oracle(input_ids=tokens[row : row + 1, :length]).last_hidden_state
        logits = module.head(hidden.mean(dim=1))
        assert torch.allclose(module(tokens, mask)[row], logits[0], atol=1e-5)


@pytest.mark.parametrize("activation", get_args(Activation))
def test_each_activation_and_the_gradients_are_those_of_transformers(activation: str) -> None:
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
    shape = Shape(**sizes, max_position_embeddings=12, hidden_act=activation)  # type: ignore[arg-type]
    theirs = BertModel(BertConfig(**asdict(shape), vocab_size=20), add_pooling_layer=False).eval()
    ours = Bert(shape, 20).eval()
    load_weights(ours, {name: value + 0.1 * torch.randn_like(value) for name, value in weights(theirs).items()})
    load_weights(theirs, weights(ours))
    tokens, mask = batch()
    wanted = theirs(input_ids=tokens, attention_mask=mask.long()).last_hidden_state
    found = ours(tokens, mask)
    torch.testing.assert_close(found[mask], wanted[mask], atol=2e-5, rtol=1e-4)
    (wanted[mask] ** 3).sum().backward()
    (found[mask] ** 3).sum().backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=2e-4, rtol=1e-3)


def test_dropout_keeps_the_mean_and_ends_with_training() -> None:
    torch.manual_seed(4)
    shape = Shape(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24, max_position_embeddings=12
    )
    module = Bert(shape, 20)
    tokens, mask = batch()
    assert not torch.equal(module.train()(tokens, mask), module(tokens, mask))
    assert torch.equal(module.eval()(tokens, mask), module(tokens, mask))
    assert set(weights(module)) == set(
        weights(BertModel(BertConfig(**asdict(shape), vocab_size=20), add_pooling_layer=False))
    )


def test_padding_and_neighbours_change_nothing(checkpoint: Path) -> None:
    module, _ = build(checkpoint)
    tokens, mask = batch()
    together = module(tokens, mask)
    wider = module(torch.nn.functional.pad(tokens, (0, 7), value=5), torch.nn.functional.pad(mask, (0, 7)))
    alone = module(tokens[1:2, :3], mask[1:2, :3])
    assert torch.allclose(together, wider, atol=1e-5)
    assert torch.allclose(together[1], alone[0], atol=1e-5)


def test_a_row_of_padding_alone_gives_no_nan(checkpoint: Path) -> None:
    module, _ = build(checkpoint)
    assert module(torch.zeros(1, 3, dtype=torch.long), torch.zeros(1, 3, dtype=torch.bool)).isfinite().all()


def test_saved_and_loaded_without_the_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    module, config = build(checkpoint)
    model_folder.save(tmp_path / "model", {**config, "kind": "classifier", "max_tokens": 20}, module)
    found, loaded = model_folder.load(tmp_path / "model")
    assert found["labels"] == LABELS
    assert torch.equal(loaded(*batch()), module(*batch()))
    assert not any("pooler" in name for name in load_file(tmp_path / "model" / "model.safetensors"))


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"bert.{name}",
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"),
    ],
)
def test_checkpoints_with_other_names(checkpoint: Path, rename: Any) -> None:
    module, _ = build(checkpoint)
    path = checkpoint / "model.safetensors"
    save_file({rename(name): value for name, value in load_file(path).items()}, path)
    again, _ = build(checkpoint)
    assert torch.equal(module(*batch()), again(*batch()))


def test_errors_of_a_checkpoint(checkpoint: Path) -> None:
    path = checkpoint / "model.safetensors"
    weights = load_file(path)
    name = "encoder.layer.1.output.dense.weight"
    save_file({key: value for key, value in weights.items() if key != name}, path)
    with pytest.raises(UserError, match=f"the weights of .*checkpoint do not fit the model: '{name}' is missing"):
        build(checkpoint)
    save_file({**weights, name: torch.zeros(2, 2)}, path)
    with pytest.raises(UserError, match=rf"'{name}' is \(2, 2\), the model has \(16, 32\)"):
        build(checkpoint)
    path.write_bytes(b"half a file")
    with pytest.raises(UserError, match="weights cannot be read"):
        build(checkpoint)
    path.unlink()
    with pytest.raises(UserError, match="no safetensors weights here"):
        build(checkpoint)
    (checkpoint / "config.json").write_text(json.dumps({"model_type": "gpt_neox"}), encoding="utf-8")
    with pytest.raises(UserError, match="model_type 'gpt_neox' cannot be read; one of: bert"):
        build(checkpoint)
    (checkpoint / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(UserError, match="not a model's config"):
        build(checkpoint)


def test_a_checkpoint_of_another_family_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    module, config = build(checkpoint)
    save_gpt2(tmp_path / "gpt2")
    with pytest.raises(UserErrors, match=r"gpt2: family is 'gpt' there, 'bert' in params\.yaml"):
        start(module, config, tmp_path / "gpt2", tmp_path / "tokenizer")


def test_errors_of_a_batch(checkpoint: Path) -> None:
    module, _ = build(checkpoint)
    tokens = torch.ones(1, 25, dtype=torch.long)
    with pytest.raises(ValueError, match="25 tokens, but the encoder has 24 positions"):
        module(tokens, tokens.bool())
    with pytest.raises(ValueError, match="both must be"):
        module(tokens[:, :3], tokens.bool())


def test_the_sizes_of_a_config_that_names_none_are_those_of_transformers() -> None:
    theirs = BertConfig()
    assert asdict(Shape()) == {name: getattr(theirs, name) for name in asdict(Shape())}


def test_without_labels_the_encoder_alone_is_built(checkpoint: Path) -> None:
    module, config = build(checkpoint)
    alone = models.build({key: config[key] for key in ("family", "shape", "vocab_size")}).eval()
    load_weights(alone, weights(module.encoder))
    tokens, mask = batch()
    pooled = torch.stack([row[real].mean(0) for row, real in zip(alone.hidden(tokens, mask), mask, strict=True)])
    torch.testing.assert_close(module.features(tokens, mask), pooled)
