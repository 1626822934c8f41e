"""The encoder-decoder Transformer beside torch's own with the same weights, its cache, its padding."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from lexmill.models.common.attention import split_projection
from lexmill.models.common.dropout import add_dropped
from lexmill.models.common.init import Xavier, initialize
from lexmill.models.transformer.model import Transformer
from lexmill.models.transformer.shape import Shape as TransformerShape

V = 23


def make(norm: str = "pre", dropout: float = 0.0, **sizes: int) -> Transformer:
    torch.manual_seed(3)
    shape = {"encoder_layers": 2, "decoder_layers": 3, "n_head": 2, "d_model": 12, "d_ffn": 20, "max_positions": 16}
    module = Transformer(TransformerShape(**{**shape, **sizes}, dropout=dropout, norm=norm), V)
    initialize(module, Xavier(embedding_std=0))
    with torch.no_grad():  # biases and norms away from their neutral start, or a missing one would not show
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return module.eval()


def pairs(lengths: list[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Random source (B, S), its mask, target (B, T), padded on the right."""
    torch.manual_seed(5)
    s, t = max(s for s, _ in lengths), max(t for _, t in lengths)
    source, target = torch.randint(5, V, (len(lengths), s)), torch.randint(5, V, (len(lengths), t))
    mask = torch.arange(s)[None, :] < torch.tensor([s for s, _ in lengths])[:, None]
    return source.masked_fill(~mask, 0), mask, target


def twin(module: Transformer) -> nn.Transformer:
    """torch's own Transformer with the same weights."""
    shape = module.shape
    other = nn.Transformer(
        shape.d_model,
        shape.n_head,
        shape.encoder_layers,
        shape.decoder_layers,
        shape.d_ffn,
        dropout=0.0,
        batch_first=True,
        norm_first=shape.norm == "pre",
    )
    if shape.norm == "post":  # torch puts a last norm there too, which the paper has not
        other.encoder.norm = other.decoder.norm = None
    else:
        other.encoder.norm.load_state_dict(module.encoder_norm.state_dict())
        other.decoder.norm.load_state_dict(module.decoder_norm.state_dict())
    with torch.no_grad():
        for ours, theirs in zip(module.encoder, other.encoder.layers, strict=True):
            copy_attention(theirs.self_attn, ours.attention.query_key_value, ours.attention.output)
            copy_feed_forward(theirs, ours)
            theirs.norm1.load_state_dict(ours.around_attention.norm.state_dict())
            theirs.norm2.load_state_dict(ours.around_feed_forward.norm.state_dict())
        for ours, theirs in zip(module.decoder, other.decoder.layers, strict=True):
            copy_attention(theirs.self_attn, ours.attention.query_key_value, ours.attention.output)
            copy_attention(theirs.multihead_attn, ours.cross.query, ours.cross.output, ours.cross.key_value)
            copy_feed_forward(theirs, ours)
            theirs.norm1.load_state_dict(ours.around_attention.norm.state_dict())
            theirs.norm2.load_state_dict(ours.around_cross.norm.state_dict())
            theirs.norm3.load_state_dict(ours.around_feed_forward.norm.state_dict())
    return other.eval()


def copy_attention(theirs: nn.MultiheadAttention, *ours: nn.Linear) -> None:
    first, output, *rest = ours
    weights = [one.weight for one in (first, *rest)] if rest else split_projection(first.weight, theirs.num_heads)
    biases = [one.bias for one in (first, *rest)] if rest else split_projection(first.bias, theirs.num_heads)
    theirs.in_proj_weight.copy_(torch.cat([*weights]))
    theirs.in_proj_bias.copy_(torch.cat([*biases]))
    theirs.out_proj.load_state_dict(output.state_dict())


def copy_feed_forward(theirs: nn.Module, ours: nn.Module) -> None:
    theirs.linear1.load_state_dict(ours.feed_forward.expand.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.output.state_dict())


def slow_embed(module: Transformer, tokens: Tensor) -> Tensor:
    """The paper's formula, one number at a time."""
    d = module.shape.d_model
    out = torch.zeros(*tokens.shape, d)
    for b, row in enumerate(tokens.tolist()):
        for position, token in enumerate(row):
            for i in range(d):
                angle = position / 10000 ** ((i - i % 2) / d)
                wave = math.sin(angle) if i % 2 == 0 else math.cos(angle)
                out[b, position, i] = module.embedding.weight[token, i] * math.sqrt(d) + wave
    return out


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_logits_are_those_of_torchs_transformer(norm: str) -> None:
    module = make(norm)
    source, mask, target = pairs([(7, 5), (4, 6), (1, 2)])
    other = twin(module)
    t = target.size(1)
    expected = other(
        slow_embed(module, source),
        slow_embed(module, target),
        tgt_mask=torch.ones(t, t, dtype=torch.bool).triu(1),
        src_key_padding_mask=~mask,
        memory_key_padding_mask=~mask,
    )
    torch.testing.assert_close(module(source, mask, target), expected @ module.embedding.weight.T, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested")
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_the_alignment_is_that_of_torchs_last_attention(norm: str) -> None:
    module = make(norm)
    source, mask, target = pairs([(7, 5), (4, 5)])
    other, found = twin(module), []
    attention = other.decoder.layers[-1].multihead_attn
    attention.register_forward_pre_hook(
        lambda _, given, named: (given, {**named, "need_weights": True}), with_kwargs=True
    )
    attention.register_forward_hook(lambda _, __, out: found.append(out[1]))
    other(
        slow_embed(module, source),
        slow_embed(module, target),
        tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1),
        src_key_padding_mask=~mask,
        memory_key_padding_mask=~mask,
    )
    torch.testing.assert_close(module.alignment(source, mask, target), found[0], rtol=1e-5, atol=1e-6)


def test_a_row_of_padding_alone_gives_numbers_and_no_gradient_that_is_none() -> None:
    module = make()
    source, mask, target = pairs([(5, 4), (3, 4)])
    mask[1] = False
    logits = module(source, mask, target)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in module.parameters())
    other = module(source.flip(1), mask.flip(1), target)[1]
    torch.testing.assert_close(logits[1], other, rtol=0, atol=1e-5)  # and nothing of the padding is read


def test_the_embedding_is_one_matrix_and_counted_once() -> None:
    module = make()
    assert [name for name, _ in module.named_parameters() if "embedding" in name] == ["embedding.weight"]
    d, f = 12, 20
    attention, feed_forward, norm = 4 * d * d + 4 * d, 2 * d * f + d + f, 2 * d
    layers = 2 * (attention + feed_forward + 2 * norm) + 3 * (2 * attention + feed_forward + 3 * norm)
    assert module.count_parameters() == V * d + layers + 2 * norm
    assert "positions" not in module.state_dict()


def test_training_flops_are_those_of_the_matrix_products() -> None:
    module = make()
    d, f = 12, 20
    encoder = 2 * (4 * d * d + 2 * d * f)
    decoder = 3 * (6 * d * d + 2 * d * f) + d * V
    assert module.training_flops(10, 7) == 6 * (10 * (encoder + 3 * 2 * d * d) + 7 * decoder)


def test_dropout_into_the_residual_keeps_the_mean_and_follows_the_seed() -> None:
    residual, update = torch.full((400, 501), 2.0), torch.ones(400, 501)
    torch.manual_seed(0)
    one = add_dropped(residual, update, 0.3, training=True)
    torch.manual_seed(0)
    assert torch.equal(add_dropped(residual, update, 0.3, training=True), one)
    assert not torch.equal(add_dropped(residual, update, 0.3, training=True), one)
    assert one.unique().tolist() == pytest.approx([2.0, 2 + 1 / 0.7], rel=1e-4)
    assert float((one == 2).float().mean()) == pytest.approx(0.3, abs=0.005)
    assert torch.equal(add_dropped(residual, update, 0.3, training=False), residual + update)


def test_dropout_passes_the_gradient_of_what_it_kept() -> None:
    hidden = torch.randn(7, 5, requires_grad=True)
    torch.manual_seed(0)
    out = add_dropped(torch.zeros(7, 5), hidden, 0.5, training=True)
    out.sum().backward()
    torch.testing.assert_close(hidden.grad, torch.where(out == 0, 0.0, 2.0))


def test_under_bf16_with_dropout_it_trains_near_float32() -> None:
    module = make(dropout=0.2).train()
    source, mask, target = pairs([(7, 5), (4, 6)])
    gradients = []
    for low in (False, True):
        torch.manual_seed(0)
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            loss = module(source, mask, target).float().pow(2).mean()
        loss.backward()
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in module.parameters()]))
    exact, near = gradients
    assert near.dtype == torch.float32
    assert float((near - exact).norm() / exact.norm()) < 0.05
