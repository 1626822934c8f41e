"""Let a model write one side of a parallel corpus: back-translation, or distillation into another model.

Reads   artifacts/models/<model>/, artifacts/corpora/<corpus>/, artifacts/corpora/<held_out>/
Writes  artifacts/corpora/<name>/ (a train split alone), metrics/translate/<name>.json,
        reports/samples/translate-<name>.json
Identity: params `translations.<name>`, the model's `evaluate`, the inputs, the code of the model's kind and family.
Cost: a search, or a draw, for each sentence; memory O(8,192 sentences).
"""

from __future__ import annotations

import dataclasses
from itertools import count

from lexmill import kinds, params, tokenizers
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.compute.execution import load_execution
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.translated import Translated, write_translated
from lexmill.evaluation.device import evaluation_device
from lexmill.models import folder as model_folder
from lexmill.stages.entry import run_stage

LOADS = ("lexmill.kinds.{kind}.predict",)  # by name, see lexmill.base.code

CHUNK = 256  # sentences between progress updates


def main(name: str) -> None:
    choices = params.load()
    choice = pick(choices.translations, name, "translations")
    model = layout.model(choice.model)
    config, module = model_folder.load(model)
    config["evaluate"] = dataclasses.asdict(choices.models[choice.model].evaluate)
    module.to(evaluation_device(load_execution()))
    predict = kinds.find(config["kind"]).module("predict")
    predictor = predict.Predictor(choice.model, config, module, tokenizers.load(model / model_folder.TOKENIZER))
    keys = ("temperature", "top_k", "top_p")
    how = {"mbr": 0, **{key: getattr(choice, key) for key in keys}} if choice.temperature else {}
    corpus, held_out = PreparedCorpus(layout.corpus(choice.corpus)), PreparedCorpus(layout.corpus(choice.held_out))
    if "to" in predictor.defaults:
        how["to"] = held_out.languages[choice.writes == "target"]

    seeds = count(choice.seed)  # one a chunk, so that a sentence is drawn anew where it comes again

    with progress.bar(f"translate {name}") as bar:

        def translate(sentences: list[str]) -> list[Translated]:
            found = []
            for start in range(0, len(sentences), CHUNK):
                chunk = sentences[start : start + CHUNK]
                made = predictor.translations(chunk, how | ({"seed": next(seeds)} if choice.temperature else {}))
                found += [Translated(best.text, best.truncated) for best, *_ in made]
                bar.update(len(chunk))
            return found

        metrics, samples = write_translated(layout.corpus(name), choice, corpus, held_out, translate)
    storage.write_json(layout.metrics("translate", name), metrics)
    storage.write_json(layout.samples(f"translate-{name}"), samples)
    progress.say(f"translate {name}: {metrics['used']:,} pairs of {metrics['raw']:,} sentences")


if __name__ == "__main__":
    run_stage(main)
