"""Each locked package has a known licence; docs/dependencies.md names each that asks for more than a notice."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
LOCKED = sorted(set(re.findall(r"^([\w.-]+)==", _LOCK, re.MULTILINE)))
PERMISSIVE = re.compile(r"MIT|BSD|Apache|ISC|PSF|Python Software|Unlicense|Zope|CC0|zlib|HPND|CNRI", re.IGNORECASE)
COPYLEFT = re.compile(r"GPL|MPL|Mozilla|EPL|Artistic", re.IGNORECASE)
# Their packages say no licence that a program can read; their sources do.
UNSTATED = {"asyncssh": "EPL-2.0 OR GPL-2.0-or-later", "huey": "MIT", "skops": "MIT"}


def licence(name: str) -> str:
    about = metadata(name)
    if expression := about.get("License-Expression"):
        return expression
    stated = [one.rpartition(" :: ")[2] for one in about.get_all("Classifier") or [] if one.startswith("License")]
    found = "; ".join(one for one in stated if one != "OSI Approved")
    return UNSTATED.get(name.lower(), found or (about.get("License") or "").partition("\n")[0])


def is_installed(name: str) -> bool:
    """Whether this platform has it."""
    try:
        return bool(metadata(name))
    except PackageNotFoundError:
        return False


@pytest.mark.parametrize("name", list(filter(is_installed, LOCKED)))
def test_its_licence_is_known(name: str) -> None:
    found = licence(name)
    assert PERMISSIVE.search(found) or COPYLEFT.search(found), f"{name}: {found!r}"
    if COPYLEFT.search(found):
        section = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8").partition("## Licences")[2]
        assert f"`{name}`" in section, f"{name}: {found}"
