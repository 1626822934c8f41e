"""The last line of `lexmill run`: it names a page only where there is one."""

from pathlib import Path

from lexmill.commands.run import where_to_look


def test_a_report_that_was_not_made_is_not_named(tmp_path: Path) -> None:
    assert "not made yet; `lexmill run report` makes it" in where_to_look(tmp_path)
    page = tmp_path / "reports" / "index.html"
    page.parent.mkdir()
    page.write_text("")
    assert where_to_look(tmp_path) == "the report: reports/index.html; the pages: make ui"
