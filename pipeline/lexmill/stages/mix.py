"""Combine encoded corpora into a mixture, from which trainings draw by weight.

Reads   artifacts/tokens/<member>-<tokenizer>/ of each member
Writes  artifacts/tokens/<name>-<tokenizer>/
Identity: params `mixtures.<name>`, the members, the code it imports.
Cost: a link a file; copies if the disk has no links. DVC's cache holds the members' bytes once. A pass over each train
split looks for documents that another member holds out.

`lexmill compose` writes its stage in dvc.yaml, `mix-<name>`, for DVC cannot make a list of dependencies from params.
"""

from __future__ import annotations

from lexmill import params
from lexmill.base import layout, progress, storage
from lexmill.base.strict import pick
from lexmill.data.mixture import write_mixture
from lexmill.stages.entry import run_stage


def main(name: str) -> None:
    mixture = pick(params.load().mixtures, name, "mixtures")
    members = {corpus: (layout.tokens(corpus, mixture.tokenizer), weight) for corpus, weight in mixture.members.items()}
    with storage.new_folder(layout.tokens(name, mixture.tokenizer)) as folder:
        manifest = write_mixture(folder, members)
    total = sum(mixture.members.values())
    for corpus, entry in manifest["members"].items():
        share = entry["weight"] / total
        progress.say(f"{corpus}: {100 * share:.3g} % of the training, {entry['train_tokens']:,} tokens to draw from")
        for other, count in entry.get("held_out_by", {}).items():
            progress.say(
                f"warning: documents of {corpus} (train) that are in {other} (valid or test): {count:,}; a model that"
                f" learns from {name} and is scored on {other} has seen them; take them out of {corpus}'s files"
            )


if __name__ == "__main__":
    run_stage(main)
