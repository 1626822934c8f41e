import dataclasses
import math
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from lexmill.models import build
from lexmill.models.common.attention import fuse_projections
from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape

SHAPE = GPTShape(n_layer=3, n_head=4, d_model=32, context=24, dropout=0.0)


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(SHAPE, 61).eval()


def is_theirs(model: GPT, theirs: Any, embeddings: list[Any], layers: list[tuple[Any, Any]]) -> None:
    """Copy drawn weights, biases and norms too, from transformers; compare logits and the gradients of all weights."""
    pairs = [
        (mine.weight, other.weight, Tensor.clone)
        for mine, other in zip((model.embedding, model.positions), embeddings, strict=True)
    ]
    for block, h in zip(model.blocks, theirs.transformer.h, strict=True):
        layers += [(block.attention_norm, h.ln_1), (block.feed_forward_norm, h.ln_2)]
        layers += [(block.attention.query_key_value, h.attn.c_attn), (block.attention.output, h.attn.c_proj)]
        layers += [(block.feed_forward.expand, h.mlp.c_fc), (block.feed_forward.output, h.mlp.c_proj)]
    for mine, other in layers:
        # GPT-2's Conv1D holds its matrix transposed.
        read = fused if mine.weight.shape[0] == 3 * mine.weight.shape[-1] else Tensor.t
        pairs += [(mine.weight, other.weight, read), (mine.bias, other.bias, read)]
    assert len(pairs) == len(list(model.parameters()))
    tokens, targets = torch.randint(61, (2, 3, 24))
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.2)
        for mine, other, read in pairs:
            mine.copy_(read(other))
    logits = theirs(tokens).logits
    torch.testing.assert_close(model(tokens), logits, rtol=1e-4, atol=1e-4)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").backward()
    model.loss(tokens, targets).backward()
    for mine, other, read in pairs:
        torch.testing.assert_close(mine.grad, read(other.grad), rtol=1e-4, atol=1e-4)


def fused(weight: Tensor) -> Tensor:
    return fuse_projections(*weight.t().chunk(3), n_head=4)


def test_logits_and_gradients_are_those_of_transformers_gpt2(model: GPT) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=61, n_positions=24, n_embd=32, n_layer=3, n_head=4, attn_implementation="eager")
    theirs = GPT2LMHeadModel(config).eval()
    gpt2 = theirs.transformer
    is_theirs(model, theirs, [gpt2.wte, gpt2.wpe], [(model.norm, gpt2.ln_f)])


@pytest.mark.parametrize("cuts", [[1] * 12, [5, 1, 1, 3, 2], [12]])
def test_cached_decoding_is_full_decoding(model: GPT, cuts: list[int]) -> None:
    tokens = torch.randint(61, (2, 12))
    cache, start, pieces = model.new_cache(2), 0, []
    for width in cuts:
        pieces.append(model(tokens[:, start : start + width], cache))
        start += width
    assert cache.length == 12
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), rtol=1e-5, atol=1e-6)


def test_positions_beyond_the_context_are_refused(model: GPT) -> None:
    with pytest.raises(ValueError, match="25 positions, but the model's context is 24"):
        model(torch.zeros(1, 25, dtype=torch.int64))
    cache = model.new_cache(1)
    model(torch.zeros(1, 24, dtype=torch.int64), cache)
    with pytest.raises(ValueError, match="25 positions"):
        model(torch.zeros(1, 1, dtype=torch.int64), cache)
    with pytest.raises(ValueError, match="at least one sequence"):
        model.new_cache(0)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_loss_is_that_of_its_logits(norm: Literal["pre", "post"]) -> None:
    torch.manual_seed(1)
    model = GPT(dataclasses.replace(SHAPE, norm=norm, d_head=12), 61)
    tokens, targets = torch.randint(61, (2, 3, 24))
    targets[0, 3:9] = -100
    loss = model.loss(tokens, targets)
    wanted = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), reduction="sum")
    torch.testing.assert_close(loss, wanted)
    found = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(found, torch.autograd.grad(wanted, list(model.parameters())), rtol=1e-4, atol=1e-4)


def test_packed_documents_give_what_they_give_alone(model: GPT) -> None:
    tokens = torch.randint(61, (2, 20))
    documents = torch.tensor([[3] * 7 + [4] * 12 + [5], [0] * 1 + [1] * 2 + [8] * 17])
    packed = model(tokens, documents=documents)
    for row, lengths in enumerate([(7, 12, 1), (1, 2, 17)]):
        alone = [model(part[None])[0] for part in tokens[row].split(lengths)]
        torch.testing.assert_close(packed[row], torch.cat(alone), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(packed, model(tokens))
    loss = model.loss(tokens, tokens, documents)
    wanted = torch.nn.functional.cross_entropy(packed.flatten(0, 1), tokens.flatten(), reduction="sum")
    torch.testing.assert_close(loss, wanted)
    with pytest.raises(ValueError, match="with a cache"):
        model(tokens, model.new_cache(2), documents)


def test_post_norm_is_the_first_gpt() -> None:
    from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

    config = OpenAIGPTConfig(vocab_size=61, n_positions=24, n_embd=32, n_layer=3, n_head=4, afn="gelu")
    theirs = OpenAIGPTLMHeadModel(config).eval()
    model = GPT(dataclasses.replace(SHAPE, norm="post"), 61).eval()
    is_theirs(model, theirs, [theirs.transformer.tokens_embed, theirs.transformer.positions_embed], [])


def test_initial_weights_have_gpt2s_variances() -> None:
    model = GPT(GPTShape(n_layer=2, n_head=4, d_model=256, context=128, dropout=0.0), 300)
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2:
            wanted = 0.02 / math.sqrt(4) if name.endswith("output.weight") else 0.02
            assert parameter.std().item() == pytest.approx(wanted, rel=0.03), name
        elif name.endswith("bias"):
            assert not parameter.any(), name
        else:
            assert (parameter == 1).all(), name


def test_the_first_loss_is_that_of_a_uniform_guess(model: GPT) -> None:
    tokens = torch.randint(61, (8, 24))
    loss = torch.nn.functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(61), abs=0.05)


def test_parameters_and_flops_are_counted() -> None:
    # GPT-2 small, Radford et al. 2019: 124,439,808 parameters.
    with torch.device("meta"):
        model = GPT(GPTShape(n_layer=12, n_head=12, d_model=768, context=1024, dropout=0.0), 50257)
    assert model.count_parameters() == 124_439_808
    matrices = 12 * 12 * 768**2 + 50257 * 768
    assert model.flops_per_token() == 6 * matrices + 12 * 12 * 1024 * 768
    # GPT-3's "2.7B" has 32 heads of width 80; here heads of another width than d_model / n_head.
    with torch.device("meta"):
        model = GPT(GPTShape(n_layer=2, n_head=3, d_model=32, context=16, d_head=20), 50)
    assert (
        model.count_parameters() == 50 * 32 + 16 * 32 + 2 * (4 * 32 * 60 + 180 + 32 + 8 * 32**2 + 5 * 32 + 64 + 64) + 64
    )
    assert model.flops_per_token() == 6 * (2 * (4 * 32 * 60 + 8 * 32**2) + 50 * 32) + 12 * 2 * 16 * 60


def test_a_config_builds_the_model() -> None:
    shape = {"n_layer": 1, "n_head": 2, "d_model": 8, "context": 6, "dropout": 0.25}
    model = build({"family": "gpt", "shape": shape, "vocab_size": 11})
    assert model(torch.zeros(1, 6, dtype=torch.int64)).shape == (1, 6, 11)
    assert isinstance(model, GPT)
    assert model.context == 6
