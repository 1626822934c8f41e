"""Package a model with its tokenizer, metrics and card.

Reads   artifacts/models/<name>/, artifacts/predictions/<name>/rows.jsonl, artifacts/corpora/<corpus>/manifest.json,
        the manifest of what it was trained on, metrics/train/<name>.json, metrics/evaluate/<name>.json,
        metrics/baseline/, reports/samples/<name>.json
Writes  artifacts/packages/<name>/
Identity: params of the model and the entries it names, the seeds; the files above; the code of registry/ and of its
kind and family.
Cost: one copy and one hash of the model; no model is run.
"""

from __future__ import annotations

from lexmill.params import load
from lexmill.registry import package
from lexmill.stages.entry import run_stage

LOADS = ("lexmill.kinds.{kind}", "lexmill.models.{family}.shape")  # by name, see lexmill.base.code


def main(name: str) -> None:
    package.write(load(), name)


if __name__ == "__main__":
    run_stage(main)
