"""Score what a language model must beat: n-grams over the same tokens and over bytes.

Reads   artifacts/corpora/<corpus>/, artifacts/tokenizers/<tokenizer>/
Writes  metrics/floor_language_model/<name>.json, artifacts/predictions/floor-<name>/<floor>.jsonl with the floors
        unigram, token_trigram (Kneser-Ney), add_k_trigram, backoff_trigram, byte_trigram (Kneser-Ney), named by order,
        reports/samples/floor-<name>.json: texts that the token n-gram writes
Identity: params `floors.language_model.<name>`, `evaluation`, `data_seed`, the inputs, the code it imports.
Cost: seconds a megabyte at most; memory about 40 bytes x order x tokens of train.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lexmill import params, tokenizers
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.floors.language_model import (
    ByteEncoder,
    byte_ngram,
    order_name,
    token_documents,
    token_ngrams,
    write_texts,
)
from lexmill.evaluation.floors.ngram import NGram
from lexmill.evaluation.language_model import OffsetEncoder, TextEncoder, score_documents, summarise
from lexmill.evaluation.rows import write_rows
from lexmill.stages.entry import run_stage

SAMPLE_TOKENS = 100


def main(name: str) -> None:
    choices = params.load()
    floor = pick(choices.floors.language_model, name, "floors.language_model")
    how = Resampling(choices.evaluation.bootstrap_samples, choices.evaluation.confidence, choices.data_seed)
    corpus = PreparedCorpus(layout.corpus(floor.corpus))
    tokenizer = tokenizers.load(layout.tokenizer(floor.tokenizer))
    tokens, text_bytes = OffsetEncoder(tokenizer), ByteEncoder(OffsetEncoder(tokenizer))

    def train() -> Iterator[str]:
        return (record["text"] for record in corpus.records("train"))

    def fitted() -> Iterator[tuple[str, TextEncoder, NGram]]:
        """One at a time: each holds its tables in memory."""
        documents = token_documents(train(), tokenizer)
        for kind, model in token_ngrams(floor.order, floor.add_k, tokenizer).items():
            yield kind, tokens, model.fit(documents)
        del documents
        yield f"byte_{order_name(floor.byte_order)}", text_bytes, byte_ngram(floor.byte_order, train(), text_bytes)

    metrics: dict[str, Any] = {}
    samples: list[dict[str, str]] = []
    with (
        storage.new_folder(layout.predictions(f"floor-{name}")) as folder,
        progress.bar(f"floors of {floor.corpus}", None) as bar,
    ):
        for kind, encoder, model in fitted():
            scored = score_documents(corpus.records("test"), encoder, model)
            rows = [row for document in scored for row in document.rows]
            metrics[kind] = summarise(rows, corpus.unit, how)
            write_rows(folder / f"{kind}.jsonl", rows)
            if kind in ("unigram", f"token_{order_name(floor.order)}"):  # the latter last, where there is one
                samples = write_texts(model, tokenizer, floor.prompts, SAMPLE_TOKENS, choices.data_seed)
            bar.update(1)
    storage.write_json(layout.samples(f"floor-{name}"), {"samples": samples})
    storage.write_json(layout.metrics("floor_language_model", name), metrics)


if __name__ == "__main__":
    run_stage(main)
