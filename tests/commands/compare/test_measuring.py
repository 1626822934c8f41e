"""What length costs: bytes of caches by hand, and which lengths are possible. Times are only held to be positive."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lexmill.commands.compare import measuring
from lexmill.models import build
from lexmill.models.declaration import families, family
from tests.commands.compare.conftest import preset
from tests.support import causal_networks

CPU = torch.device("cpu")


def network(name: str, **shape: Any) -> Any:
    return build({"family": name, "shape": preset(name, **shape)["shape"], "vocab_size": 50})


def test_the_cache_of_attention_grows_and_that_of_a_recurrence_does_not() -> None:
    """Keys and values of 2 heads of 4 numbers, 4 bytes each; h and c of width 16."""
    llama = network("llama", n_layer=3, n_head=4, n_kv_head=2, d_ffn=32, context=64)
    lstm = network("lstm", n_layer=3)
    for length in (64, 128):
        assert measuring.measure(llama, length, CPU)["cache_bytes"] == 3 * 2 * 2 * 4 * 4 * length
        assert measuring.measure(lstm, length, CPU)["cache_bytes"] == 3 * 2 * 16 * 4


@pytest.mark.parametrize("name", causal_networks.SIZES)
def test_a_state_of_one_size_or_a_window_generates_in_constant_memory(name: str) -> None:
    """Bytes of the cache after 8 tokens, which fill all windows of attention, and after 72: keys have room for 64."""
    module = causal_networks.network(name, 50, context=72).eval()
    if module.unlimited:
        module = causal_networks.network(name, 50, context=8).eval()
    found = []
    with torch.inference_mode():
        cache = module.new_cache(2)
        for length in range(1, 73):
            module.next_logits(torch.full((2, 1), length % 50), cache)
            if length in (8, 72):
                found.append(measuring.cache_bytes(cache))
    assert found[0] > 0
    windowed = all(getattr(mixer, "window", 0) for mixer in module.mixers)
    assert (found[0] == found[1]) == (module.unlimited or windowed)


def test_times_are_there() -> None:
    found = measuring.measure(network("lstm"), 32, CPU)
    assert found["seconds_per_token"] > 0
    assert found["generation_tokens_per_second"] > 0


def test_learned_positions_end_at_the_context() -> None:
    gpt = network("gpt", n_head=2, context=64)
    assert "cache_bytes" in measuring.measure(gpt, 64, CPU)
    assert measuring.measure(gpt, 65, CPU) == {"reason": "its positions are learned for 64 tokens"}


def test_a_tensor_counts_once_whatever_views_it() -> None:
    whole = torch.zeros(10, 4)
    cache = {"a": whole, "b": [whole[:3], (whole.t(),)], "c": torch.zeros(3, dtype=torch.int64)}
    assert measuring.cache_bytes(cache) == 160 + 24


@pytest.mark.parametrize("name", families("causal"))
def test_any_family_can_be_measured(name: str) -> None:
    declared = family(name)
    shape = declared.shape(**{**declared.tiny, "context": 64})
    module = build({"family": name, "shape": vars(shape), "vocab_size": 50})
    assert measuring.measure(module, 32, CPU)["cache_bytes"] > 0
