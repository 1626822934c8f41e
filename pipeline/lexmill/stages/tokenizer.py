"""Train a tokenizer on the train split of a prepared corpus, both sides of a parallel one.

Reads   artifacts/corpora/<corpus>/
Writes  artifacts/tokenizers/<name>/{tokenizer.json,tokenizer_config.json,special_tokens_map.json},
        metrics/tokenizer/<name>.json
Identity: params `tokenizers.<name>`, the corpus, the code it imports.
Cost: about three passes over train and one encoding of the whole corpus; memory O(different words of the sample).
"""

from __future__ import annotations

from collections.abc import Iterator

from lexmill import params
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.corpora.prepared import PreparedCorpus, texts_of
from lexmill.params.corpora import Tokenizer
from lexmill.stages.entry import run_stage
from lexmill.tokenizers import load
from lexmill.tokenizers.measure import Fit, fit
from lexmill.tokenizers.saving import save
from lexmill.tokenizers.training import train


def texts(corpus: PreparedCorpus, split: str) -> Iterator[str]:
    """Yield the texts of a split; of pairs the source, then the target."""
    for record in corpus.records(split):
        yield from texts_of(record)


def drawn_share(choice: Tokenizer, size: int) -> float:
    """Return the share of the train split's bytes of text that the tokenizer is trained on."""
    if choice.kind == "character" or not choice.sample:
        return 1.0
    return min(1.0, choice.sample * 1e6 / max(size, 1))


def main(name: str) -> None:
    choice = pick(params.load().tokenizers, name, "tokenizers")
    corpus = PreparedCorpus(layout.corpus(choice.corpus))
    share = drawn_share(choice, corpus.manifest["splits"]["train"]["bytes"])
    of = "" if share == 1 else f"{share:.1%} of "
    progress.say(f"tokenizer {name}: training {choice.kind} on {of}{choice.corpus}")
    backend = train(
        choice.kind,
        lambda: texts(corpus, "train"),
        vocab_size=choice.vocab_size,
        min_frequency=choice.min_frequency,
        lowercase=choice.lowercase,
        share=share,
    )
    with storage.new_folder(layout.tokenizer(name)) as folder:
        save(backend, folder)
    tokenizer = load(layout.tokenizer(name))
    if tokenizer.vocab_size < choice.vocab_size:
        found = f"the text gave {tokenizer.vocab_size} entries, {choice.vocab_size} were allowed"
        progress.say(f"tokenizer {name}: {found}")
    parts = {split: fit(tokenizer, texts(corpus, split)) for split in sorted(corpus.manifest["splits"])}
    storage.write_json(layout.metrics("tokenizer", name), _metrics(tokenizer.vocab_size, parts))
    for split, part in parts.items():
        if part.round_trip_failures:
            progress.say(
                f"tokenizer {name}: {part.round_trip_failures} of {part.texts} texts of {split} change in a round trip:"
                f" {part.example}"
            )


def _metrics(vocab_size: int, parts: dict[str, Fit]) -> dict[str, object]:
    return {
        "vocab_size": vocab_size,
        "round_trip_failures": sum(part.round_trip_failures for part in parts.values()),
        "unknown": sum(part.unknown for part in parts.values()),
        **{split: part.numbers() for split, part in parts.items()},
    }


if __name__ == "__main__":
    run_stage(main)
