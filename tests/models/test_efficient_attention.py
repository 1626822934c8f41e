"""Attention that does not meet all keys, beside its definition: windows in blocks, hashing, random features."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill.models.common.attention import attend
from lexmill.models.common.documents import document_mask
from lexmill.models.common.local_attention import WindowCache, attend_window, in_blocks
from lexmill.models.common.lsh_attention import attend_cached, attend_sorted, buckets, directions, keys_of
from lexmill.models.common.position_bias import distances
from lexmill.models.common.random_features import log_features, orthogonal_features
from lexmill.models.common.rotary import rotate
from lexmill.models.common.rows import ROWS
from lexmill.models.linear_attention.shape import FAMILY, Shape

SEED = torch.Generator().manual_seed(7)


def drawn(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64, generator=SEED)


def of_both(found: Tensor, wanted: Tensor, sources: list[Tensor]) -> list[tuple[Tensor, ...]]:
    """The gradients of two equal outputs; one that no output depends on is zero."""
    upstream = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found)
    options = {"retain_graph": True, "materialize_grads": True}
    return [torch.autograd.grad(one, sources, upstream, **options) for one in (found, wanted)]


@pytest.mark.parametrize("documents", [False, True])
@pytest.mark.parametrize("t", [1, 5, 64, 101])
@pytest.mark.parametrize("window", [1, 4, 16, 200])
def test_blocks_give_what_a_mask_gives(window: int, t: int, documents: bool) -> None:
    query, keys, values = sources = [drawn(2, 3, t, 4).requires_grad_() for _ in range(3)]
    apart = distances(t, t, torch.device("cpu"))
    mask = ((apart >= 0) & (apart < window))[None, None]
    groups = (torch.arange(t) * torch.tensor([[3], [5]]) // 37) if documents else None
    if groups is not None:
        mask = mask & document_mask(groups)
    found = attend_window(query, keys, values, window, groups=groups)
    wanted = attend(query, keys, values, mask=mask, causal=False)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*of_both(found, wanted, sources))


def test_blocks_are_taken_where_they_need_fewer_scores() -> None:
    assert in_blocks(1024, 64)  # 16 * 64 * 128 scores in place of 1024 * 1024
    assert in_blocks(12, 4)  # 3 * 4 * 8 = 96 in place of 144
    assert not in_blocks(12, 5)  # 3 * 5 * 10 = 150
    assert not in_blocks(12, 0)
    assert not in_blocks(1, 1)


def test_a_windows_cache_does_not_grow() -> None:
    cache = WindowCache(4)
    keys = drawn(2, 1, 9, 3)
    for start, end in ((0, 1), (1, 6), (6, 7), (7, 9)):
        seen, _ = cache.append(keys[:, :, start:end], keys[:, :, start:end])
        assert torch.equal(seen, keys[:, :, max(0, start - 3) : end])
    assert cache.length == 9
    assert cache._keys is not None
    assert cache._keys.shape[2] == 3
    assert cache._keys.untyped_storage().nbytes() == 2 * 3 * 3 * 8  # a copy, not a view of a longer text


def by_definition(query: Tensor, key: Tensor, value: Tensor, numbers: Tensor, window: int) -> Tensor:
    """One query after the other: (T, K) each, numbers (R, T)."""
    out = torch.zeros_like(value)
    for t in range(len(query)):
        sums, weights = [], []
        for number in numbers:
            earlier = [s for s in range(t) if number[s] == number[t]]
            seen = earlier[max(0, len(earlier) - (window - 1)) :] or [t]
            scores = torch.stack([query[t] @ key[s] for s in seen])
            weight = scores.exp().sum()
            alone = seen == [t]
            sums.append((scores.softmax(0)[:, None] * value[seen]).sum(0))
            weights.append(torch.zeros_like(weight) if alone else weight)
        total = torch.stack(weights).sum()
        if total == 0:
            out[t] = value[t]
        else:
            out[t] = sum(w * one for w, one in zip(weights, sums, strict=True)) / total
    return out


@pytest.mark.parametrize("window", [1, 2, 5, 40])
@pytest.mark.parametrize("t", [1, 7, 33])
def test_hashed_attention_is_its_definition(t: int, window: int) -> None:
    vectors, value = sources = [drawn(2, 2, t, 4).requires_grad_() for _ in range(2)]
    numbers = buckets(vectors, directions(4, 4, 3, SEED))
    assert numbers.shape == (2, 2, 3, t)
    key = keys_of(vectors)
    whole, wanted = attend_sorted(vectors, key, value, numbers, window), torch.zeros_like(value)
    for b, h in itertools.product(range(2), range(2)):
        wanted[b, h] = by_definition(vectors[b, h], key[b, h], value[b, h], numbers[b, h], window)
    torch.testing.assert_close(whole, wanted)
    torch.testing.assert_close(*of_both(whole, wanted, sources))
    for start in {0, t // 2, t - 1}:
        found = attend_cached(vectors[:, :, start:], key, value, numbers, window)
        torch.testing.assert_close(found, whole[:, :, start:])


@pytest.mark.parametrize("name", ["local", "lsh"])
def test_a_layer_and_its_gradients_are_those_of_its_definition(name: str) -> None:
    torch.manual_seed(0)
    mixer = row(name, window=4)
    hidden = drawn(1, 13, 16).requires_grad_()
    shared = mixer.shared(torch.zeros(1, 13, dtype=torch.int64), 0, None)

    def heads(linear: Any, *, turned: bool) -> Tensor:
        """The projected tokens of each head, (H, T, K)."""
        found = linear(hidden).unflatten(-1, (2, 8))
        return (rotate(found, shared.rotation) if turned else found)[0].transpose(0, 1)

    value = heads(mixer.value, turned=False)
    if name == "lsh":
        numbers = buckets(heads(mixer.vectors, turned=False)[None], mixer.directions)[0]
        query = heads(mixer.vectors, turned=True)
        given = zip(query, keys_of(query), value, numbers, strict=True)
        out = [by_definition(*one, window=4) for one in given]
    else:
        given = zip(heads(mixer.query, turned=True), heads(mixer.key, turned=True), value, strict=True)
        out = [
            torch.stack([near(q[t], k[max(0, t - 3) : t + 1], v[max(0, t - 3) : t + 1]) for t in range(13)])
            for q, k, v in given
        ]
    wanted = mixer.output(torch.cat(out, -1))[None]
    found = mixer(hidden, shared)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*of_both(found, wanted, [hidden, *mixer.parameters()]))


def near(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query, (K,), and the keys and values it sees, (S, K) each."""
    return (keys @ query / len(query) ** 0.5).softmax(0) @ values


def test_a_bucket_is_the_largest_product_or_its_opposite() -> None:
    along = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])  # one round, two directions: the axes
    vectors = torch.tensor([[3.0, 1.0], [-3.0, 1.0], [1.0, 2.0], [0.5, -2.0]])
    assert buckets(vectors[None, None], along).flatten().tolist() == [0, 2, 1, 3]


def test_with_one_bucket_and_no_bound_it_is_attention_to_all_earlier_positions() -> None:
    vectors, value = drawn(1, 2, 9, 4), drawn(1, 2, 9, 4)
    found = attend_sorted(vectors, keys_of(vectors), value, torch.zeros(1, 2, 1, 9, dtype=torch.int64), 9)
    mask = distances(9, 9, torch.device("cpu")) > 0
    # `attend` divides by sqrt(K) as `keys_of` does.
    wanted = attend(vectors, keys_of(vectors) * 2, value, mask=mask, causal=False).unflatten(-1, (2, 4)).transpose(1, 2)
    torch.testing.assert_close(found[:, :, 1:], wanted[:, :, 1:])
    assert torch.equal(found[:, :, 0], value[:, :, 0])  # alone, the first sees itself


def test_random_features_are_orthogonal_and_give_the_kernel_of_softmax_on_average() -> None:
    rows = orthogonal_features(8, 8, SEED)
    products = rows @ rows.T
    torch.testing.assert_close(products, products.diag().diag(), rtol=0, atol=1e-4)
    query, key = (drawn(1, 1, 1, 8) / 2 for _ in range(2))
    mixer = performer(20_000)
    found = (log_features(query, mixer.features).exp() * log_features(key, mixer.features).exp()).mean()
    wanted = (query * key).sum() / math.sqrt(8)
    assert float(found) == pytest.approx(float(wanted.exp()), rel=0.05)


def row(name: str, **changes: int) -> Any:
    return ROWS[name](Shape(**{**FAMILY.tiny, "mixers": (name,), **changes})).double().eval()


def performer(n_feature: int) -> Any:
    return row("performer", n_head=1, d_model=8, n_feature=n_feature)


def test_performer_comes_near_softmax_attention() -> None:
    hidden = drawn(1, 40, 8)
    errors = []
    for n_feature in (64, 16_384):
        torch.manual_seed(0)
        mixer = performer(n_feature)
        torch.nn.init.normal_(mixer.projections.weight, std=0.15, generator=SEED.clone_state())
        query, key, value = mixer.projections(hidden)[:, None].chunk(3, -1)
        wanted = mixer.output(attend(query, key, value, mask=None, causal=True))
        with torch.no_grad():
            found = mixer(hidden, mixer.shared(torch.zeros(1, 40, dtype=torch.int64), 0, None))
            errors.append(float((found - wanted).norm() / wanted.norm()))
    assert errors[1] < 0.03
    assert errors[1] < errors[0] / 4


def test_large_queries_and_keys_do_not_overflow() -> None:
    mixer = performer(16).float()
    hidden = torch.randn(1, 20, 8, generator=SEED) * 30
    out = mixer(hidden, mixer.shared(torch.zeros(1, 20, dtype=torch.int64), 0, None))
    assert out.isfinite().all()
