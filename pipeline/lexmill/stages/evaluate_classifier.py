"""Score a classifier on the test split.

Reads   artifacts/models/<name>/, artifacts/corpora/<corpus>/, reports/curves/<name>.csv
Writes  metrics/evaluate_classifier/<name>.json, artifacts/predictions/<name>/rows.jsonl,
        reports/plots/evaluate_classifier-<name>/{curve,confusion}.png, reports/samples/<name>.json
Identity: params `evaluation`, `data_seed`, the inputs, the code it imports.
Cost: one forward pass over the test split.
"""

from __future__ import annotations

from typing import Any

from lexmill import params
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.compute.execution import load_execution
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation import plots
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.classification import (
    all_labels,
    confusion,
    confusion_counts,
    row_loss,
    summarise,
    worst,
)
from lexmill.evaluation.device import evaluation_device
from lexmill.evaluation.measure_classifier import classified
from lexmill.evaluation.rows import Row, spread, write_rows
from lexmill.models import folder as model_folder
from lexmill.models.bert import tokenizer as bert_tokenizer
from lexmill.stages.entry import run_stage

STAGE = "evaluate_classifier"
SAMPLES, WORST = 20, 20


def main(name: str) -> None:
    choices = params.load()
    chosen, evaluation = pick(choices.classifiers, name, "classifiers"), choices.evaluation
    corpus = PreparedCorpus(layout.corpus(chosen.corpus))
    folder = layout.model(name)
    config, module = model_folder.load(folder)
    tokenizer = bert_tokenizer.load(folder / model_folder.TOKENIZER)
    module = module.to(evaluation_device(load_execution()))

    records = list(corpus.records("test"))
    with progress.bar(f"evaluate {name}", len(records)) as bar:
        rows = classified(module, tokenizer, config, records, evaluation, advance=bar.update)
    how = Resampling(evaluation.bootstrap_samples, evaluation.confidence, choices.data_seed)
    figures = summarise(rows, corpus.unit, how)

    with storage.new_folder(layout.predictions(name)) as predictions:
        write_rows(predictions / "rows.jsonl", rows)
    storage.write_json(
        layout.samples(name),
        {
            "samples": [sample(records[i], rows[i]) for i in spread(len(rows), SAMPLES)],
            "worst": [sample(records[i], rows[i]) for i in worst(rows, WORST)],
        },
    )
    labels = all_labels(rows)
    with storage.new_folder(layout.plots(STAGE, name)) as pictures:
        plots.plot_curve(layout.curve(name), pictures / "curve.png", name)
        plots.plot_confusion(confusion(rows, labels), labels, pictures / "confusion.png", name)
    storage.write_json(layout.metrics(STAGE, name), {"test": figures, "confusion": confusion_counts(rows)})


def sample(record: dict[str, str], row: Row) -> dict[str, Any]:
    """An item for people: its text, the right label, the prediction with its score, the loss in nats."""
    return {
        "text": record["text"],
        "label": row["label"],
        "predicted": row["predicted"],
        "score": row["probabilities"][row["predicted"]],
        "loss": row_loss(row),
    }


if __name__ == "__main__":
    run_stage(main)
