"""What a command settles about its environment, and so about its children's, before it imports any library."""

from __future__ import annotations

import os
import pwd
import warnings

_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")  # what `getpass.getuser` reads


def settle() -> None:
    """Set what would otherwise fail inside of a library."""
    # A notebook exports its own backend, and matplotlib refuses to be imported where that is not installed.
    os.environ["MPLBACKEND"] = "agg"  # our plots are files
    # Our children are to find flows/ in their folder; it comes after the packages (lexmill/__init__.py).
    os.environ.pop("PYTHONSAFEPATH", None)
    _warnings_are_no_errors()
    _user_has_a_name()


def _user_has_a_name() -> None:
    """Name a user id without a name (`docker run --user 54321`, OpenShift): DVC asks for one, others for its home."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        if not any(os.environ.get(name) for name in _NAMES):
            os.environ["USER"] = str(os.getuid())
        os.environ.setdefault("HOME", "/")  # as container runtimes do


def _warnings_are_no_errors() -> None:
    """Undo `PYTHONWARNINGS=error`: what libraries warn of, DVC among them, is not the user's to mend."""
    if kept := ",".join(one for one in os.environ.get("PYTHONWARNINGS", "").split(",") if not _is_error(one)):
        os.environ["PYTHONWARNINGS"] = kept
    else:
        os.environ.pop("PYTHONWARNINGS", None)
    if any(one[0] == "error" for one in warnings.filters):
        others = [one for one in warnings.filters if one[0] != "error"]
        warnings.resetwarnings()
        warnings.filters.extend(others)  # type: ignore[attr-defined]  # a list, though typeshed shows a sequence


def _is_error(option: str) -> bool:
    action = option.partition(":")[0].strip()
    return bool(action) and "error".startswith(action)  # Python takes abbreviations
