"""Write one page with every result next to its baselines.

Reads   params.yaml, sources.lock.yaml, dvc.yaml, metrics/, reports/curves/, reports/plots/, reports/samples/, and to
        mark what is stale artifacts/corpora/*/manifest.json, artifacts/tokenizers/*/tokenizer.json if they are there
Writes  reports/index.html
Identity: its params in dvc.yaml, the files it reads, the code it imports; equal inputs give equal bytes.
Cost: seconds; memory O(the page).
"""

from __future__ import annotations

from pathlib import Path

from lexmill import params
from lexmill.base import layout, progress, storage
from lexmill.report.page import render
from lexmill.stages.entry import run_stage


def main(_key: str = "") -> None:
    """Write the page of the workspace in the present folder."""
    page = layout.REPORTS / "index.html"
    storage.write_text(page, render(params.load(), Path()))
    progress.say(f"report: {page}")


if __name__ == "__main__":
    run_stage(main, keyed=False)
