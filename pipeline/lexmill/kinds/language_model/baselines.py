"""What a language model must beat: n-grams over its tokens or over bytes, scored like a network.

unigram, token_trigram (Kneser-Ney), add_k_trigram, backoff_trigram, byte_trigram (Kneser-Ney), named by order.
Cost: seconds a megabyte at most; memory about 40 bytes x order x tokens of train.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lexmill import params, tokenizers
from lexmill.base import layout
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.blocks import cuts
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.subject import Baseline
from lexmill.kinds.language_model.metrics import (
    OffsetEncoder,
    TextEncoder,
    batched,
    score_documents,
    summarise,
)
from lexmill.kinds.language_model.ngrams.additive import AddK
from lexmill.kinds.language_model.ngrams.kneser_ney import KneserNey
from lexmill.kinds.language_model.ngrams.ngram import NGram
from lexmill.kinds.language_model.ngrams.stupid_backoff import StupidBackoff

if TYPE_CHECKING:
    from lexmill.tokenizers import Tokenizer

_BYTES = 256  # ids 0 ... 255 are bytes, 256 is the end token
SAMPLE_TOKENS = 100


def baselines(chosen: params.Baseline, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield the n-grams one at a time: each holds its tables in memory."""
    assert chosen.tokenizer is not None
    tokenizer, settings = tokenizers.load(layout.tokenizer(chosen.tokenizer)), chosen.settings
    order, byte_order = settings["order"], settings["byte_order"]
    tokens, text_bytes = OffsetEncoder(tokenizer), ByteEncoder(OffsetEncoder(tokenizer))

    def train() -> Iterator[str]:
        return (record["text"] for record in corpus.records("train"))

    def fitted() -> Iterator[tuple[str, TextEncoder, NGram]]:
        documents = token_documents(train(), tokenizer)
        for name, model in token_ngrams(order, settings["add_k"], tokenizer).items():
            yield name, tokens, model.fit(documents)
        del documents
        yield f"byte_{order_name(byte_order)}", text_bytes, byte_ngram(byte_order, train(), text_bytes)

    for name, encoder, model in fitted():
        rows = [row for document in score_documents(corpus.records("test"), encoder, model) for row in document.rows]
        samples = None
        if name in ("unigram", f"token_{order_name(order)}"):  # the latter last, if there is one
            samples = write_texts(model, tokenizer, settings["samples"], SAMPLE_TOKENS, how.seed)
        yield Baseline(name, rows, summarise(rows, corpus.unit, how), samples)


class ByteEncoder:
    """Encodes what another tokenizer sees as UTF-8 bytes, so that both are measured on the same text."""

    unk_id: int | None = None

    def __init__(self, tokenizer: TextEncoder) -> None:
        self.tokenizer = tokenizer

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """Return the bytes; each starts where its block of the text does, which is all that rows need."""
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


def byte_ngram(order: int, train: Iterable[str], encoder: ByteEncoder) -> NGram:
    """Return an n-gram over the bytes of the texts of train, as normalised by `encoder`."""
    documents = (encoder.normalize(text).encode("utf-8") for text in train)
    return KneserNey(order, _BYTES + 1, _BYTES).fit(
        [np.frombuffer(data, dtype=np.uint8).astype(np.int64) for data in documents]
    )


def token_documents(train: Iterable[str], tokenizer: Tokenizer) -> list[NDArray[np.int64]]:
    """Return the token ids of the texts of train."""
    from lexmill.tokenizers.bulk import BulkEncoder

    encoder = BulkEncoder(tokenizer)
    documents: list[NDArray[np.int64]] = []
    for texts in batched(train, 64):
        ids, lengths = encoder.encode(texts)
        documents += np.split(ids.astype(np.int64), np.cumsum(lengths)[:-1])
    return documents


def token_ngrams(order: int, add_k: float, tokenizer: Tokenizer) -> dict[str, NGram]:
    """Return the unfitted n-grams over a tokenizer's tokens by name; the plain name is Kneser-Ney's."""
    sizes = (tokenizer.vocab_size, tokenizer.eos_id)
    word = order_name(order)
    found: dict[str, NGram] = {"unigram": KneserNey(1, *sizes)}
    if order > 1:
        found[f"token_{word}"] = KneserNey(order, *sizes)
    found[f"add_k_{word}"] = AddK(order, *sizes, add_k)
    found[f"backoff_{word}"] = StupidBackoff(order, *sizes)
    return found


def order_name(order: int) -> str:
    """Return `trigram` for 3, `5_gram` for 5."""
    return {1: "unigram", 2: "bigram", 3: "trigram"}.get(order, f"{order}_gram")


def write_texts(
    model: NGram, tokenizer: Tokenizer, prompts: Sequence[str], length: int, seed: int
) -> list[dict[str, str]]:
    """Return what the model writes after each prompt: `prompt` and `text`, at most `length` tokens each."""
    never = [i for i in (tokenizer.pad_id, tokenizer.bos_id, tokenizer.mask_id, tokenizer.unk_id) if i is not None]
    found = []
    for prompt in prompts:
        ids = tokenizer.encode(prompt)
        new = model.sample(ids, length, seed, [i for i in never if i != tokenizer.eos_id])
        whole = tokenizer.decode([*ids, *new])
        found.append({"prompt": prompt, "text": whole[len(tokenizer.decode(ids)) :]})
    return found
