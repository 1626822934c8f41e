import dataclasses
import math

import pytest
import torch

from lexmill.models.common.norms import RMSNorm
from lexmill.models.common.rotary import rotate, rotation
from lexmill.models.llama.model import Llama
from lexmill.models.llama.shape import Shape as LlamaShape

SHAPE = LlamaShape(n_layer=3, n_head=4, n_kv_head=2, d_model=32, d_ffn=56, context=24)


@pytest.fixture
def model() -> Llama:
    torch.manual_seed(0)
    return Llama(SHAPE, 61).eval()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(("n_kv_head", "d_head"), [(2, 0), (4, 0), (1, 6)])
@pytest.mark.parametrize("theta", [10000.0, 500.0])
def test_logits_and_gradients_are_those_of_transformers_llama(
    tied: bool, n_kv_head: int, d_head: int, theta: float
) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = dataclasses.replace(
        SHAPE, n_kv_head=n_kv_head, d_head=d_head, rope_theta=theta, tie_embeddings=tied, norm_eps=1e-3
    )
    model = Llama(shape, 61).eval()
    settings = {
        "vocab_size": 61,
        "hidden_size": 32,
        "intermediate_size": 56,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": n_kv_head,
        "head_dim": d_head or 8,
        "max_position_embeddings": 24,
        "rms_norm_eps": 1e-3,
        "tie_word_embeddings": tied,
        "attn_implementation": "eager",
    }
    try:  # the name of the base of the wavelengths changed between releases
        theirs = LlamaForCausalLM(
            LlamaConfig(**settings, rope_parameters={"rope_type": "default", "rope_theta": theta})
        )
    except TypeError:
        theirs = LlamaForCausalLM(LlamaConfig(**settings, rope_theta=theta))
    theirs.eval()
    pairs = [(model.embedding, theirs.model.embed_tokens), (model.norm, theirs.model.norm)]
    if model.head is not None:
        pairs.append((model.head, theirs.lm_head))
    for block, layer in zip(model.blocks, theirs.model.layers, strict=True):
        pairs += [
            (block.attention_norm, layer.input_layernorm),
            (block.feed_forward_norm, layer.post_attention_layernorm),
            (block.attention.query, layer.self_attn.q_proj),
            (block.attention.key, layer.self_attn.k_proj),
            (block.attention.value, layer.self_attn.v_proj),
            (block.attention.output, layer.self_attn.o_proj),
            (block.feed_forward.gate, layer.mlp.gate_proj),
            (block.feed_forward.expand, layer.mlp.up_proj),
            (block.feed_forward.output, layer.mlp.down_proj),
        ]
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.2)
        for mine, other in pairs:
            mine.weight.copy_(other.weight)
    assert model.count_parameters() == sum(p.numel() for p in theirs.parameters())
    tokens, targets = torch.randint(61, (2, 3, 24))
    logits = theirs(tokens).logits
    torch.testing.assert_close(model(tokens), logits, rtol=1e-4, atol=1e-4)
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").backward()
    model.loss(tokens, targets).backward()
    assert len(pairs) == len(list(model.parameters()))
    for mine, other in pairs:
        torch.testing.assert_close(mine.weight.grad, other.weight.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cuts", [[1] * 12, [5, 1, 1, 3, 2], [12]])
@pytest.mark.parametrize("n_kv_head", [1, 2, 4])
def test_cached_decoding_is_full_decoding(cuts: list[int], n_kv_head: int) -> None:
    model = Llama(dataclasses.replace(SHAPE, n_kv_head=n_kv_head), 61).eval()
    tokens = torch.randint(61, (2, 12))
    cache, start, pieces = model.new_cache(2), 0, []
    for width in cuts:
        pieces.append(model(tokens[:, start : start + width], cache))
        start += width
    assert cache.length == 12
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), rtol=1e-4, atol=1e-6)


def test_a_packed_window_gives_what_its_documents_give_alone(model: Llama) -> None:
    tokens = torch.randint(61, (2, 20))
    documents = torch.tensor([[3] * 7 + [4] * 1 + [5] * 12, [0] * 20])
    packed = model(tokens, documents=documents)
    for row, start, end in [(0, 0, 7), (0, 7, 8), (0, 8, 20), (1, 0, 20)]:
        alone = model(tokens[row : row + 1, start:end])
        torch.testing.assert_close(packed[row : row + 1, start:end], alone, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(packed[0], model(tokens)[0])
    with pytest.raises(ValueError, match="cannot be read with a cache"):
        model(tokens, model.new_cache(2), documents)


def test_text_longer_than_the_context_is_read(model: Llama) -> None:
    assert model.context == 24
    assert model(torch.zeros(1, 40, dtype=torch.int64)).isfinite().all()
    with pytest.raises(ValueError, match="at least one sequence"):
        model.new_cache(0)


def test_the_start_is_near_a_uniform_guess(model: Llama) -> None:
    tokens, targets = torch.randint(61, (2, 4, 24))
    nats = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
    assert abs(nats.item() - math.log(61)) < 0.1


def test_parameters_and_flops_are_counted() -> None:
    shape = LlamaShape(n_layer=2, n_head=4, n_kv_head=2, d_model=16, d_ffn=24, context=8, d_head=6)
    block = 16 * 24 + 2 * 16 * 12 + 24 * 16 + 3 * 16 * 24  # queries, keys and values, output, feed-forward
    attention = 12 * 2 * 8 * 24
    tied = Llama(shape, 50)
    assert tied.count_parameters() == 2 * (block + 32) + 16 + 50 * 16
    assert tied.flops_per_token() == 6 * (2 * block + 50 * 16) + attention
    untied = Llama(dataclasses.replace(shape, tie_embeddings=False), 50)
    assert untied.count_parameters() == tied.count_parameters() + 50 * 16
    assert untied.flops_per_token() == tied.flops_per_token()


def test_smollm2_has_its_published_number_of_parameters() -> None:
    """SmolLM2-135M: 134,515,008."""
    shape = LlamaShape(n_layer=30, n_head=9, n_kv_head=3, d_model=576, d_ffn=1536, context=2048, rope_theta=100000.0)
    with torch.device("meta"):
        assert Llama(shape, 49152).count_parameters() == 134_515_008


def test_the_norm_and_its_gradient_are_torchs() -> None:
    hidden = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
    norm = RMSNorm(8, eps=0.1).double()
    torch.nn.init.normal_(norm.weight)
    upstream = torch.randn(3, 5, 8, dtype=torch.float64)
    mine = torch.autograd.grad(norm(hidden), (hidden, norm.weight), upstream)
    theirs = torch.nn.functional.rms_norm(hidden, (8,), norm.weight, 0.1)
    wanted = torch.autograd.grad(theirs, (hidden, norm.weight), upstream)
    torch.testing.assert_close(norm(hidden), theirs)
    torch.testing.assert_close(mine, wanted)
    with torch.no_grad():
        torch.testing.assert_close(norm(hidden), theirs)


def test_a_rotated_product_depends_on_the_distance_alone() -> None:
    query, key = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def product(query_place: int, key_place: int) -> torch.Tensor:
        turns = [rotation(torch.tensor([place]), 16, 100.0) for place in (query_place, key_place)]
        return (rotate(query, turns[0]) * rotate(key, turns[1])).sum()

    torch.testing.assert_close(product(9, 4), product(55, 50), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(product(7, 7), (query * key).sum())
    assert abs(product(9, 4) - product(9, 6)) > 1e-3


def test_bfloat16_autocast_trains(model: Llama) -> None:
    tokens = torch.randint(61, (2, 24))
    exact = model.loss(tokens, tokens)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.loss(tokens, tokens)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss, exact, rtol=1e-2, atol=0)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
