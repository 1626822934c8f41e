"""The options of the decoder, each beside its definition, written out, or another library's."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from lexmill.models.common.attention import split_projection
from lexmill.models.common.decoder_attention import DecoderAttention
from lexmill.models.common.hashed_ngrams import HashedNgrams
from lexmill.models.common.position_bias import RelativeBias, alibi_slopes, buckets, sinusoids
from lexmill.models.decoder.model import Decoder
from lexmill.models.decoder.shape import FAMILY, Shape
from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.models.llama.model import Llama
from lexmill.models.llama.shape import Shape as LlamaShape

V = 31
TOKENS = torch.randint(V, (2, 12), generator=torch.Generator().manual_seed(3))


def drawn(module: Any) -> Any:
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return module.eval()


def gradients(module: Any) -> dict[str, Tensor]:
    """Gradients of all weights: the embedding's are those of the inputs too."""
    named = dict(module.named_parameters())
    return dict(zip(named, torch.autograd.grad(module.loss(TOKENS, TOKENS.flip(1)), list(named.values())), strict=True))


def unfused(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """GPT's weights, or their gradients, with its three products apart."""
    apart = {}
    for name, value in weights.items():
        head, fused, tail = name.partition("query_key_value")
        parts = zip(("query", "key", "value"), split_projection(value, 4), strict=True) if fused else [("", value)]
        apart |= {head + part + tail: one for part, one in parts}
    return apart


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
def test_with_llamas_options_it_is_llama_to_the_bit(n_kv_head: int, tied: bool) -> None:
    sizes: dict[str, Any] = {"n_layer": 2, "n_head": 4, "n_kv_head": n_kv_head, "d_model": 16, "d_ffn": 24}
    sizes |= {"context": 12, "tie_embeddings": tied}
    theirs = drawn(Llama(LlamaShape(**sizes), V))
    ours = Decoder(Shape(**sizes), V).eval()
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours(TOKENS), theirs(TOKENS))
    found, wanted = gradients(ours), gradients(theirs)
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_with_gpts_options_it_is_gpt(norm: Any) -> None:
    sizes: dict[str, Any] = {"n_layer": 2, "n_head": 4, "d_model": 16, "context": 12, "norm": norm}
    theirs = drawn(GPT(GPTShape(**sizes), V).double())
    options: dict[str, Any] = {"norm_kind": "layer", "activation": "gelu_tanh", "positions": "learned", "bias": True}
    ours = Decoder(Shape(**sizes, **options), V).double().eval()
    ours.load_state_dict(unfused(theirs.state_dict()))
    torch.testing.assert_close(ours(TOKENS), theirs(TOKENS), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients(ours), unfused(gradients(theirs)), rtol=1e-12, atol=1e-12)


def slow(attention: DecoderAttention, hidden: Tensor) -> Tensor:
    """The attention of one sequence, (T, D), from its definition: a query, a head and a key at a time."""
    heads, width = attention.n_head, attention.d_head
    parts = [layer(hidden).view(len(hidden), -1, width) for layer in (attention.query, attention.key, attention.value)]
    groups = heads // parts[1].shape[1]
    out = torch.zeros(len(hidden), heads, width, dtype=hidden.dtype)
    for t, head in itertools.product(range(len(hidden)), range(heads)):
        scores, seen = [], []
        for s in range(t + 1):
            if attention.window and t - s >= attention.window:
                continue
            query, key = parts[0][t, head], parts[1][s, head // groups]
            if attention.qk_norm:
                query, key = (one / (one.square().mean() + torch.finfo(one.dtype).eps).sqrt() for one in (query, key))
            score = query @ key / width**0.5
            if attention.positions == "alibi":
                score = score - (t - s) * 2.0 ** (-8 * (head + 1) / heads)
            if attention.relative is not None:
                score = score + attention.relative.table.weight[min(t - s, 15), head]  # exact below 16
            scores.append(score)
            seen.append(parts[2][s, head // groups])
        out[t, head] = torch.stack(scores).softmax(0) @ torch.stack(seen)
    mixed: Tensor = attention.output(out.flatten(1))
    return mixed


@pytest.mark.parametrize("qk_norm", [False, True])
@pytest.mark.parametrize("window", [0, 1, 4])
@pytest.mark.parametrize("positions", ["none", "alibi", "relative"])
def test_attention_and_its_gradients_are_those_of_its_definition(positions: Any, window: int, qk_norm: bool) -> None:
    relative = RelativeBias(4) if positions == "relative" else None
    attention = drawn(
        DecoderAttention(16, 4, 2, 6, positions=positions, window=window, qk_norm=qk_norm, relative=relative, bias=True)
    ).double()
    hidden = torch.randn(1, 12, 16, dtype=torch.float64, requires_grad=True)
    shared = attention.shared(TOKENS[:1], 0, None)
    found, wanted = attention(hidden, shared)[0], slow(attention, hidden[0])
    torch.testing.assert_close(found, wanted)
    sources, upstream = [hidden, *attention.parameters()], torch.randn_like(found)
    gradients = [torch.autograd.grad(one, sources, upstream, materialize_grads=True) for one in (found, wanted)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("positions", ["none", "rotary", "alibi", "relative"])
def test_it_learns_in_bf16_with_a_window_and_documents(positions: Any) -> None:
    torch.manual_seed(0)
    model = Decoder(Shape(n_layer=1, n_head=2, d_model=16, context=12, positions=positions, window=5, qk_norm=True), V)
    documents = torch.tensor([[0] * 12, [0] * 5 + [1] * 7])
    with torch.autocast("cpu", torch.bfloat16):
        for given in (None, documents):
            model.loss(TOKENS, TOKENS, given).backward()
            assert all(
                parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters()
            )


@pytest.mark.parametrize("both_sides", [False, True])
def test_buckets_are_those_of_t5(both_sides: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    apart = torch.arange(-400, 400)
    theirs = T5Attention._relative_position_bucket(-apart, both_sides, num_buckets=32, max_distance=128)
    assert torch.equal(buckets(apart, both_sides), theirs)


def test_alibi_slopes_are_those_of_the_paper() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    twelve = [*(2.0**-i for i in range(1, 9)), *(2.0**-i for i in (0.5, 1.5, 2.5, 3.5))]
    torch.testing.assert_close(alibi_slopes(12), torch.tensor(twelve))


def test_sinusoids_by_hand() -> None:
    found = sinusoids(torch.tensor([0, 3]), 4)
    torch.testing.assert_close(found[0], torch.tensor([0.0, 1.0, 0.0, 1.0]))
    by_hand = torch.tensor([3.0, 3.0, 0.03, 0.03])
    wanted = torch.stack([by_hand[0].sin(), by_hand[1].cos(), by_hand[2].sin(), by_hand[3].cos()])
    torch.testing.assert_close(found[1], wanted)


def test_embeddings_grow_by_the_root_of_the_width_beside_sinusoids() -> None:
    """Vaswani et al. 2017, section 3.4."""
    model = Decoder(Shape(**{**FAMILY.tiny, "positions": "sinusoidal"}), V)
    wanted = 4 * model.embedding(TOKENS) + sinusoids(torch.arange(TOKENS.shape[1]), 16)
    torch.testing.assert_close(model.embedded(TOKENS, None, None), wanted)


def test_hashed_ngrams_are_looked_up_one_by_one() -> None:
    hashed = HashedNgrams(3, 7, 4)
    bigrams, trigrams = (cast(nn.Embedding, table) for table in hashed.tables)
    assert not hashed(TOKENS, None, None)[0].any()  # an untrained table changes nothing
    drawn(hashed)
    documents = torch.tensor([[0] * 12, [0] * 5 + [1] * 7])
    found, previous = hashed(TOKENS, None, documents)
    assert torch.equal(previous, TOKENS[:, -2:])
    for row, place in itertools.product(range(2), range(12)):
        start = 5 if row and place >= 5 else 0
        one, two = (int(TOKENS[row, place - back]) if place - back >= start else 0 for back in (1, 2))
        bigram = (int(TOKENS[row, place]) * 36_313 + one * 27_191) % (2**31 - 1)
        trigram = (bigram + two * 15_485_863) % (2**31 - 1)
        wanted = bigrams.weight[bigram % 7] + trigrams.weight[trigram % 7]
        torch.testing.assert_close(found[row, place], wanted)


def test_a_cap_bounds_the_logits() -> None:
    plain = drawn(Decoder(Shape(n_layer=1, n_head=2, d_model=16, context=12), V))
    capped = Decoder(dataclasses.replace(plain.shape, logit_cap=0.5), V).eval()
    capped.load_state_dict(plain.state_dict())
    torch.testing.assert_close(capped(TOKENS), 0.5 * torch.tanh(plain(TOKENS) / 0.5))


def test_norms_stand_where_the_option_says() -> None:
    """With sub-layers that give nothing, a sandwich or pre-norm block is the identity, a post-norm one is its norms."""
    hidden = torch.randn(1, 5, 16)
    for norm in ("pre", "post", "sandwich"):
        shape: dict[str, Any] = {"n_layer": 1, "n_head": 2, "d_model": 16, "context": 12, "norm": norm}
        block: Any = Decoder(Shape(**shape), V).eval().blocks[0]
        with torch.no_grad():
            block.attention.output.weight.zero_()
            block.feed_forward.output.weight.zero_()
        out = block(hidden, block.mixer.shared(TOKENS[:1, :5], 0, None), None)
        normed = nn.functional.rms_norm(nn.functional.rms_norm(hidden, (16,), eps=1e-5), (16,), eps=1e-5)
        torch.testing.assert_close(out, normed if norm == "post" else hidden, rtol=1e-5, atol=1e-5)


def test_wrong_combinations_are_refused() -> None:
    sizes = {"n_layer": 1, "n_head": 4, "d_model": 12, "context": 12}
    assert Shape(**sizes, n_kv_head=3).errors() == ["n_kv_head: 3 does not divide n_head (4)"]
    assert Shape(**sizes).errors() == ["d_head: rotary positions need an even head width"]
    found = Shape(**sizes, positions="alibi", bias=True).errors()
    assert found == ["bias: swiglu has no biases; choose another activation"]
