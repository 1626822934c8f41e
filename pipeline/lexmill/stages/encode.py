"""Turn a prepared corpus into memory-mapped token shards.

Reads   artifacts/corpora/<corpus>/, artifacts/tokenizers/<tokenizer>/
Writes  artifacts/tokens/<corpus>-<tokenizer>/, metrics/encode/<name>.json
Identity: params `encodings.<name>`, the corpus, the tokenizer, the code it imports.
Cost: 6 to 12 MB of text a second on one core; memory O(1). A large corpus takes all cores of the execution settings.
"""

from __future__ import annotations

import os

from lexmill import layout, params, progress, storage
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.encoding import encode_corpus, metrics
from lexmill.errors import UserError
from lexmill.execution import load_execution
from lexmill.stages.entry import run_stage
from lexmill.strict import nearest
from lexmill.tokenizers import load

LARGE = 50_000_000  # characters, a few seconds of work


def main(name: str) -> None:
    """Encode the corpus of the entry `name` with its tokenizer."""
    encodings = params.load().encodings
    if name not in encodings:
        raise UserError(f"encodings: there is no entry '{name}'{nearest(name, encodings)}")
    choice = encodings[name]
    corpus = PreparedCorpus(layout.corpus(choice.corpus))
    tokenizer = load(layout.tokenizer(choice.tokenizer))
    splits = corpus.manifest["splits"]
    total = sum(split["characters"] for split in splits.values())
    with (
        storage.new_folder(layout.tokens(choice.corpus, choice.tokenizer)) as folder,
        progress.bar(f"encode {name}", total) as bar,
    ):
        manifest = encode_corpus(
            folder,
            corpus.kind,
            {split: corpus.records(split) for split in sorted(splits)},
            tokenizer,
            storage.sha256_file(layout.corpus(choice.corpus) / "manifest.json"),
            advance=bar.update,
            processes=processes(total),
        )
    storage.write_json(layout.metrics("encode", name), metrics(manifest))


def processes(characters: int) -> int:
    """How many processes encode: one where the others would hardly have started before the end."""
    if characters < LARGE:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return load_execution().threads or cores


if __name__ == "__main__":
    run_stage(main)
