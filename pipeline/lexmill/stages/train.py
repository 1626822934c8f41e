"""Train a model.

Reads   the files of the model's `start`, artifacts/tokenizers/<tokenizer>/, and its data: token shards of
        artifacts/tokens/ or a prepared corpus of artifacts/corpora/
Writes  artifacts/models/<name>/, metrics/train/<name>.json, reports/curves/<name>.csv
Identity: params `models.<name>` (all but `evaluate`), the two seeds, the data's manifest, the bytes of the files of
`start`, the code of its kind and family.
Cost: steps * batch targets; memory O(parameters + micro_batch * activations of a target).

Wall time and speed go to .lexmill/metrics/train-<name>.json, which git ignores.
"""

from __future__ import annotations

from lexmill import kinds, params
from lexmill.base.strict import pick
from lexmill.stages.entry import run_stage

LOADS = ("lexmill.kinds.{kind}.task",)  # by name, see lexmill.base.code


def main(name: str) -> None:
    choices = params.load()
    kind = kinds.find(pick(choices.models, name, "models").kind)
    kind.module("task").train(name, choices)


if __name__ == "__main__":
    run_stage(main)
