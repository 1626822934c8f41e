"""The report pages on a phone, in a real browser: only boxes that scroll by themselves hold more than fits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.project import Project
from tests.services.missing import needs, program
from tests.support.browser import Browser

pytestmark = [pytest.mark.services, needs("chromium")]
WIDTH = 360
# The page's width, and what sticks out of it though it is in no box that scrolls by itself.
MEASURED = """(() => {
  document.querySelectorAll('details').forEach(one => one.open = true);
  const out = [...document.querySelectorAll('body *')].filter(
    one => !one.closest('.wide') && one.getBoundingClientRect().right > innerWidth + 0.5);
  return [document.documentElement.scrollWidth, out.map(one => one.outerHTML.slice(0, 200))];
})()"""


@pytest.fixture(scope="module")
def phone() -> Iterator[Browser]:
    path = program("chromium")
    assert path is not None
    with Browser(path, WIDTH, 800) as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    return Project(tmp_path_factory.mktemp("project")).everything().page


def shown(phone: Browser, page: str, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(page, encoding="utf-8")
    phone.open((tmp_path / "index.html").as_uri())
    phone.wait("lexmill report")


def test_the_page_fits_a_phone(phone: Browser, page: str, tmp_path: Path) -> None:
    shown(phone, page, tmp_path)
    assert phone.run(MEASURED) == [WIDTH, []]


def test_long_names_labels_and_addresses_fit_too(phone: Browser, page: str, tmp_path: Path) -> None:
    """Names have no bound, a label is cut at 40 characters."""
    for word in ("sentiment", "movie_reviews", "minilm", "majority", "bert", "adamw"):
        page = page.replace(word, word + "_and_more" * 12)
    page = page.replace("positive", "P" * 40).replace(" · lexmill", "")
    page = page.replace("Licence: ", "Licence: https://example.org/" + "licence" * 20)
    shown(phone, page, tmp_path)
    assert phone.run(MEASURED) == [WIDTH, []]


def test_the_pipeline_scrolls_in_its_own_box(phone: Browser, page: str, tmp_path: Path) -> None:
    shown(phone, page, tmp_path)
    inner, outer = phone.run(
        "(one => [one.scrollWidth, one.clientWidth])(document.querySelector('svg.dag').parentNode)"
    )
    assert outer <= WIDTH < inner
