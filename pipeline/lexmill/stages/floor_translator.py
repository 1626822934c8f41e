"""Score what a translator must beat: the source, copied.

Reads   artifacts/corpora/<corpus>/
Writes  metrics/floor_translator/<name>.json, artifacts/predictions/floor-<name>/copy_source.jsonl
Identity: params `floors.translator.<name>`, `evaluation`, `data_seed`, the corpus, the code it imports.
Cost: sacrebleu's statistics of the test split, once.
"""

from __future__ import annotations

from lexmill import params
from lexmill.base import layout, storage
from lexmill.base.strict import pick
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.floors.translator import copy_source
from lexmill.evaluation.rows import write_rows
from lexmill.evaluation.translation import summarise
from lexmill.stages.entry import run_stage


def main(name: str) -> None:
    choices = params.load()
    floor = pick(choices.floors.translator, name, "floors.translator")
    how = Resampling(choices.evaluation.bootstrap_samples, choices.evaluation.confidence, choices.data_seed)
    corpus = PreparedCorpus(layout.corpus(floor.corpus))
    target = corpus.languages[1]
    rows = copy_source(list(corpus.records("test")), target)
    metrics = {"copy_source": summarise(rows, corpus.unit, how, target)}
    with storage.new_folder(layout.predictions(f"floor-{name}")) as folder:
        write_rows(folder / "copy_source.jsonl", rows)
    storage.write_json(layout.metrics("floor_translator", name), metrics)


if __name__ == "__main__":
    run_stage(main)
