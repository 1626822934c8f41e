"""How well a tokenizer fits a corpus: round trips, unknown tokens, tokens per word, bytes per token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from lexmill.base.cutting import beginning
from lexmill.tokenizers.bulk import CACHED, chunks
from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS, UNK, Tokenizer

_SHOWN = 80  # characters of an example
_BATCH = 1 << 20  # characters of a batch


@dataclass
class Fit:
    """Counts over texts; bytes and words (separated by white space) of the normalised texts."""

    texts: int = 0
    tokens: int = 0
    unknown: int = 0
    bytes: int = 0
    words: int = 0
    round_trip_failures: int = 0
    example: str = ""  # where the first failure differs

    def numbers(self) -> dict[str, float]:
        """The metrics of this part of a corpus; ratios only where they are defined."""
        found: dict[str, float] = {name: value for name, value in vars(self).items() if name != "example"}
        if self.tokens:
            found["bytes_per_token"] = self.bytes / self.tokens
        if self.words:
            found["tokens_per_word"] = self.tokens / self.words
        return found


def fit(tokenizer: Tokenizer, texts: Iterable[str]) -> Fit:
    """Encode and decode every text and compare with the normalised text.

    An unknown token decodes to `<unk>`; the comparison expects it in place of its own characters, so that a text with
    unknown words is checked to the last character as well. A text counts as at most one failure. Each distinct chunk of
    `bulk` is encoded and decoded only once.
    """
    found, known = Fit(), dict[str, tuple[int, int, str]]()
    for batch in _batches(texts):
        rows = []
        for text in batch:
            normal = tokenizer.normalize(text)
            found.texts += 1
            found.bytes += len(normal.encode("utf-8"))
            found.words += len(normal.split())
            rows.append(chunks(normal))
        new = [chunk for chunk in dict.fromkeys(chain.from_iterable(rows)) if chunk not in known]
        known.update(zip(new, _check(tokenizer, new), strict=True))
        for row in rows:
            failures = ""
            for chunk in row:
                tokens, unknown, failure = known[chunk]
                found.tokens += tokens
                found.unknown += unknown
                failures = failures or failure
            found.round_trip_failures += bool(failures)
            found.example = found.example or failures
        if len(known) > CACHED:
            known.clear()
    return found


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if characters >= _BATCH:
            yield batch
            batch, characters = [], 0
    yield batch


def _check(tokenizer: Tokenizer, texts: list[str]) -> Iterator[tuple[int, int, str]]:
    """For each text the number of tokens and of unknown tokens, and the failure of its round trip ("" if none)."""
    encodings = tokenizer.backend.encode_batch(texts, add_special_tokens=False)
    for text, encoding in zip(texts, encodings, strict=True):
        ids: list[int] = encoding.ids
        unknown, expected = 0, text
        if tokenizer.unk_id is not None and UNK in ids:
            spans = [span for i, span in zip(ids, encoding.offsets, strict=True) if i == UNK]
            unknown, expected = len(spans), _with_unknowns(text, spans)
        decoded = tokenizer.decode(ids)
        failure = ""
        if decoded != expected:
            failure = f"{beginning(expected, _SHOWN)!r} came back as {beginning(decoded, _SHOWN)!r}"
        yield len(ids), unknown, failure


def _with_unknowns(text: str, spans: list[tuple[int, int]]) -> str:
    kept, last = [], 0
    for start, stop in spans:
        kept += [text[last:start], SPECIAL_TOKENS[UNK]]
        last = stop
    return "".join([*kept, text[last:]])
