"""Bring the files of a corpus here.

Reads   the network or local files, as params `corpora.<name>.source` say
Writes  artifacts/sources/<name>/: the wanted files and manifest.json
Identity: params `corpora.<name>.source`; the sha256 in it pins the bytes.
Cost: one download (none when the download cache has it), one pass over the archive; memory O(1).
"""

from __future__ import annotations

from lexmill import layout, params, progress
from lexmill.corpora.fetching.fetch import fetch, told_of
from lexmill.errors import UserError
from lexmill.stages.entry import run_stage
from lexmill.strict import nearest


def main(name: str) -> None:
    corpora = params.load().corpora
    if name not in corpora:
        raise UserError(f"corpora: there is no corpus '{name}'{nearest(name, corpora)}")
    with told_of(f"corpora.{name}.source"):
        manifest = fetch(corpora[name].source, ".", layout.source(name))
    size = sum(entry["bytes"] for entry in manifest["files"])
    progress.say(f"fetch {name}: {len(manifest['files'])} files, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    run_stage(main)
