"""The pictures of the README, taken of this workspace after a run through the flow: `make pictures`.

docs/images/report.png    reports/index.html
docs/images/mlflow.png    the runs with their metrics, as `lexmill ui` links them
docs/images/prefect.png   the newest run of the flow
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import urllib.request
from pathlib import Path

from tests.services.missing import program
from tests.support.browser import Browser
from tests.support.processes import pages

IMAGES = Path("docs") / "images"
# What MLflow puts beside and above its table and says nothing of the runs: an assistant, a note on the view.
CLEAR = """
for (const id of ['mlflow.assistant.chat_panel.close', 'mlflow.experiment_page.shared_view.dismiss'])
  document.querySelector(`[data-component-id="${id}"]`)?.click();
"""


def newest_flow_run(base: str) -> str:
    """The page of the flow's newest run."""
    body = json.dumps({"sort": "START_TIME_DESC", "limit": 1}).encode()
    request = urllib.request.Request(f"{base}/api/flow_runs/filter", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        found = json.load(reply)
    if not found:
        sys.exit("Prefect has no run yet: `make repro` first")
    return f"{base}/runs/flow-run/{found[0]['id']}"


def take(said: str, browser: Browser, report: Path, images: Path) -> None:
    """Take all pictures of the pages that `lexmill ui` told of, and of the report."""
    links = dict(re.findall(r"^(\w+) +(http\S+)", said, re.MULTILINE))
    if "compare" not in links:
        sys.exit("no models are published: `make repro` first")
    browser.resize(1280, 1500)
    browser.open(report.absolute().as_uri())
    browser.wait("lexmill")
    browser.picture(images / "report.png")
    browser.resize(1400, 640)
    browser.open(links["MLflow"])
    browser.wait("test/bits_per_byte")
    browser.run(CLEAR)
    browser.picture(images / "mlflow.png", settled=3)
    browser.resize(1280, 720)
    browser.open(newest_flow_run(links["Prefect"]))
    browser.wait("Completed")
    browser.picture(images / "prefect.png", settled=3)


def main() -> None:
    """Take them of this workspace; what is missing is said."""
    chromium, report = program("chromium"), Path("reports") / "index.html"
    if chromium is None:
        sys.exit("Chromium is not installed: apt-get install chromium")
    if not report.is_file():
        sys.exit(f"{report} is not there: `make repro` first")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with pages(Path(), os.environ, log) as (_, said), Browser(chromium) as browser:
            take(said, browser, report, IMAGES)
    for path in sorted(IMAGES.glob("*.png")):
        print(path)


if __name__ == "__main__":
    main()
