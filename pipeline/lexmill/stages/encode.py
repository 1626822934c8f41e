"""Turn a prepared corpus into memory-mapped token shards.

Reads   artifacts/corpora/<corpus>/, artifacts/tokenizers/<tokenizer>/
Writes  artifacts/tokens/<corpus>-<tokenizer>/, metrics/encode/<name>.json
Identity: params `encodings.<name>`, the corpus, the tokenizer, the code it imports.
Cost: 6 to 12 MB of text a second on one core; memory O(1). A large corpus is encoded by the workers of the execution
settings (`data`).
"""

from __future__ import annotations

from collections.abc import Iterable

from lexmill import params
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.compute.workers.choosing import executor_for
from lexmill.compute.workers.executor import Here
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.encoding import Record, encode_corpus, metrics
from lexmill.data.encoding_pieces import encode_pieces
from lexmill.stages.entry import run_stage
from lexmill.tokenizers import load


def main(name: str) -> None:
    choice = pick(params.load().encodings, name, "encodings")
    corpus = PreparedCorpus(layout.corpus(choice.corpus))
    tokenizer = load(layout.tokenizer(choice.tokenizer))
    splits = corpus.manifest["splits"]
    total = sum(split["characters"] for split in splits.values())
    size = sum(split["bytes"] for split in splits.values())
    fingerprint = storage.sha256_file(layout.corpus(choice.corpus) / "manifest.json")
    target = layout.tokens(choice.corpus, choice.tokenizer)
    with (
        executor_for(f"encode {name}", size) as executor,
        storage.new_folder(target) as folder,
        progress.bar(f"encode {name}", total) as bar,
    ):
        if isinstance(executor, Here):
            records: dict[str, Iterable[Record]] = {split: corpus.records(split) for split in sorted(splits)}
            manifest = encode_corpus(folder, corpus.kind, records, tokenizer, fingerprint, advance=bar.update)
        else:
            with storage.scratch_folder(target) as scratch:
                source = layout.tokenizer(choice.tokenizer)
                manifest = encode_pieces(
                    folder, corpus, source, fingerprint, executor=executor, scratch=scratch, advance=bar.update
                )
    storage.write_json(layout.metrics("encode", name), metrics(manifest))


if __name__ == "__main__":
    run_stage(main)
