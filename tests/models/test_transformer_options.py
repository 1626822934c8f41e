"""The Transformer's options beside a loop over heads and positions, one sentence at a time, in float64."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill.base.errors import UserError
from lexmill.base.strict import build
from lexmill.models import pretrained
from lexmill.models.common.attention import split_projection
from lexmill.models.common.rows import ROWS
from lexmill.models.transformer.model import Transformer
from lexmill.models.transformer.shape import FAMILY, Shape

V = 23
SOURCE, TARGET = [5, 9, 7, 20, 11, 6], [3, 8, 8, 14, 5]


def made(**options: Any) -> Transformer:
    torch.manual_seed(0)
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "n_head": 4, "d_model": 16, "d_ffn": 20, "max_positions": 12}
    module = Transformer(Shape(**{**sizes, "dropout": 0.0, **options}), V).double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def turned(x: Tensor, place: int) -> Tensor:
    """A head's query or key at a place: its halves are the parts of complex numbers, turned by falling angles."""
    half = len(x) // 2
    turn = torch.polar(torch.ones(half), place * 10000.0 ** (-torch.arange(half) / half)).to(torch.complex128)
    both = torch.complex(x[:half], x[half:]) * turn
    return torch.cat([both.real, both.imag])


def bias(module: Transformer, h: int, t: int, s: int, both_sides: bool) -> Any:
    from transformers.models.t5.modeling_t5 import T5Attention

    first: Any = module.decoder[0]
    table: Any = module.relative if both_sides else first.attention.relative
    bucket = T5Attention._relative_position_bucket(torch.tensor(s - t), both_sides, num_buckets=32, max_distance=128)
    return table.table.weight[bucket, h]


def attended(module: Transformer, parts: tuple[Tensor, Tensor, Tensor], kind: str, causal: bool = False) -> Tensor:
    """(T, H * K) from (T, H * K) queries, (S, G * K) keys and values."""
    queries, keys, values = parts
    heads, width = module.shape.n_head, 16 // module.shape.n_head
    groups, found = keys.shape[1] // width, torch.zeros_like(queries)
    for h in range(heads):
        own, shared = (slice(i * width, (i + 1) * width) for i in (h, h * groups // heads))
        for t, query in enumerate(queries[:, own]):
            scores = []
            for s, key in enumerate(keys[: t + 1 if causal else len(keys), shared]):
                if kind == "rotary":
                    score = turned(query, t) @ turned(key, s) / width**0.5
                else:
                    score = query @ key / width**0.5
                scores.append(score + bias(module, h, t, s, not causal) if kind == "relative" else score)
            found[t, own] = torch.stack(scores).softmax(0) @ values[: len(scores), shared]
    return found


def self_attention(module: Transformer, layer: Any, x: Tensor, causal: bool) -> Tensor:
    if hasattr(layer, "query_key_value"):
        fused = layer.query_key_value
        matrices, offsets = (split_projection(part, layer.n_head) for part in (fused.weight, fused.bias))
        query, key, value = (x @ matrix.T + offset for matrix, offset in zip(matrices, offsets, strict=True))
    else:
        query, key, value = layer.query(x), layer.key(x), layer.value(x)
    out: Tensor = layer.output(attended(module, (query, key, value), module.shape.positions, causal))
    return out


def ssru(layer: Any, x: Tensor) -> Tensor:
    c, found = torch.zeros(16, dtype=torch.float64), []
    for token in x:
        f = torch.sigmoid(layer.forget.weight @ token + layer.forget.bias)
        c = f * c + (1 - f) * (layer.write.weight @ token)
        found.append(c.clamp_min(0))
    return torch.stack(found)


def around(residual: Any, x: Tensor, function: Any) -> Tensor:
    out: Tensor = x + function(residual.norm(x)) if residual.pre else residual.norm(x + function(x))
    return out


def feed_forward(layer: Any, x: Tensor) -> Tensor:
    out: Tensor = layer.output(layer.expand(x).clamp_min(0))
    return out


def embedded(module: Transformer, tokens: list[int], matrix: Tensor, places: Any) -> Tensor:
    rows = [matrix[token] * math.sqrt(16) for token in tokens]
    if module.shape.positions == "learned":
        rows = [row + places.weight[t] for t, row in enumerate(rows)]
    elif module.shape.positions == "sinusoidal":
        angles = [[t / 10000 ** (i // 2 * 2 / 16) for i in range(16)] for t in range(len(rows))]
        waves = [[math.cos(a) if i % 2 else math.sin(a) for i, a in enumerate(row)] for row in angles]
        rows = [row + torch.tensor(wave).double() for row, wave in zip(rows, waves, strict=True)]
    return torch.stack(rows)


def slow(module: Any) -> Tensor:
    """The logits of TARGET given SOURCE, (T, V)."""
    tied = module.shape.tied
    of_source = (module.embedding if tied == "three_way" else module.source_embedding).weight
    x = embedded(module, SOURCE, of_source, module.source_places)
    for layer in module.encoder:
        x = around(layer.around_attention, x, lambda y, at=layer.attention: self_attention(module, at, y, False))
        x = around(layer.around_feed_forward, x, lambda y, at=layer.feed_forward: feed_forward(at, y))
    memory = module.encoder_norm(x)
    x = embedded(module, TARGET, module.embedding.weight, module.target_places)
    for layer in module.decoder:
        own, cross = layer.attention, layer.cross
        keys, values = cross.key_value(memory).chunk(2, -1)
        mix = ssru if module.shape.decoder_mixer == "ssru" else lambda at, y: self_attention(module, at, y, True)
        x = around(layer.around_attention, x, lambda y, at=own, mix=mix: mix(at, y))

        def of_source(y: Tensor, of: Any = cross, held: tuple[Tensor, Tensor] = (keys, values)) -> Tensor:
            return of.output(attended(module, (of.query(y), *held), "none"))

        x = around(layer.around_cross, x, of_source)
        x = around(layer.around_feed_forward, x, lambda y, at=layer.feed_forward: feed_forward(at, y))
    output = (module.head if tied == "none" else module.embedding).weight
    logits: Tensor = module.decoder_norm(x) @ output.T
    return logits


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_kv_head": 2, "norm": "post"},
        {"positions": "learned", "tied": "decoder"},
        {"positions": "rotary", "n_kv_head": 1, "tied": "none"},
        {"positions": "relative", "norm": "post", "n_kv_head": 2},
        {"decoder_mixer": "ssru", "n_kv_head": 2},
        {"decoder_mixer": "ssru", "positions": "rotary", "norm": "post", "tied": "decoder"},
    ],
)
def test_logits_are_those_of_a_loop_over_heads_and_positions(options: dict[str, Any]) -> None:
    module = made(**options)
    source, target = torch.tensor([SOURCE]), torch.tensor([TARGET])
    found = module(source, torch.ones_like(source, dtype=torch.bool), target)[0]
    torch.testing.assert_close(found, slow(module), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{"positions": "relative", "n_kv_head": 2}, {"decoder_mixer": "ssru"}])
def test_in_bf16_it_learns_nearly_as_in_float32(options: dict[str, Any]) -> None:
    module = made(**options).float()
    source, target = torch.tensor([SOURCE, [*SOURCE[:4], 0, 0]]), torch.tensor([TARGET, TARGET])
    mask, found = source > 0, []
    for low in (False, True):
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            logits = module(source, mask, target)
        logits.float().log_softmax(-1)[..., 7].sum().backward()
        found.append(torch.cat([one.grad.flatten() for one in module.parameters() if one.grad is not None]))
    assert found[0].shape == found[1].shape == (module.count_parameters(),)
    assert float((found[1] - found[0]).norm() / found[0].norm()) < 0.1


@pytest.mark.parametrize("tied", ["three_way", "decoder", "none"])
def test_what_is_tied_is_one_matrix(tied: Any) -> None:
    module = made(tied=tied)
    matrices = [name for name, one in module.named_parameters() if one.shape[0] == V]
    expected = {"three_way": 1, "decoder": 2, "none": 3}[tied]
    assert matrices == ["embedding.weight", "source_embedding.weight", "head.weight"][:expected]
    assert module.count_parameters() == made().count_parameters() + (expected - 1) * V * 16
    assert module.training_flops(9, 7) == made().training_flops(9, 7)
    assert module.output_matrix is (module.head.weight if module.head else module.embedding.weight)


@pytest.mark.parametrize("mixer", ["ssru", "gla", "mamba", "rwkv6", "mlstm"])
@torch.no_grad()
def test_a_decoder_with_a_recurrence_keeps_a_state_of_one_size(mixer: Any) -> None:
    module = made(decoder_mixer=mixer)
    source = torch.tensor([SOURCE])
    memory, mask = module.encode(source, torch.ones_like(source, dtype=torch.bool)), torch.ones(1, 6, dtype=torch.bool)
    cache, sizes = module.new_cache(memory, mask), []
    for token in TARGET:
        module.decode(torch.tensor([[token]]), memory, mask, cache)
        states: list[Any] = list(cache.layers)
        parts = [state.memory if mixer == "ssru" else state.parts.values() for state in states]
        sizes.append([part.numel() for layer in parts for part in layer])
    assert cache.length == len(TARGET)
    assert sizes == [sizes[0]] * len(TARGET)
    assert sum(sizes[0]) > 0


@pytest.mark.parametrize("row", sorted(ROWS))
@torch.no_grad()
def test_any_row_may_mix_the_target(row: Any) -> None:
    """Step by step as all at once; rows are compared with their equations elsewhere."""
    module = made(decoder_mixer=row)
    source, target = torch.tensor([SOURCE]), torch.tensor([TARGET])
    mask = torch.ones_like(source, dtype=torch.bool)
    memory = module.encode(source, mask)
    cache = module.new_cache(memory, mask)
    steps = [module.decode(token, memory, mask, cache) for token in target.split([1, 1, 2, 1], dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), module(source, mask, target), rtol=1e-5, atol=1e-5)


def test_grouped_heads_shrink_the_cache() -> None:
    whole, grouped = made(), made(n_kv_head=1)
    source = torch.tensor([SOURCE])
    mask = torch.ones_like(source, dtype=torch.bool)
    caches = [one.new_cache(one.encode(source, mask), mask) for one in (whole, grouped)]
    sizes = [sum(part.numel() for pair in cache.source for part in pair) for cache in caches]
    assert sizes[0] == 4 * sizes[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": "rotary"}, "no other program has such a network with positions: rotary; only sinusoidal"),
        ({"tied": "none", "n_kv_head": 1}, "such a network with tied: none and n_kv_head: 1; only"),
        ({"decoder_mixer": "ssru"}, "with decoder_mixer: ssru; only"),
    ],
)
def test_an_export_refuses_what_transformers_has_not(options: dict[str, Any], message: str) -> None:
    shape = dataclasses.asdict(Shape(**{**FAMILY.tiny, **options}))
    with pytest.raises(UserError, match=message):
        pretrained.mapping("transformer").write_config(shape, V)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"n_head": 4, "n_kv_head": 3}, ["n_kv_head: 3 does not divide n_head (4)"]),
        (
            {"d_model": 12, "n_head": 4, "positions": "rotary", "decoder_mixer": "retnet"},
            [
                "positions: rotary ones need heads of even width, and d_model / n_head is odd",
                "decoder_mixer: the rotary positions of retnet need an even head width",
            ],
        ),
        ({"decoder_mixer": "linformer"}, ["decoder_mixer: linformer mixes all positions"]),
        ({"decoder_mixer": "rnn"}, ["decoder_mixer: 'rnn' is none of: ssru, linear"]),
    ],
)
def test_sizes_that_do_not_fit_are_errors(options: dict[str, Any], expected: list[str]) -> None:
    errors = list[str]()
    build(Shape, {**FAMILY.tiny, **options}, errors)
    assert len(errors) == len(expected)
    assert all(error.startswith(start) for error, start in zip(errors, expected, strict=True)), errors
