"""Sampling beside a loop without cache or batch."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from lexmill.decoding.sampling import NEVER_WRITTEN, continue_tokens, generate, next_tokens, window_start
from lexmill.errors import UserError, UserErrors
from lexmill.models.gpt import GPT
from lexmill.params import GPTShape
from lexmill.tokenizers.tokenizer import EOS

V = 12


def tiny(seed: int = 0, context: int = 8) -> GPT:
    torch.manual_seed(seed)
    module = GPT(GPTShape(2, 2, 8, context), V)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(8)
    return module.eval()


@torch.no_grad()
def naive(
    module: GPT, prompt: list[int], most: int, *, temperature: float, top_k: int, top_p: float, seed: int
) -> list[int]:
    """One prompt, one whole forward pass a token, probabilities cut and drawn by hand."""
    generator = torch.Generator().manual_seed(int(hashlib.sha256(f"{seed} 0".encode()).hexdigest()[:15], 16))
    tokens, made = list(prompt), []
    while len(made) < most:
        start = window_start(len(tokens), module.context)
        logits = module(torch.tensor([tokens[start:]]))[0, -1].double()
        u = torch.rand((), generator=generator, dtype=torch.float64).item()
        options = sorted((t for t in range(V) if t not in NEVER_WRITTEN), key=lambda t: (-float(logits[t]), t))
        if temperature == 0:
            token = options[0]
        else:
            options = options[:top_k] if top_k else options
            weights = [float(torch.exp((logits[t] - logits[options[0]]) / temperature)) for t in options]
            shares = [weight / sum(weights) for weight in weights]
            kept, reached = 0, 0.0
            while kept < len(shares) and reached < top_p:
                reached += shares[kept]
                kept += 1
            left = u * sum(shares[:kept])
            place = 0
            while place < kept - 1 and left >= shares[place]:
                left -= shares[place]
                place += 1
            token = options[place]
        if token == EOS:
            break
        tokens.append(token)
        made.append(token)
    return made


SETTINGS = [(0.0, 0, 1.0), (1.0, 0, 1.0), (0.7, 3, 1.0), (1.5, 0, 0.8), (1.0, 5, 0.5)]


@pytest.mark.parametrize(("temperature", "top_k", "top_p"), SETTINGS)
def test_a_batch_of_unequal_prompts_gives_what_each_gives_alone(temperature: float, top_k: int, top_p: float) -> None:
    prompts = [[3, 5, 6], [3], [3, 7, 8, 9, 10, 11], [3, 6]]
    for seed in range(4):
        module = tiny(seed)
        how = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        together = continue_tokens(module, prompts, 6, **how)
        assert together == [continue_tokens(module, [prompt], 6, **how)[0] for prompt in prompts]
        assert together == [naive(module, prompt, 6, **how) for prompt in prompts]


def test_text_longer_than_the_context_goes_on_from_its_end() -> None:
    for seed in range(6):
        module = tiny(seed, context=6)
        how = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "seed": seed}
        prompts = [[3], [3, *[5, 6, 7] * 5], [3, 8, 9]]  # the second is longer than the context by itself
        together = continue_tokens(module, prompts, 20, **how)
        assert together == [naive(module, prompt, 20, **how) for prompt in prompts]


@pytest.mark.parametrize("context", [2, 3, 8, 64])
def test_the_window_fits_and_is_never_too_small(context: int) -> None:
    for length in range(1, 4 * context):
        start = window_start(length, context)
        assert length - start <= context
        assert start == 0 or length - start > context - max(1, context // 2)


def test_the_cache_is_used() -> None:
    module, widths = tiny(1, context=64), []
    module.register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1]))
    continue_tokens(module, [[3, 5, 6, 7]], 5, temperature=0.0, top_k=0, top_p=1.0, seed=0)
    assert widths[0] == 4
    assert set(widths[1:]) <= {1}


def test_the_same_prompt_twice_gets_two_texts_and_a_seed_gives_the_same_again() -> None:
    module = tiny(0)
    how = {"temperature": 2.0, "top_k": 0, "top_p": 1.0}
    one = continue_tokens(module, [[3]] * 4, 12, seed=1, **how)
    assert one == continue_tokens(module, [[3]] * 4, 12, seed=1, **how)
    assert len({tuple(row) for row in one}) > 1
    assert one != continue_tokens(module, [[3]] * 4, 12, seed=2, **how)


def test_frequencies_are_the_probabilities() -> None:
    logits = torch.tensor([1.0, 0.0, 2.0, -1.0]).expand(20_000, 4)
    torch.manual_seed(0)
    counts = Counter(next_tokens(logits, torch.rand(20_000).double(), 0.5, 0, 1.0).tolist())
    expected = (logits[0] / 0.5).softmax(0)
    for token, probability in enumerate(expected.tolist()):
        assert counts[token] / 20_000 == pytest.approx(probability, abs=0.012)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 6), st.floats(0.01, 1.0), st.floats(0, 0.999999))
def test_what_was_cut_off_is_never_drawn(seed: int, top_k: int, top_p: float, draw: float) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(1, 6) * 3
    token = int(next_tokens(logits, torch.tensor([draw], dtype=torch.float64), 1.0, top_k, top_p))
    order = logits[0].double().sort(descending=True, stable=True)
    rank = order.indices.tolist().index(token)
    assert not top_k or rank < top_k
    kept = order.values[:top_k].softmax(0) if top_k else order.values.softmax(0)
    assert float(kept[:rank].sum()) < top_p + 1e-9  # the more probable ones did not reach it yet


class Words:
    """A tokenizer of one-letter words a to g."""

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[5 + "abcdefg".index(letter) for letter in text] for text in texts]

    def decode(self, ids: list[int]) -> str:
        return "".join("abcdefg"[i - 5] for i in ids if i > 4)


def test_generate_gives_the_new_text_alone() -> None:
    module = tiny(3)
    texts = generate(module, Words(), ["abc", ""], 5, temperature=0.0)
    rows = [naive(module, row, 5, temperature=0.0, top_k=0, top_p=1.0, seed=0) for row in ([EOS, 5, 6, 7], [EOS])]
    assert texts == [Words().decode(row) for row in rows]
    assert generate(module, Words(), [], 5) == []
    assert generate(module, Words(), ["a"], 0) == [""]


def test_all_faults_of_the_numbers_at_once() -> None:
    with pytest.raises(UserErrors) as caught:
        generate(tiny(), Words(), ["a"], -1, temperature=float("nan"), top_k=-2, top_p=0.0)
    assert [fault.split(":")[0] for fault in caught.value.faults] == ["max_tokens", "temperature", "top_k", "top_p"]


def test_broken_weights_are_told() -> None:
    module = tiny()
    nn.init.constant_(module.norm.weight, float("nan"))
    with pytest.raises(UserError, match="not finite"):
        generate(module, Words(), ["a"], 3)


def test_generation_ends_before_the_end_token() -> None:
    class Ends(nn.Module):
        context = 16

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def new_cache(self, batch: int) -> Ends:
            return self

        def reorder(self, rows: Tensor) -> None:
            pass

        def forward(self, tokens: Tensor, cache: object = None) -> Tensor:
            wanted = torch.where(tokens == 7, EOS, (tokens + 1).clamp(5, 7))  # a, b, c, end
            return nn.functional.one_hot(wanted, V).float() * 50

    assert generate(Ends(), Words(), ["", "c", "a"], 9) == ["abc", "", "bc"]
