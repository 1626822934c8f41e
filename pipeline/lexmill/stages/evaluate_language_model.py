"""Score a language model on the test split.

Reads   artifacts/models/<name>/, artifacts/corpora/<corpus>/, reports/curves/<name>.csv
Writes  metrics/evaluate_language_model/<name>.json, artifacts/predictions/<name>/rows.jsonl,
        reports/plots/evaluate_language_model-<name>/{curve,loss_by_position}.png, reports/samples/<name>.json
Identity: params `language_models.<name>.prompts`, `evaluation`, `data_seed`, the inputs, the code it imports.
Cost: 1 / (1 - evaluation.overlap) forward passes over the test split; memory O(evaluation.batch_tokens * vocabulary).
"""

from __future__ import annotations

from typing import Any

from lexmill import params, tokenizers
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.compute.execution import load_execution
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.decoding.sampling import generate
from lexmill.decoding.settings import Sampling
from lexmill.evaluation import plots
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.device import evaluation_device
from lexmill.evaluation.language_model import loss_by_position, summarise
from lexmill.evaluation.measure_language_model import scored
from lexmill.evaluation.rows import Row, write_rows
from lexmill.evaluation.scoring import Floats
from lexmill.models import folder as model_folder
from lexmill.stages.entry import run_stage

STAGE = "evaluate_language_model"
SAMPLE_TOKENS = 200
TEMPERATURE = 0.8  # of the samples: at 1.0 a small model's rare words drown its style


def main(name: str) -> None:
    choices = params.load()
    chosen, evaluation = pick(choices.language_models, name, "language_models"), choices.evaluation
    corpus = PreparedCorpus(layout.corpus(chosen.corpus))
    folder = layout.model(name)
    _, loaded = model_folder.load(folder)
    tokenizer = tokenizers.load(folder / model_folder.TOKENIZER)
    module: Any = loaded.to(evaluation_device(load_execution()))

    rows: list[Row] = []
    scores: list[Floats] = []
    with progress.bar(f"evaluate {name}", corpus.count("test")) as bar:
        for document in scored(module, tokenizer, corpus, evaluation):
            rows += document.rows
            scores.append(document.log_probabilities)
            bar.update(1)
    how = Resampling(evaluation.bootstrap_samples, evaluation.confidence, choices.data_seed)
    figures = summarise(rows, corpus.unit, how)
    sampling = Sampling(SAMPLE_TOKENS, TEMPERATURE, seed=choices.data_seed)
    texts = generate(module, tokenizer, chosen.prompts, sampling)

    with storage.new_folder(layout.predictions(name)) as predictions:
        write_rows(predictions / "rows.jsonl", rows)
    samples = [{"prompt": prompt, "text": text} for prompt, text in zip(chosen.prompts, texts, strict=True)]
    storage.write_json(layout.samples(name), {"samples": samples, "temperature": TEMPERATURE})
    with storage.new_folder(layout.plots(STAGE, name)) as pictures:
        plots.plot_curve(layout.curve(name), pictures / "curve.png", name)
        by_position = loss_by_position(scores, module.context, evaluation.overlap)
        plots.plot_loss_by_position(by_position, pictures / "loss_by_position.png", name)
    storage.write_json(layout.metrics(STAGE, name), {"test": figures})


if __name__ == "__main__":
    run_stage(main)
