"""Score a model on the test split, and on the further test sets of its corpus.

Reads   artifacts/models/<name>/, artifacts/corpora/<corpus>/, reports/curves/<name>.csv
Writes  metrics/evaluate/<name>.json, artifacts/predictions/<name>/rows.jsonl and rows-<set>.jsonl,
        reports/plots/<name>/*.png, reports/samples/<name>.json
Identity: params `models.<name>.evaluate`, `evaluation`, `data_seed`, the inputs, the code of its kind and family.
Cost: one pass over each test set, or a search over it if the kind decodes by search.
"""

from __future__ import annotations

from dataclasses import replace

from lexmill import kinds, params, tokenizers
from lexmill.base import layout, storage
from lexmill.base.strict import pick
from lexmill.compute.execution import load_execution
from lexmill.compute.memory import keep_freed_memory
from lexmill.corpora.identity import MEASURED_ON, measured_on
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation import plots, word_map
from lexmill.evaluation.device import evaluation_device
from lexmill.evaluation.rows import write_rows
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.models import folder as model_folder
from lexmill.stages.entry import run_stage

LOADS = ("lexmill.kinds.{kind}.evaluate",)  # by name, see lexmill.base.code


def main(name: str) -> None:
    keep_freed_memory()
    choices = params.load()
    model = pick(choices.models, name, "models")
    folder = layout.model(name)
    config, module = model_folder.load(folder)
    subject = Subject(
        name=name,
        config=config,
        settings=model.evaluate,
        module=module.to(evaluation_device(load_execution())),
        tokenizer=tokenizers.load(folder / model_folder.TOKENIZER),
        corpus=PreparedCorpus(layout.corpus(model.data.corpus)),
        evaluation=choices.evaluation,
        seed=choices.data_seed,
    )
    kind = kinds.find(model.kind)
    scoring = kind.module("evaluate")
    found: Evaluated = scoring.evaluate(subject)
    more = dict(found.more)
    over_tokens = any(metric.over_tokens for metric in kind.metrics)
    tokenizer = subject.tokenizer.fingerprint if over_tokens else None
    more[MEASURED_ON] = measured_on(subject.corpus, tokenizer, subject.corpus.further_tests)

    with storage.new_folder(layout.predictions(name)) as predictions:
        write_rows(predictions / "rows.jsonl", found.rows)
        for split in subject.corpus.further_tests:
            further = replace(subject, split=split)
            rows = scoring.rows(further)
            write_rows(predictions / f"rows-{split}.jsonl", rows)
            more.setdefault("tests", {})[split] = scoring.metrics(further, rows)
    storage.write_json(layout.samples(name), found.samples)
    with storage.new_folder(layout.plots(name)) as pictures:
        plots.plot_curve(layout.curve(name), pictures / "curve.png", name)
        found.draw(pictures)
        word_map.draw(subject, pictures)
    storage.write_json(layout.metrics("evaluate", name), {"test": found.metrics, **more})


if __name__ == "__main__":
    run_stage(main)
