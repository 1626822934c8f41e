"""Fetch the files of a corpus.

Reads   the network or local files, by params `corpora.<name>.source`; sources.lock.yaml if they may move
Writes  artifacts/sources/<name>/: the wanted files and manifest.json
Identity: params `corpora.<name>.source` and its pin in sources.lock.yaml; the sha256 in one of them pins the bytes.
Cost: one download (none if the download cache has it), one pass over the archive; memory O(1).
"""

from __future__ import annotations

from lexmill import params
from lexmill.base import layout, progress
from lexmill.base.strict import pick
from lexmill.corpora.fetching.fetch import fetch, prefix_errors
from lexmill.corpora.fetching.pins import pinned
from lexmill.stages.entry import run_stage


def main(name: str) -> None:
    source = pick(params.load().corpora, name, "corpora").source
    with prefix_errors(f"corpora.{name}.source"):
        found = pinned(source, "corpora", name)
        manifest = fetch(found.source, ".", layout.source(name), found.files)
    size = sum(entry["bytes"] for entry in manifest["files"])
    progress.say(f"fetch {name}: {len(manifest['files'])} files, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    run_stage(main)
