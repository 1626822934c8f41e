"""Text that grows token by token beside decoding everything at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers

from lexmill.decoding.text import UNFINISHED, GrowingText, beginning_of, first_of, text_behind
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.kinds import assemble, byte_alphabet, byte_model, numbered, unigram_model, wordpiece_model
from lexmill.tokenizers.tokenizer import EOS, SPECIAL_TOKENS

LETTERS = [*"ab ", "é", "東"]


def _sentencepiece() -> Tokenizer:
    """As Llama's first tokenizers: words begin with a mark, rare characters are spelt by their bytes."""
    tokens = [*SPECIAL_TOKENS, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁a", "a", "b", "▁▁b", "ab▁"]
    model = models.BPE(
        vocab={token: i for i, token in enumerate(tokens)}, merges=[], unk_token="<unk>", byte_fallback=True
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    backend.decoder = decoders.Sequence(strip)
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return Tokenizer(backend, "")


@cache
def tokenizer_of(kind: str) -> Tokenizer:
    if kind == "sentencepiece":
        return _sentencepiece()
    if kind == "byte":
        return Tokenizer(assemble("byte", byte_model(), lowercase=False), "")
    if kind == "bpe":
        alphabet = byte_alphabet()
        half = alphabet[0xE6] + alphabet[0x9D]  # two of the three bytes of a character
        merged = [half, "ab", alphabet[0xC3] + alphabet[0xA9] + "a"]
        merges = [tuple(half), ("a", "b"), (alphabet[0xC3], alphabet[0xA9] + "a")]
        vocabulary = numbered([*alphabet, *merged, alphabet[0xA9] + "a"])
        model = models.BPE(vocab=vocabulary, merges=[(alphabet[0xA9], "a"), *merges])
        return Tokenizer(assemble("bpe", model, lowercase=False), "")
    if kind == "wordpiece":
        model = wordpiece_model([*LETTERS, *(f"##{letter}" for letter in LETTERS)])
        return Tokenizer(assemble("wordpiece", model, lowercase=False), "")
    return Tokenizer(assemble("unigram", unigram_model([(letter, -1.0) for letter in LETTERS]), lowercase=False), "")


KINDS = ["byte", "bpe", "wordpiece", "unigram", "sentencepiece"]
# Bytes of é, 東 and 🙂 and what cannot be read, tokens of each kind.
TELLING = [*(byte + 5 for byte in (0xC3, 0xA9, 0xE6, 0x9D, 0xB1, 0xF0, 0x9F, 0x99, 0x82, 0xFF, 0x20, 0x61, 0x62))]


def tokens_of(kind: str) -> st.SearchStrategy[list[int]]:
    size = tokenizer_of(kind).vocab_size
    telling = [i for i in TELLING if i < size] or [5]
    return st.lists(st.sampled_from([*telling, *range(5, min(size, 20)), *range(max(5, size - 9), size)]), max_size=14)


def grown(kind: str, prompt: Sequence[int], tokens: Sequence[int], stop: Sequence[str] = ()) -> tuple[str, list[str]]:
    text = GrowingText(tokenizer_of(kind), prompt, stop)
    pieces = []
    for token in tokens:
        pieces.append(text.add(token))
        if text.stopped:
            break
    return "".join([*pieces, text.finish()]), pieces


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_pieces_are_what_decoding_at_once_gives(kind: str, data: st.DataObject) -> None:
    tokenizer = tokenizer_of(kind)
    prompt = [EOS, *tokenizer.encode(data.draw(st.text("ab é東", max_size=6)))]
    tokens = data.draw(tokens_of(kind))
    whole, pieces = grown(kind, prompt, tokens)
    assert whole == text_behind(tokenizer, prompt, tokens)
    assert not any(piece.endswith(UNFINISHED) for piece in pieces)


def stopped_by_hand(kind: str, prompt: Sequence[int], tokens: Sequence[int], stop: Sequence[str]) -> str:
    """Everything decoded anew after each token; cut as soon as a stop string is there."""
    tokenizer = tokenizer_of(kind)
    for n in range(1, len(tokens) + 1):
        text = text_behind(tokenizer, prompt, tokens[:n])
        places = [text.index(one) for one in stop if one in text]
        if places:
            return text[: min(places)]
    return text_behind(tokenizer, prompt, tokens)


@pytest.mark.parametrize("kind", ["byte", "bpe", "wordpiece", "unigram"])
@given(data=st.data())
@settings(max_examples=150, deadline=None)
@example(data=None)
def test_a_stop_string_is_seen_wherever_tokens_cut_it(kind: str, data: st.DataObject | None) -> None:
    if data is None:
        prompt, tokens, stop = [EOS], tokenizer_of(kind).encode("abab a東é"), ["a東"]
    else:
        prompt = [EOS, *tokenizer_of(kind).encode(data.draw(st.text("ab ", max_size=3)))]
        tokens = data.draw(tokens_of(kind))
        stop = data.draw(st.lists(st.text("ab é東", min_size=1, max_size=3), min_size=1, max_size=2))
    whole, pieces = grown(kind, prompt, tokens, stop)
    assert whole == stopped_by_hand(kind, prompt, tokens, stop)
    assert whole.startswith("".join(pieces))


def test_bytes_of_a_rare_character_wait_for_each_other_and_for_what_follows() -> None:
    text = GrowingText(tokenizer_of("sentencepiece"), [EOS])
    a, mark = 5 + 256 + 2, 5 + 256
    pieces = [text.add(token) for token in (a, 5 + 0xC3, 5 + 0xA9, mark, a)]
    # Were C3 A9 given away at once, a third byte could still make all three unreadable.
    assert pieces == ["a", "", "", "é ", "a"]


def test_a_text_is_held_back_only_where_it_may_become_a_stop_string() -> None:
    assert [beginning_of(["abc", "bd"], text) for text in ("", "x", "xa", "xab", "xb", "abc", "ab d")] == [
        *(0, 0, 1, 2),
        *(1, 0, 0),
    ]
    assert first_of(["b", "ab"], "xab") == 1
    assert first_of(["z"], "xab") is None
    assert first_of([], "xab") is None
