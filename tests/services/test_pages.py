"""`lexmill ui` in a real browser: its links show the runs by their names with metrics, the comparison, the flow run."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

import pytest
import yaml

from lexmill.tracking.links import run_url
from tests.flows.conftest import Workspace
from tests.registry.conftest import published  # noqa: F401  a fixture of these tests too
from tests.registry.plain import plain_params
from tests.services.missing import needs, program
from tests.support import pictures
from tests.support.browser import Browser
from tests.support.processes import pages as ui

pytestmark = [pytest.mark.services, needs("chromium")]
MODELS = ("gpt", "tickets", "en_de")


def in_training_view(text: str) -> bool:
    """Whether the page's menu is that of trainings: the other one offers prompts and a gateway."""
    return "Model registry" in text and "AI Gateway" not in text


@dataclass
class Pages:
    """What `lexmill ui` said of the pages that it serves, and what publishing said before."""

    root: Path
    said: str
    published: list[str]

    def link(self, name: str) -> str:
        found = re.search(rf"^{name} +(http\S+)", self.said, re.MULTILINE)
        assert found is not None, self.said
        return found[1]


@pytest.fixture(scope="module")
def pages(
    published: tuple[Path, list[str]],  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pages]:
    root = tmp_path_factory.mktemp("pages") / "the workspace"
    shutil.copytree(published[0], root)
    (root / "conf" / "execution").mkdir(parents=True)
    (root / "conf" / "execution" / "local.yaml").write_text("{}\n")
    (root / "params.yaml").write_text(yaml.safe_dump(plain_params(), sort_keys=False))
    ours = ("PREFECT_", "MLFLOW_", "LEXMILL_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)} | {"HOME": str(root)}
    with ui(root, environment, root / "ui.log") as (_, said):
        yield Pages(root, said, published[1])


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = program("chromium")
    assert path is not None
    with Browser(path) as opened:
        yield opened


def test_the_link_of_the_runs_shows_them_by_name_with_metrics(pages: Pages, browser: Browser) -> None:
    browser.open(pages.link("MLflow"))
    text = browser.wait("tiny", *MODELS, "test/bits_per_byte", "2.5", "test/accuracy", "0.8", "test/bleu", "20.5")
    assert "Error" not in text
    assert in_training_view(text)


def test_the_comparison_shows_the_runs_side_by_side(pages: Pages, browser: Browser) -> None:
    browser.open(pages.link("compare"))
    text = browser.wait("Comparing 3 Runs", *MODELS)
    assert "Parallel Coordinates" in text
    assert "model.family" in text
    assert in_training_view(text)


def test_publishing_gives_the_links_of_the_page_that_is_served(pages: Pages, browser: Browser) -> None:
    """Publishing does not know the port that a page will have; the rest of its links is that of the page."""
    for line, name in (("runs: ", "MLflow"), ("side by side: ", "compare")):
        (link,) = (one.removeprefix(line) for one in pages.published if one.startswith(line))
        assert link.partition("/#/")[2] == pages.link(name).partition("/#/")[2]


def test_a_run_shows_its_curves_and_card(pages: Pages, browser: Browser) -> None:
    base, _, page = pages.link("compare").partition("/#/")
    query = parse_qs(page.partition("?")[2])
    experiment, run = json.loads(query["experiments"][0])[0], json.loads(query["runs"][0])[0]
    browser.open(run_url(base, experiment, run))
    text = browser.wait("test/bits_per_byte", "curves/train_loss", "lexmill.fingerprint")
    assert "2.5" in text
    assert in_training_view(text)


def test_the_prefect_page_shows_the_run_and_its_stages(pages: Pages, browser: Browser, tmp_path: Path) -> None:
    workspace = tmp_path / "project"
    workspace.mkdir()
    small = Workspace(workspace, pages.link("Prefect"))
    small.stage("first", "python -c \"open('first.out', 'w').write('1')\"")
    small.stage("second", "python -c \"open('second.out', 'w').write('2')\"", needs=("first",))
    code, output = small.run()
    assert code == 0, output
    browser.open(f"{small.url}/runs")
    browser.wait("lexmill")
    (run,) = (one for one in small.ask("flow_runs") if one["state_type"] == "COMPLETED")
    browser.open(f"{small.url}/runs/flow-run/{run['id']}")
    browser.wait(run["name"], "first", "second", "Completed")

    (tmp_path / "index.html").write_text("<h1>lexmill report</h1>")
    pictures.take(pages.said, browser, tmp_path / "index.html", tmp_path / "images")
    sizes = {path.name: struct.unpack(">II", path.read_bytes()[16:24]) for path in (tmp_path / "images").iterdir()}
    assert sizes == {"report.png": (1280, 1500), "mlflow.png": (1400, 640), "prefect.png": (1280, 720)}
