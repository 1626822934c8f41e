"""Sampling beside a loop without cache or batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError, UserErrors
from lexmill.decoding.sampling import NEVER_WRITTEN, continue_tokens, draw, generate, stream
from lexmill.decoding.settings import Sampling
from lexmill.models.common.window import window_start
from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.models.llama.model import Llama
from lexmill.models.llama.shape import Shape as LlamaShape
from lexmill.models.lstm.model import LSTM
from lexmill.models.lstm.shape import Shape as LSTMShape
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.tokenizer import BOS, EOS, MASK, PAD

V = 12
GREEDY = Sampling(5, 0.0)


class Reads(nn.Module):
    """A recurrent network: its state is a vector, and carries on without end."""

    unlimited = True
    context = 4  # windows of its training; generation does not cut at them

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inward, self.onward = nn.Embedding(V, 8), nn.Linear(8, 8)
        self.outward = nn.Linear(8, V)
        with torch.no_grad():
            self.onward.weight.mul_(3)  # what was read long ago still matters
            self.outward.weight.mul_(8)

    class Cache:
        def __init__(self, batch: int) -> None:
            self.state, self.length = torch.zeros(batch, 8), 0

        def reorder(self, rows: Tensor) -> None:
            self.state = self.state[rows]

    def new_cache(self, batch: int) -> Reads.Cache:
        return self.Cache(batch)

    def forward(self, tokens: Tensor, cache: Reads.Cache | None = None) -> Tensor:
        cache = cache or self.new_cache(len(tokens))
        out = []
        for column in tokens.T:
            cache.state = torch.tanh(self.onward(cache.state) + self.inward(column))
            out.append(self.outward(cache.state))
        cache.length += tokens.shape[1]
        return torch.stack(out, dim=1)


def tiny(seed: int = 0, context: int = 8, family: str = "gpt") -> Any:
    torch.manual_seed(seed)
    if family == "recurrent":
        return Reads(seed).eval()
    if family == "llama":
        module: nn.Module = Llama(LlamaShape(2, 2, 1, 8, 16, context), V)
    elif family == "lstm":
        module = LSTM(LSTMShape(2, 8, context), V)
    else:
        module = GPT(GPTShape(2, 2, 8, context), V)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(8)
    return module.eval()


@torch.no_grad()
def naive(module: Any, prompt: Sequence[int], sampling: Sampling) -> list[int]:
    """One prompt, one whole forward pass a token, probabilities cut and drawn by hand."""
    seed = int(hashlib.sha256(f"{sampling.seed} 0".encode()).hexdigest()[:15], 16)
    generator = torch.Generator().manual_seed(seed)
    tokens, made = list(prompt), list[int]()
    while len(made) < sampling.max_tokens:
        start = 0 if getattr(module, "unlimited", False) else window_start(len(tokens), module.context)
        logits = module(torch.tensor([tokens[start:]]))[0, -1].double()
        for token in set(tokens) - {EOS}:
            by = 1 / sampling.repetition_penalty if logits[token] > 0 else sampling.repetition_penalty
            logits[token] *= by
        u = torch.rand((), generator=generator, dtype=torch.float64).item()
        token = chosen_by_hand(logits.tolist(), u, sampling)
        if token == EOS:
            break
        tokens.append(token)
        made.append(token)
    return made


def chosen_by_hand(logits: list[float], u: float, sampling: Sampling) -> int:
    options = sorted((t for t in range(V) if t not in NEVER_WRITTEN), key=lambda t: (-logits[t], t))
    if sampling.temperature == 0:
        return options[0]
    options = options[: sampling.top_k] if sampling.top_k else options
    best = logits[options[0]]
    weights = {t: float(torch.tensor((logits[t] - best) / sampling.temperature).double().exp()) for t in options}
    whole, reached, kept = sum(weights.values()), 0.0, list[int]()
    for t in options:
        if reached < sampling.top_p and weights[t] >= sampling.min_p:
            kept.append(t)
        reached += weights[t] / whole
    left = u * sum(weights[t] for t in kept)
    for t in sorted(kept):
        if left < weights[t]:
            return t
        left -= weights[t]
    return max(kept)


SETTINGS = [
    Sampling(6, 0.0),
    Sampling(6, 1.0),
    Sampling(6, 0.7, top_k=3),
    Sampling(6, 1.5, top_p=0.8),
    Sampling(6, 1.0, top_k=5, top_p=0.5),
    Sampling(6, 1.3, min_p=0.1),
    Sampling(6, 1.0, repetition_penalty=1.5),
    Sampling(6, 0.0, repetition_penalty=2.0),
    Sampling(6, 1.4, top_k=6, top_p=0.9, min_p=0.05, repetition_penalty=1.2),
]
FAMILIES = ["gpt", "llama", "lstm", "recurrent"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sampling", SETTINGS, ids=str)
def test_a_batch_of_unequal_prompts_gives_what_each_gives_alone(sampling: Sampling, family: str) -> None:
    prompts = [[3, 5, 6], [3], [3, 7, 8, 9, 10, 11], [3, 6]]
    for seed in range(4):
        module, how = tiny(seed, family=family), replace(sampling, seed=seed)
        together = continue_tokens(module, prompts, how)
        assert together == [continue_tokens(module, [prompt], how)[0] for prompt in prompts]
        assert together == [naive(module, prompt, how) for prompt in prompts]


@pytest.mark.parametrize("family", FAMILIES)
def test_text_longer_than_the_context_goes_on_from_its_end(family: str) -> None:
    for seed in range(6):
        module, how = tiny(seed, context=6, family=family), Sampling(20, 1.0, seed=seed)
        prompts = [[3], [3, *[5, 6, 7] * 5], [3, 8, 9]]  # the second is longer than the context by itself
        together = continue_tokens(module, prompts, how)
        assert together == [naive(module, prompt, how) for prompt in prompts]


def test_a_state_without_bound_is_never_made_again() -> None:
    module, made, widths = Reads(), list[int](), list[int]()
    make = module.new_cache
    module.new_cache = lambda batch: made.append(batch) or make(batch)  # type: ignore[method-assign,func-returns-value]
    module.register_forward_pre_hook(lambda _, args: widths.append(args[0].shape[1]))
    continue_tokens(module, [[3, 5, 6, 7, 8, 9]], replace(GREEDY, max_tokens=12))
    assert made == [1]
    assert widths[0] == 6
    assert set(widths[1:]) == {1}


@pytest.mark.parametrize("context", [2, 3, 8, 64])
def test_the_window_fits_and_is_never_too_small(context: int) -> None:
    for length in range(1, 4 * context):
        start = window_start(length, context)
        assert length - start <= context
        assert start == 0 or length - start > context - max(1, context // 2)


def test_more_tokens_than_room_was_made_for_at_first() -> None:
    module, how = tiny(1), Sampling(600, 1.0, seed=4)
    prompts = [[3], [3, 5, 6]]
    made = continue_tokens(module, prompts, how, eos=-1)  # nothing ends it
    assert [len(row) for row in made] == [600, 600]
    alone = continue_tokens(module, prompts[1:], how, eos=-1)
    assert alone == made[1:]


def test_the_cache_is_used() -> None:
    for family in ("gpt", "llama", "lstm"):
        module, widths = tiny(1, context=64, family=family), list[int]()
        module.embedding.register_forward_pre_hook(lambda _, args, widths=widths: widths.append(args[0].shape[1]))
        continue_tokens(module, [[3, 5, 6, 7]], GREEDY)
        assert widths[0] == 4
        assert set(widths[1:]) <= {1}


def test_the_same_prompt_twice_gets_two_texts_and_a_seed_gives_the_same_again() -> None:
    module, how = tiny(0), Sampling(12, 2.0, seed=1)
    one = continue_tokens(module, [[3]] * 4, how)
    assert one == continue_tokens(module, [[3]] * 4, how)
    assert len({tuple(row) for row in one}) > 1
    assert one != continue_tokens(module, [[3]] * 4, replace(how, seed=2))


def test_a_prompt_is_known_again_however_many_come_between() -> None:
    texts = generate(tiny(0), WORDS, [*["a", "bc"] * 20, "a"], Sampling(8, 99.0))
    assert len(set(texts[::2])) > 15  # more than one batch: no text for "a" is drawn with another's numbers
    assert texts[:3] == generate(tiny(0), WORDS, ["a", "bc", "a"], Sampling(8, 99.0))


def test_a_caller_may_end_a_text() -> None:
    module, ended, found = tiny(0), {1}, list[int]()
    for step in draw(module, [[3], [3, 5]], Sampling(9, 0.0), eos=-1, ended=ended):
        found += [place for place, _ in step]
    assert found.count(1) == 1
    assert found.count(0) == 9


class Words:
    """A tokenizer of one-letter words a to g."""

    eos_id, never_written = EOS, NEVER_WRITTEN

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[5 + "abcdefg".index(letter) for letter in text] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join("abcdefg"[i - 5] for i in ids if i > 4)


WORDS: Any = Words()


def test_generate_gives_the_new_text_alone() -> None:
    module = tiny(3)
    texts = generate(module, WORDS, ["abc", ""], GREEDY)
    rows = [naive(module, row, GREEDY) for row in ([EOS, 5, 6, 7], [EOS])]
    assert texts == [Words().decode(row) for row in rows]
    assert generate(module, WORDS, [], GREEDY) == []
    assert generate(module, WORDS, ["a"], replace(GREEDY, max_tokens=0)) == [""]


def test_all_errors_of_the_settings_at_once() -> None:
    with pytest.raises(UserErrors) as caught:
        generate(tiny(), WORDS, ["a"], Sampling(-1, float("nan"), -2, 0.0, 1.5, 0.0))
    names = ["max_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty"]
    assert [error.split(":")[0] for error in caught.value.errors] == names
    with pytest.raises(UserErrors, match="stop: an empty text"):
        stream(tiny(), WORDS, "a", Sampling(stop=("a", "")))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_broken_weights_are_reported(temperature: float) -> None:
    module = tiny()
    nn.init.constant_(module.norm.weight, float("nan"))
    with pytest.raises(UserError, match="not finite"):
        generate(module, WORDS, ["a"], Sampling(3, temperature))


class Says(nn.Module):
    """Writes given tokens, whatever it reads: the token after `length` tokens is `tokens[length - 1]`."""

    unlimited, context = True, 16

    def __init__(self, tokens: Sequence[int], size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.tokens, self.size, self.read = tokens, size, 0

    def new_cache(self, batch: int) -> Says:
        self.read = 0
        return self

    def reorder(self, rows: Tensor) -> None:
        pass

    def forward(self, tokens: Tensor, cache: object = None) -> Tensor:
        self.read += tokens.shape[1]
        wanted = torch.tensor([[self.tokens[min(self.read, len(self.tokens)) - 1]]]).expand(len(tokens), 1)
        return nn.functional.one_hot(wanted, self.size).float() * 50


def test_generation_ends_before_the_end_token_and_says_it_once() -> None:
    assert continue_tokens(Says([6, 7, EOS, 8], V), [[EOS]], Sampling(9, 0.0)) == [[6, 7]]
    assert continue_tokens(Says([EOS], V), [[EOS]], Sampling(9, 1.0)) == [[]]
    assert continue_tokens(Says([8] * 9, V), [[EOS]], Sampling(4, 1.0)) == [[8] * 4]


def bytes_tokenizer() -> Tokenizer:
    return Tokenizer(assemble("byte", byte_model(), lowercase=False), "")


def says(text: bytes) -> Says:
    """Writes these bytes after a prompt of no text."""
    return Says([*(byte + 5 for byte in text), EOS], 261)


def written(text: bytes, *stop: str) -> tuple[str, list[str], int]:
    """What generate gives, the pieces of a stream, and how many tokens were written."""
    module, tokenizer, sampling = says(text), bytes_tokenizer(), Sampling(99, 0.0, stop=stop)
    (whole,) = generate(module, tokenizer, [""], sampling)
    used = module.read
    pieces = list(stream(module, tokenizer, "", sampling))
    assert used == module.read
    return whole, pieces, used


def test_a_stop_string_ends_the_text_at_once_and_is_cut_off() -> None:
    assert written(b"one two three", " two") == ("one", list("one"), len("one two"))
    assert written(b"abcabd.", "abd")[0] == "abc"  # its beginning came before, in vain
    assert written(b"aaab", "aab", "zz")[0] == "a"
    assert written(b"abc", "c", "bc") == ("a", ["a"], 3)  # both are there with the same token: the earlier one counts
    assert written(b"abc", "xyz") == ("abc", list("abc"), 4)
    assert written(b"ab", "abc") == ("ab", ["ab"], 3)  # held back until the end shows that it is none
    assert written(b"\n\nx", "\n") == ("", [], 1)
    assert written("né".encode(), "é")[0] == "n"


def test_stops_are_each_texts_own() -> None:
    module, how = tiny(5), Sampling(30, 1.5, stop=("a",))
    prompts = ["b", "c", "bcd", ""]
    together = generate(module, WORDS, prompts, replace(how, stop=()))
    assert sum("a" in text for text in together) > 1
    cut = [text.partition("a")[0] for text in together]
    words: Any = type("", (Words,), {"backend": bytes_tokenizer().backend})()
    assert generate(module, words, prompts, how) == cut


def test_a_stream_never_gives_half_a_character() -> None:
    text = "Grüße, 東京 🙂!"
    whole, pieces, _ = written(text.encode())
    assert whole == "".join(pieces) == text
    assert pieces == list(text)
    broken = b"a\xc3(\xff\xfe\xf0\x9f"  # also what is no character at all comes, in the end
    whole, pieces, _ = written(broken)
    assert whole == "".join(pieces) == broken.decode("utf-8", "replace")


def test_special_tokens_are_never_written_and_typed_ones_are_text() -> None:
    tokenizer = bytes_tokenizer()
    for never in (PAD, BOS, MASK):
        assert continue_tokens(Says([never, EOS], 261), [[EOS]], Sampling(1, 0.0)) != [[never]]
    typed = "<s></s><pad>"
    starts = list[list[int]]()
    module = says(b"x")
    module.register_forward_pre_hook(lambda _, args: starts.append(args[0][0].tolist()))
    list(stream(module, tokenizer, typed, Sampling(1, 0.0)))
    assert starts[0] == [EOS, *(byte + 5 for byte in typed.encode())]
