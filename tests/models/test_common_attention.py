import math

import pytest
import torch
from torch import Tensor

from lexmill.models.common.attention import (
    CrossAttention,
    KeyValueCache,
    SelfAttention,
    attend,
    fuse_projections,
    split_projection,
)


def slow_attend(query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
    """The definition, one query at a time; `allowed` is (B, T, S)."""
    batch, heads, t, width = query.shape
    out = torch.zeros(batch, t, heads * width)
    for b in range(batch):
        for h in range(heads):
            for i in range(t):
                seen = [j for j in range(keys.shape[2]) if allowed[b, i, j]]
                if not seen:
                    continue
                scores = torch.stack([query[b, h, i] @ keys[b, h, j] / math.sqrt(width) for j in seen])
                weights = scores.softmax(0)
                total = sum(w * values[b, h, j] for w, j in zip(weights, seen, strict=True))
                out[b, i, h * width : (h + 1) * width] = total
    return out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (1, 5), (2, 5)])
@pytest.mark.parametrize("masked", [False, True])
def test_attend_is_its_definition(causal: bool, queries: int, keys: int, masked: bool) -> None:
    torch.manual_seed(0)
    query, k, v = torch.randn(2, 3, queries, 4), torch.randn(2, 3, keys, 4), torch.randn(2, 3, keys, 4)
    allowed = torch.ones(2, queries, keys, dtype=torch.bool)
    mask = None
    if masked:
        padding = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 1, 0]], dtype=torch.bool)[:, :keys]
        mask = padding[:, None, None]
        allowed &= padding[:, None]
    if causal:
        allowed &= torch.tensor([[j <= keys - queries + i for j in range(keys)] for i in range(queries)])
    out = attend(query, k, v, mask=mask, causal=causal)
    torch.testing.assert_close(out, slow_attend(query, k, v, allowed))


def test_a_query_that_may_see_nothing_gets_zeros_and_finite_gradients() -> None:
    query = torch.randn(1, 1, 3, 4, requires_grad=True)
    mask = torch.tensor([[True, True, True], [False, False, False], [True, False, False]])
    out = attend(query, query, query, mask=mask, causal=False)
    assert (out[0, 1] == 0).all()
    out.sum().backward()
    assert query.grad is not None
    assert query.grad.isfinite().all()


@pytest.mark.parametrize("capacity", [1, 64])
def test_a_cache_gives_back_all_that_was_put_in(capacity: int) -> None:
    cache = KeyValueCache(capacity)
    keys, values = torch.randn(2, 3, 9, 4), torch.randn(2, 3, 9, 4)
    for start, end in [(0, 2), (2, 3), (3, 9)]:
        seen = cache.append(keys[:, :, start:end], values[:, :, start:end])
        torch.testing.assert_close(seen[0], keys[:, :, :end])
        torch.testing.assert_close(seen[1], values[:, :, :end])
    assert cache.length == 9


def test_a_cache_can_be_reordered_with_repeats() -> None:
    cache = KeyValueCache()
    keys = torch.randn(3, 1, 2, 4)
    cache.append(keys, keys)
    rows = torch.tensor([2, 0, 2, 1])
    cache.reorder(rows)
    new = torch.randn(4, 1, 1, 4)
    torch.testing.assert_close(cache.append(new, new)[0], torch.cat([keys[rows], new], dim=2))


def test_self_attention_is_torchs_multi_head_attention() -> None:
    torch.manual_seed(1)
    ours = SelfAttention(12, 3)
    torch.nn.init.normal_(ours.query_key_value.bias)
    theirs = torch.nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat(split_projection(ours.query_key_value.weight, 3)),
            "in_proj_bias": torch.cat(split_projection(ours.query_key_value.bias, 3)),
            "out_proj.weight": ours.output.weight,
            "out_proj.bias": ours.output.bias,
        }
    )
    hidden = torch.randn(2, 7, 12)
    padding = torch.arange(7) < torch.tensor([[7], [4]])  # true where a token stands
    triangle = torch.ones(7, 7, dtype=torch.bool).triu(1)
    out = ours(hidden, mask=padding[:, None, None], causal=True)
    wanted = theirs(hidden, hidden, hidden, key_padding_mask=~padding, attn_mask=triangle)[0]
    torch.testing.assert_close(out, wanted)


def test_a_fused_projection_is_made_of_its_parts_head_by_head() -> None:
    parts = tuple(torch.arange(8.0).reshape(4, 2) + 100 * i for i in range(3))  # 2 heads of width 2 over 2 inputs
    fused = fuse_projections(*parts, n_head=2)
    assert fused[:, 0].tolist() == [0, 2, 100, 102, 200, 202, 4, 6, 104, 106, 204, 206]
    torch.testing.assert_close(split_projection(fused, 2), parts)
    bias = torch.arange(12.0)
    assert torch.equal(fuse_projections(*split_projection(bias, 2), n_head=2), bias)


def test_heads_may_be_wider_together_than_the_model() -> None:
    attention = SelfAttention(8, 3, d_head=6)
    hidden = torch.randn(2, 4, 8)
    query, keys, values = (
        torch.nn.functional.linear(hidden, w, b).unflatten(-1, (3, 6)).transpose(1, 2)
        for w, b in zip(
            split_projection(attention.query_key_value.weight, 3),
            split_projection(attention.query_key_value.bias, 3),
            strict=True,
        )
    )
    wanted = attention.output(slow_attend(query, keys, values, torch.ones(2, 4, 4, dtype=torch.bool)))
    torch.testing.assert_close(attention(hidden), wanted)


def test_cross_attention_over_a_projected_memory_is_the_same() -> None:
    attention = CrossAttention(8, 2)
    hidden, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    mask = (torch.arange(5) < torch.tensor([[5], [2]]))[:, None, None]
    out = attention(hidden, memory, mask)
    torch.testing.assert_close(out, attention(hidden, None, mask, projected=attention.project(memory)))
    cut = attention(hidden[1:], memory[1:, :2])
    torch.testing.assert_close(out[1:], cut)  # padding adds nothing


def test_a_width_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="d_model 10 is not a multiple of n_head 3"):
        SelfAttention(10, 3)
    with pytest.raises(ValueError, match="d_model 10 is not a multiple of n_head 3"):
        CrossAttention(10, 3)


@pytest.mark.parametrize("time", [5, 300, 520])  # one block of queries, a broken second one, more
def test_causal_attention_in_bf16_has_the_gradients_of_float64(time: int) -> None:
    torch.manual_seed(0)
    parts = [torch.randn(2, 3, time, 8).bfloat16() for _ in range(3)]
    upstream = torch.randn(2, time, 24)
    found = []
    for ours in (True, False):
        q, k, v = ((p if ours else p.double()).requires_grad_() for p in parts)
        out = attend(q, k, v, mask=None, causal=True)
        out.backward(upstream.to(out.dtype))
        found.append([x.detach().double() for x in (out, *(p.grad for p in (q, k, v) if p.grad is not None))])
        for part in parts:
            part.requires_grad_(False)
    assert len(found[0]) == 4
    for near, exact in zip(*found, strict=True):
        assert float((near - exact).norm() / exact.norm()) < 0.01
