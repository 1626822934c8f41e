"""Floors of a language model: n-grams over its tokens or over bytes, scored like a network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lexmill.evaluation.floors.kneser_ney import KneserNey
from lexmill.evaluation.language_model import TextEncoder, cuts

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

_BYTES = 256  # ids 0 ... 255 are bytes, 256 is the end token


class ByteEncoder:
    """UTF-8 bytes of what another tokenizer sees, so that both are measured on the same text."""

    unk_id: int | None = None

    def __init__(self, tokenizer: TextEncoder) -> None:
        self.tokenizer = tokenizer

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """Bytes; each starts where its block of the text does, which is all that rows ask for."""
        ids: list[int] = []
        starts: list[int] = []
        start = 0
        for end in cuts(text):
            data = self.normalize(text[start:end]).encode("utf-8")
            ids.extend(data)
            starts.extend([start] * len(data))
            start = end
        return ids, starts

    def normalize(self, text: str) -> str:
        return self.tokenizer.normalize(text)


def byte_ngram(order: int, train: Iterable[str], encoder: ByteEncoder) -> KneserNey:
    """An n-gram over the bytes of the texts of train, as `encoder` gives them."""
    documents = (encoder.normalize(text).encode("utf-8") for text in train)
    return KneserNey(order, _BYTES + 1, _BYTES).fit(
        [np.frombuffer(data, dtype=np.uint8).astype(np.int64) for data in documents]
    )


def token_documents(train: Iterable[str], tokenizer: Tokenizer) -> list[NDArray[np.int64]]:
    """The token ids of the texts of train."""
    from lexmill.tokenizers.bulk import BulkEncoder

    encoder = BulkEncoder(tokenizer)
    documents: list[NDArray[np.int64]] = []
    for texts in batched(train, 64):
        ids, lengths = encoder.encode(texts)
        documents += np.split(ids.astype(np.int64), np.cumsum(lengths)[:-1])
    return documents


def token_ngram(order: int, documents: list[NDArray[np.int64]], tokenizer: Tokenizer) -> KneserNey:
    """An n-gram over a tokenizer's tokens; order 1 is the unigram."""
    return KneserNey(order, tokenizer.vocab_size, tokenizer.eos_id).fit(documents)


def batched(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Lists of `size` items, the last one shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
