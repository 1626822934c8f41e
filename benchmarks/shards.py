"""A large corpus in pieces: `prepare` and `encode` in two processes, and on a Dask cluster here, beside one process.

All sides: the same made JSON lines in sixteen files (words as unevenly frequent as those of a language, every tenth
line twice), prepared with exact de-duplication, then encoded with one trained BPE tokenizer; a process of its own for
each repetition. Seconds from the first file read to the last shard written; the start of the workers counted, that of
the Prefect server not. All must give the same bytes.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.encode import made_text, make_tokenizer
from benchmarks.measure import Comparison, child, in_turn

FILES = 16
WORKERS = 2
_COPIES = 10


def make_corpus(megabytes: float, folder: Path) -> None:
    """A source folder as fetch leaves it, and a tokenizer."""
    from lexmill.base import storage

    source = folder / "source"
    source.mkdir()
    made_text(megabytes, folder / "text.jsonl", new_words=True)
    make_tokenizer(folder / "text.jsonl", folder / "tokenizer")
    streams = [(source / f"part-{i:02d}.jsonl").open("w", encoding="utf-8") for i in range(FILES)]
    with (folder / "text.jsonl").open(encoding="utf-8") as text:
        for number, line in enumerate(text):
            streams[number % FILES].write(line)
            if number % _COPIES == 0:
                streams[(number + 1) % FILES].write(line)
    for stream in streams:
        stream.close()
    listed = [{"path": path.name, "bytes": path.stat().st_size, "sha256": ""} for path in sorted(source.iterdir())]
    storage.write_json(source / "manifest.json", {"files": listed, "source": {}})


def compare(repetitions: int, megabytes: float = 128.0) -> list[Comparison]:
    """Measure all sides on so many MB of text."""
    from lexmill.commands.servers import free_port, serving_prefect

    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_corpus(megabytes, folder)
        hashes: set[str] = set()
        before = {key: os.environ.pop(key, None) for key in ("PREFECT_HOME", "PREFECT_API_URL")}

        def side(which: str) -> dict[str, float]:
            one = child("shards", which, folder)
            hashes.add(one.pop("sha256"))
            return one

        try:
            with serving_prefect(folder / "server", free_port()) as server:
                server.wait()
                os.environ |= {"PREFECT_API_URL": f"{server.url}/api", "PREFECT_HOME": str(folder / "home")}
                for which, named in (("processes", f"{WORKERS} processes"), ("dask", f"Dask, {WORKERS} workers")):
                    ours, peer = in_turn(lambda which=which: side(which), lambda: side("local"), repetitions)
                    found += [
                        Comparison(
                            "shards", f"{stage}, {megabytes:g} MB", "s", (named, ours[stage]), ("one", peer[stage])
                        )
                        for stage in ("prepare", "encode")
                    ]
        finally:
            for key, value in before.items():
                os.environ.pop(key, None)
                if value is not None:
                    os.environ[key] = value
    if len(hashes) != 1:
        raise RuntimeError("the sides gave different bytes")
    return found


def main(which: str, folder: Path) -> dict[str, Any]:
    """One side, once: seconds of both stages, and a hash of what they made."""
    from lexmill.base import storage
    from lexmill.base.strict import build
    from lexmill.compute.workers.choosing import executor_for
    from lexmill.corpora.prepared import PreparedCorpus
    from lexmill.corpora.preparing.prepare import prepare
    from lexmill.data.encoding import encode_corpus
    from lexmill.data.encoding_pieces import encode_pieces
    from lexmill.params.corpora import Corpus
    from lexmill.tokenizers import load

    settings = folder / f"{which}.yaml"
    settings.write_text(f"data: {{workers: {which}, count: {WORKERS}, from_bytes: 0}}\n", encoding="utf-8")
    os.environ["LEXMILL_EXECUTION"] = str(settings)
    reader, source = {"format": "jsonl", "text": "text"}, {"kind": "file", "paths": ["x"]}
    errors: list[str] = []
    corpus = build(Corpus, {"kind": "text", "reader": reader, "source": source}, errors)
    if corpus is None:
        raise RuntimeError("\n".join(errors))
    size = sum(path.stat().st_size for path in (folder / "source").glob("*.jsonl"))
    with tempfile.TemporaryDirectory(dir=folder) as name:
        target = Path(name)
        begun = time.perf_counter()
        with executor_for("prepare made", size) as executor:
            prepare("made", corpus, folder / "source", target / "corpus", executor)
        prepared = time.perf_counter()
        texts, tokens, tokenizer = PreparedCorpus(target / "corpus"), target / "tokens", folder / "tokenizer"
        with executor_for("encode made", size) as executor, storage.new_folder(tokens) as made:
            if which == "local":
                records = {split: texts.records(split) for split in sorted(texts.manifest["splits"])}
                encode_corpus(made, "text", dict(records), load(tokenizer), "0" * 64)
            else:
                with storage.scratch_folder(tokens) as scratch:
                    encode_pieces(made, texts, tokenizer, "0" * 64, executor=executor, scratch=scratch)
        encoded = time.perf_counter()
        return {"prepare": prepared - begun, "encode": encoded - prepared, "sha256": storage.sha256_folder(target)}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
