"""How well a tokenizer fits a corpus: round trips, unknowns, tokens for a word, bytes for a token."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lexmill.tokenizers.bulk import pieces
from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS, UNK, Tokenizer

_SHOWN = 80  # characters of an example


@dataclass
class Fit:
    """Counts over texts. Bytes and words are those of the normalised texts, words as white space cuts them."""

    texts: int = 0
    tokens: int = 0
    unknown: int = 0
    bytes: int = 0
    words: int = 0
    round_trip_failures: int = 0
    example: str = ""  # where the first failure differs

    def numbers(self) -> dict[str, float]:
        """The metrics of this part of a corpus; ratios only where they are defined."""
        found: dict[str, float] = {
            "texts": self.texts,
            "tokens": self.tokens,
            "unknown": self.unknown,
            "bytes": self.bytes,
            "words": self.words,
            "round_trip_failures": self.round_trip_failures,
        }
        if self.tokens:
            found["bytes_per_token"] = self.bytes / self.tokens
        if self.words:
            found["tokens_per_word"] = self.tokens / self.words
        return found


def fit(tokenizer: Tokenizer, texts: Iterable[str], batch: int = 256) -> Fit:
    """Encode and decode every text and compare with what the tokenizer saw.

    An unknown token decodes to `<unk>`; the comparison expects it in place of the very characters it stands for, so
    that a text with unknown words is checked to the last character as well. A text fails once, however often.
    """
    found = Fit()
    waiting: list[tuple[int, str]] = []
    failed: set[int] = set()

    def check() -> None:
        encodings = tokenizer.backend.encode_batch([piece for _, piece in waiting], add_special_tokens=False)
        for (number, piece), encoding in zip(waiting, encodings, strict=True):
            ids: list[int] = encoding.ids
            found.tokens += len(ids)
            expected = piece
            if tokenizer.unk_id is not None and UNK in ids:
                spans = [span for i, span in zip(ids, encoding.offsets, strict=True) if i == UNK]
                found.unknown += len(spans)
                expected = _with_unknowns(piece, spans)
            decoded = tokenizer.decode(ids)
            if decoded != expected:
                failed.add(number)
                found.example = found.example or _difference(expected, decoded)
        waiting.clear()

    for number, text in enumerate(texts):
        normal = tokenizer.normalize(text)
        found.texts += 1
        found.bytes += len(normal.encode("utf-8"))
        found.words += len(normal.split())
        for piece in pieces(normal):
            waiting.append((number, piece))
            if len(waiting) >= batch:
                check()
    check()
    found.round_trip_failures = len(failed)
    return found


def _with_unknowns(text: str, spans: list[tuple[int, int]]) -> str:
    kept, last = [], 0
    for start, stop in spans:
        kept += [text[last:start], SPECIAL_TOKENS[UNK]]
        last = stop
    return "".join([*kept, text[last:]])


def _difference(expected: str, decoded: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(expected, decoded, strict=False)) if a != b), 0)
    at = max(0, at - _SHOWN // 4)
    return f"{expected[at : at + _SHOWN]!r} came back as {decoded[at : at + _SHOWN]!r}"
