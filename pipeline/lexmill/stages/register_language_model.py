"""Package a language model with its tokenizer, figures and card.

Reads   artifacts/models/<name>/, artifacts/predictions/<name>/rows.jsonl, artifacts/corpora/<corpus>/manifest.json,
        artifacts/tokens/<train>-<tokenizer>/manifest.json, metrics/pretrain/<name>.json,
        metrics/evaluate_language_model/<name>.json, metrics/floor_language_model/, reports/samples/<name>.json
Writes  artifacts/packages/<name>/
Identity: params `language_models.<name>`, the corpus and what else it names, the seeds; the files above; registry/.
Cost: one copy and one hash of the model; no model is run.
"""

from __future__ import annotations

from lexmill.params import load
from lexmill.registry import package
from lexmill.stages.entry import run_stage


def main(name: str) -> None:
    package.write(load(), "language_model", name)


if __name__ == "__main__":
    run_stage(main)
