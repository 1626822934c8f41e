"""Turn a prepared corpus into memory-mapped token shards.

Reads   artifacts/corpora/<corpus>/, artifacts/tokenizers/<tokenizer>/
Writes  artifacts/tokens/<corpus>-<tokenizer>/, metrics/encode/<name>.json
Identity: params `encodings.<name>`, the corpus, the tokenizer, the code it imports.
Cost: 5 to 15 MB of text a second on one core; memory O(1).
"""

from __future__ import annotations

from lexmill import layout, params, progress, storage
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.encoding import encode_corpus, metrics
from lexmill.errors import UserError
from lexmill.stages.entry import run_stage
from lexmill.strict import nearest
from lexmill.tokenizers import load


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
        )
    storage.write_json(layout.metrics("encode", name), metrics(manifest))


if __name__ == "__main__":
    run_stage(main)
