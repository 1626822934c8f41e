"""Score what a classifier must beat: the majority class, and TF-IDF with logistic regression.

Reads   artifacts/corpora/<corpus>/
Writes  metrics/floor_classifier/<name>.json,
        artifacts/predictions/floor-<name>/{majority,tfidf_logistic_regression}.jsonl
Identity: params `floors.classifier.<name>`, `evaluation`, `data_seed`, the corpus, the code it imports.
Cost: seconds for 10,000 sentences; memory O(words and word pairs of train).
"""

from __future__ import annotations

from lexmill import params
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.classification import summarise
from lexmill.evaluation.floors.classifier import majority, tfidf_logistic_regression
from lexmill.evaluation.rows import write_rows
from lexmill.stages.entry import run_stage


def main(name: str) -> None:
    choices = params.load()
    floor = pick(choices.floors.classifier, name, "floors.classifier")
    how = Resampling(choices.evaluation.bootstrap_samples, choices.evaluation.confidence, choices.data_seed)
    corpus = PreparedCorpus(layout.corpus(floor.corpus))
    train, valid, test = (list(corpus.records(split)) for split in ("train", "valid", "test"))
    floors = {
        "majority": lambda: majority(train, test),
        "tfidf_logistic_regression": lambda: tfidf_logistic_regression(train, valid, test),
    }
    metrics: dict[str, dict[str, float | str]] = {}
    with (
        storage.new_folder(layout.predictions(f"floor-{name}")) as folder,
        progress.bar(f"floors of {floor.corpus}", len(floors)) as bar,
    ):
        for kind, rows_of in floors.items():
            rows = rows_of()
            metrics[kind] = summarise(rows, corpus.unit, how)
            write_rows(folder / f"{kind}.jsonl", rows)
            bar.update(1)
    storage.write_json(layout.metrics("floor_classifier", name), metrics)


if __name__ == "__main__":
    run_stage(main)
