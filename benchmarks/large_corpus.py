"""A corpus of gigabytes from an address on loopback to token shards: seconds and memory of each stage.

python -m benchmarks.large_corpus [--megabytes 2000]

Made JSON lines (words as unevenly frequent as those of a language, every tenth text twice), set up with `lexmill init`
in a clone of the project and run with `lexmill run encode`. Memory is the largest sum over a stage's processes of what
only they hold and their share of what they share (PSS), looked at four times a second.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import yaml

from benchmarks.encode import made_text
from benchmarks.measure import ROOT, machine, machine_text

_COPIES = 10
_LOOKS = 0.25  # seconds between two looks at the memory


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


def make_corpus(megabytes: float, path: Path) -> None:
    """Write the lines, every tenth text a second time right behind itself."""
    whole = path.with_suffix(".once")
    made_text(megabytes * _COPIES / (_COPIES + 1), whole, new_words=True)
    with whole.open("rb") as lines, path.open("wb") as stream:
        for number, line in enumerate(lines):
            stream.write(line if number % _COPIES else line * 2)
    whole.unlink()


def _stage(process: psutil.Process) -> str | None:
    """`prepare text` of `python -m lexmill.stages.prepare text`."""
    words = process.cmdline()
    if words[1:2] == ["-m"] and words[2].startswith("lexmill.stages."):
        return f"{words[2].rpartition('.')[2]} {' '.join(words[3:])}"
    return None


def watch(run: subprocess.Popen[bytes]) -> dict[str, tuple[float, float]]:
    """Follow a run to its end: seconds and MiB of each of its stages."""
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    most: defaultdict[str, float] = defaultdict(float)
    above = psutil.Process(run.pid)
    while run.poll() is None:
        for process in above.children(recursive=True):
            try:
                stage = _stage(process)
                if stage is None:
                    continue
                held = sum(one.memory_full_info().pss for one in (process, *process.children(recursive=True)))
            except psutil.Error:
                continue  # it ended meanwhile
            now = time.monotonic()
            begun.setdefault(stage, now)
            ended[stage] = now
            most[stage] = max(most[stage], held / 2**20)
        time.sleep(_LOOKS)
    return {stage: (ended[stage] - begun[stage], most[stage]) for stage in begun}


def main() -> None:
    """Make the corpus, run the stages, print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_corpus")
    parser.add_argument("--megabytes", type=float, default=2000.0, help="of text (default 2000)")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_corpus(wanted.megabytes, folder / "texts.jsonl")
        clone = folder / "clone"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        lexmill = [sys.executable, "-m", "lexmill.cli"]
        with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=name)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            _configure(lexmill, clone, folder / "texts.jsonl", server.server_port)
            with subprocess.Popen([*lexmill, "run", "encode"], cwd=clone) as run:
                found = watch(run)
            server.shutdown()
        if run.returncode:
            sys.exit(run.returncode)
        size = (folder / "texts.jsonl").stat().st_size / 1e9
        print(f"\n{size:.2f} GB; {machine_text(machine())}\n\n| stage | s | MiB |\n|---|---|---|")
        for stage, (seconds, mebibytes) in found.items():
            print(f"| {stage} | {seconds:.0f} | {mebibytes:,.0f} |")


def _configure(lexmill: Sequence[str], clone: Path, texts: Path, port: int) -> None:
    """Set it up as a newcomer would, then have it fetched from an address."""
    subprocess.run([*lexmill, "init", "lm", str(texts), "--name", "large"], cwd=clone, check=True)
    with texts.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    written = clone / "conf" / "corpus" / "large.yaml"
    corpus = yaml.safe_load(written.read_text(encoding="utf-8"))
    corpus["source"] = {"kind": "url", "urls": [f"http://127.0.0.1:{port}/{texts.name}"], "sha256": [digest]}
    written.write_text(yaml.safe_dump(corpus, sort_keys=False), encoding="utf-8")
    subprocess.run([*lexmill, "compose"], cwd=clone, check=True)


if __name__ == "__main__":
    main()
