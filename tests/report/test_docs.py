"""The pages about parts and troubles, held to the code that they speak of."""

from __future__ import annotations

import re
import tomllib

from tests.report.project import ROOT


def test_every_part_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[^\w-]", entry)[0].lower() for entry in project["dependencies"]}
    page = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8").partition("## Licences")[0]
    rows = {
        name.strip().lower()
        for line in page.splitlines()
        if line.startswith("| ") and not line.startswith(("| package", "|---"))
        for name in line.split("|")[1].split(",")
    }
    assert rows == names


def test_every_quoted_message_is_one_that_the_code_says() -> None:
    """The constant pieces of each message in the first column of the tables stand in the code or in DVC's words."""
    code = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("pipeline", "flows")
        for path in sorted((ROOT / folder).rglob("*.py"))
    )
    code += (ROOT / "Makefile").read_text(encoding="utf-8")
    # DVC's and Prefect's words
    code += "is invalid Unable to acquire lock is busy, it is being blocked by database is locked"
    code += "JSON structure is corrupted Parameters are missing from"
    said = " ".join(re.sub(r'"\s*f?"', "", code).split())
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    messages = [
        message
        for line in page.splitlines()
        if line.startswith("| ")
        for message in re.findall(r"`([^`]+)`", line.split("|")[1])
        if " " in message
    ]
    assert len(messages) > 20
    for message in messages:
        pieces = re.split(r"\.\.\.|NAME|HOST|'[^']*'|, did you mean|\d+|[\w.]+: |\b(?:lexmill|dvc) \w+\b", message)
        longest = max((piece.strip(" ,:()") for piece in pieces), key=len)
        assert longest in said, (message, longest)
