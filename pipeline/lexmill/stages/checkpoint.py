"""Fetch a pretrained model as one folder in Hugging Face format, or a registered one as its own folder.

Reads   the network, local files or the registry of the execution settings, by params `checkpoints.<name>.source`
Writes  artifacts/checkpoints/<name>/: config.json, model.safetensors, tokenizer.json ... and manifest.json
Identity: params `checkpoints.<name>.source` and its pin in sources.lock.yaml; the sha256 in one of them pins the bytes.
Cost: one download (none if the download cache has it), one pass over the archive; memory O(1).
"""

from __future__ import annotations

from lexmill import params
from lexmill.base import layout, progress
from lexmill.base.strict import pick
from lexmill.compute.execution import load_execution
from lexmill.corpora.fetching.checkpoint_folder import fetch_checkpoint
from lexmill.corpora.fetching.fetch import prefix_errors
from lexmill.corpora.fetching.pins import pinned
from lexmill.params.corpora import RegisteredSource
from lexmill.stages.entry import run_stage


def main(name: str) -> None:
    source, target = pick(params.load().checkpoints, name, "checkpoints").source, layout.checkpoint(name)
    with prefix_errors(f"checkpoints.{name}.source"):
        if isinstance(source, RegisteredSource):
            from lexmill.registry.download import registered_model

            manifest = registered_model(source, load_execution().tracking_uri, target)
        else:
            found = pinned(source, "checkpoints", name)
            manifest = fetch_checkpoint(found.source, ".", target, found.files)
    size = sum(entry["bytes"] for entry in manifest["files"])
    progress.say(f"checkpoint {name}: {len(manifest['files'])} files, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    run_stage(main)
