"""Translate the test split and score the translations.

Reads   artifacts/models/<name>/, artifacts/corpora/<corpus>/, reports/curves/<name>.csv
Writes  metrics/evaluate_translator/<name>.json, artifacts/predictions/<name>/rows.jsonl,
        reports/plots/evaluate_translator-<name>/curve.png, reports/samples/<name>.json
Identity: params `translators.<name>.beam`, `evaluation`, `data_seed`, the inputs, the code it imports.
Cost: beam search over the test split, about beam_size decoder passes a target token.
"""

from __future__ import annotations

from typing import Any

from lexmill import params, tokenizers
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.compute.execution import load_execution
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation import plots
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.device import evaluation_device
from lexmill.evaluation.measure_translator import translated
from lexmill.evaluation.rows import spread, write_rows
from lexmill.evaluation.translation import summarise
from lexmill.models import folder as model_folder
from lexmill.stages.entry import run_stage

STAGE = "evaluate_translator"
SAMPLES = 40


def main(name: str) -> None:
    choices = params.load()
    chosen, evaluation = pick(choices.translators, name, "translators"), choices.evaluation
    corpus = PreparedCorpus(layout.corpus(chosen.corpus))
    target = corpus.languages[1]
    folder = layout.model(name)
    _, loaded = model_folder.load(folder)
    tokenizer = tokenizers.load(folder / model_folder.TOKENIZER)
    module: Any = loaded.to(evaluation_device(load_execution()))

    records = list(corpus.records("test"))
    with progress.bar(f"translate {name}", len(records)) as bar:
        rows, truncated = translated(
            module, tokenizer, records, chosen.beam, evaluation, language=target, advance=bar.update
        )
    how = Resampling(evaluation.bootstrap_samples, evaluation.confidence, choices.data_seed)
    figures = summarise(rows, corpus.unit, how, target)
    figures["truncated_sources"] = truncated

    with storage.new_folder(layout.predictions(name)) as predictions:
        write_rows(predictions / "rows.jsonl", rows)
    samples = [{key: rows[i][key] for key in ("source", "reference", "hypothesis")} for i in spread(len(rows), SAMPLES)]
    storage.write_json(layout.samples(name), {"samples": samples})
    with storage.new_folder(layout.plots(STAGE, name)) as pictures:
        plots.plot_curve(layout.curve(name), pictures / "curve.png", name)
    storage.write_json(layout.metrics(STAGE, name), {"test": figures})


if __name__ == "__main__":
    run_stage(main)
