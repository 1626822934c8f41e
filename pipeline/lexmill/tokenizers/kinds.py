"""The seven kinds of tokenizer: how each splits text and how a vocabulary becomes a working tokenizer.

The patterns keep every character (a space belongs to the word after it), so that the joined tokens are the text: no
kind collapses or invents white space, but `blanks`, for text whose white space only separates tokens.

    bpe        bytes, GPT-2's pattern (Radford et al. 2019); every text can be encoded
    byte       one id a byte, id = byte + 5
    wordpiece  greedy longest match (Schuster and Nakajima 2012), pieces inside a word start with ##
    unigram    most probable segmentation (Kudo 2018)
    word       whole words
    character  one id a Unicode code point
    blanks     what white space separates, of text that is tokenised already, perhaps into subwords
"""

from __future__ import annotations

from typing import Literal

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS, UNK

Kind = Literal["bpe", "wordpiece", "unigram", "byte", "character", "word", "blanks"]

CONTINUES = "##"
# Runs are cut at 64 characters: matching is quadratic in a word's length, and no real word is longer. A punctuation
# mark is its own word, so that no piece of a word can begin with ## or spell a special token.
_LETTERS = r"[\p{L}\p{M}]{1,64}"
_REST = r"| ?\p{N}{1,64}| ?[^\s\p{L}\p{M}\p{N}]|\s{1,64}(?!\S)|\s{1,64}"
SUBWORD_PATTERN = f" ?{_LETTERS}{_REST}"
WORD_PATTERN = f" ?{_LETTERS}(?:['’]{_LETTERS}){{0,4}}{_REST}"


def byte_alphabet() -> list[str]:
    """The printable character of each byte 0 .. 255 in a byte-level vocabulary (GPT-2's table)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(moved)) for byte in range(256)]


def pre_tokenizer(kind: Kind) -> pre_tokenizers.PreTokenizer | None:
    """What splits text before the model; None: the model gets the whole text."""
    if kind == "bpe":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind == "byte":
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if kind == "character":
        return None
    if kind == "blanks":
        return pre_tokenizers.WhitespaceSplit()
    pattern = WORD_PATTERN if kind == "word" else SUBWORD_PATTERN
    return pre_tokenizers.Split(Regex(pattern), behavior="isolated")


def normalizer(kind: Kind, lowercase: bool) -> normalizers.Normalizer | None:
    """What is done to text first; None: nothing."""
    steps: list[normalizers.Normalizer] = []
    if kind == "blanks":
        special = "|".join(name[1:] for name in SPECIAL_TOKENS)
        # A word that looks like a special token would be one: it is taken apart.
        apart = normalizers.Replace(Regex(rf"(?<!\S)<(?=(?:{special})(?!\S))"), "< ")
        steps = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip(), apart]
    steps = [*steps, *([normalizers.Lowercase()] if lowercase else [])]
    return normalizers.Sequence(steps) if len(steps) > 1 else (steps[0] if steps else None)


def _decoder(kind: Kind) -> decoders.Decoder | None:
    if kind == "blanks":
        return None  # tokens are joined by blanks
    if kind in ("bpe", "byte"):
        return decoders.ByteLevel()
    if kind == "wordpiece":
        return decoders.Sequence([decoders.Replace(Regex(f"^{CONTINUES}"), ""), decoders.Fuse()])
    return decoders.Fuse()


def assemble(kind: Kind, model: models.Model, lowercase: bool) -> tokenizers.Tokenizer:
    """Build a complete tokenizer around a model whose first five ids are the special tokens."""
    backend = tokenizers.Tokenizer(model)
    if (first := normalizer(kind, lowercase)) is not None:
        backend.normalizer = first
    if (cutter := pre_tokenizer(kind)) is not None:
        backend.pre_tokenizer = cutter
    if (last := _decoder(kind)) is not None:
        backend.decoder = last
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    backend.encode_special_tokens = True
    return backend


def numbered(tokens: list[str]) -> dict[str, int]:
    """The vocabulary with the special tokens first and `tokens` after them, in their order."""
    return {token: i for i, token in enumerate([*SPECIAL_TOKENS, *tokens])}


def byte_model() -> models.Model:
    return models.BPE(vocab=numbered(byte_alphabet()), merges=[])


def character_model(characters: list[str]) -> models.Model:
    """A BPE model without merges: every character is its own token."""
    return models.BPE(vocab=numbered(characters), merges=[], unk_token=SPECIAL_TOKENS[UNK])


def wordpiece_model(pieces: list[str]) -> models.Model:
    return models.WordPiece(
        vocab=numbered(pieces),
        unk_token=SPECIAL_TOKENS[UNK],
        max_input_chars_per_word=100,
        continuing_subword_prefix=CONTINUES,
    )


def word_model(words: list[str]) -> models.Model:
    return models.WordLevel(vocab=numbered(words), unk_token=SPECIAL_TOKENS[UNK])


def unigram_model(pieces: list[tuple[str, float]]) -> models.Model:
    """Pieces with their log-probabilities (nats)."""
    special = [(token, 0.0) for token in SPECIAL_TOKENS]
    return models.Unigram(vocab=[*special, *pieces], unk_id=UNK, byte_fallback=False)
