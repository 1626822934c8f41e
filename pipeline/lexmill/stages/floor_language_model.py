"""Score what a language model must beat: unigram, byte trigram, and the same tokenizer's trigram.

Reads   artifacts/corpora/<corpus>/, artifacts/tokenizers/<tokenizer>/
Writes  metrics/floor_language_model/<name>.json,
        artifacts/predictions/floor-<name>/{unigram,byte_trigram,token_trigram}.jsonl
Identity: params `floors.language_model.<name>`, `evaluation`, `data_seed`, the inputs, the code it imports.
Cost: seconds a megabyte at most; memory about 100 bytes a byte of train.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lexmill import layout, params, progress, storage, tokenizers
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.floors.kneser_ney import KneserNey
from lexmill.evaluation.floors.language_model import ByteEncoder, byte_ngram, token_documents, token_ngram
from lexmill.evaluation.language_model import OffsetEncoder, TextEncoder, score_documents, summarise
from lexmill.evaluation.rows import write_rows
from lexmill.stages.entry import run_stage
from lexmill.strict import pick


def main(name: str) -> None:
    choices = params.load()
    floor = pick(choices.floors.language_model, name, "floors.language_model")
    how = Resampling(choices.evaluation.bootstrap_samples, choices.evaluation.confidence, choices.data_seed)
    corpus = PreparedCorpus(layout.corpus(floor.corpus))
    tokenizer = tokenizers.load(layout.tokenizer(floor.tokenizer))
    tokens, text_bytes = OffsetEncoder(tokenizer), ByteEncoder(OffsetEncoder(tokenizer))

    def train() -> Iterator[str]:
        return (record["text"] for record in corpus.records("train"))

    documents = token_documents(train(), tokenizer)
    floors: dict[str, tuple[TextEncoder, Callable[[], KneserNey]]] = {
        "unigram": (tokens, lambda: token_ngram(1, documents, tokenizer)),
        "byte_trigram": (text_bytes, lambda: byte_ngram(floor.order, train(), text_bytes)),
        "token_trigram": (tokens, lambda: token_ngram(floor.order, documents, tokenizer)),
    }
    metrics = {}
    with (
        storage.new_folder(layout.predictions(f"floor-{name}")) as folder,
        progress.bar(f"floors of {floor.corpus}", len(floors)) as bar,
    ):
        for kind, (encoder, fit) in floors.items():
            scored = score_documents(corpus.records("test"), encoder, fit())
            rows = [row for document in scored for row in document.rows]
            metrics[kind] = summarise(rows, corpus.unit, how)
            write_rows(folder / f"{kind}.jsonl", rows)
            bar.update(1)
    storage.write_json(layout.metrics("floor_language_model", name), metrics)


if __name__ == "__main__":
    run_stage(main)
