"""Score the baselines that the models of a kind must beat on a corpus.

Reads   artifacts/corpora/<corpus>/, and artifacts/tokenizers/<tokenizer>/ where the kind's baselines use it
Writes  metrics/baseline/<name>.json, artifacts/predictions/baseline-<name>/<baseline>.jsonl,
        reports/samples/baseline-<name>.json
Identity: params `baselines.<name>`, `evaluation`, `data_seed`, the inputs, the code of its kind.
Cost: at most seconds a megabyte; see the kind's baselines.
"""

from __future__ import annotations

from typing import Any

from lexmill import kinds, params, tokenizers
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.corpora.identity import MEASURED_ON, measured_on
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import write_rows
from lexmill.stages.entry import run_stage

LOADS = ("lexmill.kinds.{kind}.baselines",)  # by name, see lexmill.base.code


def main(name: str) -> None:
    choices = params.load()
    chosen = pick(choices.baselines, name, "baselines")
    how = Resampling.of(choices.evaluation, choices.data_seed)
    corpus = PreparedCorpus(layout.corpus(chosen.corpus))
    tokenizer = tokenizers.load(layout.tokenizer(chosen.tokenizer)).fingerprint if chosen.tokenizer else None
    metrics: dict[str, Any] = {MEASURED_ON: measured_on(corpus, tokenizer)}
    samples: list[dict[str, Any]] = []
    with (
        storage.new_folder(layout.predictions(f"baseline-{name}")) as folder,
        progress.bar(f"baselines of {chosen.corpus}", None) as bar,
    ):
        for found in kinds.find(chosen.kind).module("baselines").baselines(chosen, corpus, how):
            metrics[found.name] = found.metrics
            write_rows(folder / f"{found.name}.jsonl", found.rows)
            samples = found.samples if found.samples is not None else samples
            bar.update(1)
    storage.write_json(layout.samples(f"baseline-{name}"), {"samples": samples})
    storage.write_json(layout.metrics("baseline", name), metrics)


if __name__ == "__main__":
    run_stage(main)
