"""Addresses from outside: shown without their secrets, and refused where a secret would be stored with them.

params.yaml, dvc.lock, manifests, cards and MLflow keep a source's address as it is written. So no secret may be written
in it: a login comes from ~/.netrc or the keyring, any other secret from the environment, as `$NAME` in the address. A
name is replaced by its value only where the request is made.
"""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from lexmill.base.errors import UserError
from lexmill.base.shown import SECRET_NAME

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_LOGIN = re.compile(r"^([A-Za-z][\w+.-]*:/+)?[^/?#]*@")


def redact(address: str) -> str:
    """Return an address without its login, query and fragment, for messages and logs; it need not be a valid one."""
    address = address.partition("#")[0].partition("?")[0]
    return _LOGIN.sub(lambda found: found[1] or "", address)


def secret_in(address: str) -> str:
    """Return which part of an address is a secret that would be stored with it; "" where there is none."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return "a login" if _LOGIN.match(address) else ""
    login, at, _ = parts.netloc.rpartition("@")
    if (at and not _is_filled_later(login)) or (not parts.netloc and _LOGIN.match(address)):
        return "a login"
    for name, value in parse_qsl(parts.query):
        if SECRET_NAME.search(name) and not _is_filled_later(value):
            return f"the secret parameter '{name}'"
    return ""


def invalid(address: str) -> str:
    """Say why an address of a server or a database cannot be used; "" where it may be."""
    if not address.isprintable() or (" " in address and not address.startswith("sqlite:")):
        return "it holds a space or a control character; write %20 for a space"
    scheme, marked, rest = address.partition("://")
    if not marked:
        return ""  # no address; who uses it knows what it may be
    if not rest.strip("/"):
        return f"nothing follows {scheme}://"
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        return f"it is no valid address ({error})"
    return f"it names no server after {scheme}://" if scheme in ("http", "https") and not parts.hostname else ""


def filled(address: str) -> str:
    """Return an address with the environment's values for `$NAME` and `${NAME}` in its login and query.

    Raises:
        UserError: a variable is not set.
    """
    if "$" not in address:
        return address
    parts = urlsplit(address)
    login, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=_values(login, address) + at + host, query=_values(parts.query, address)))


def _values(text: str, address: str) -> str:
    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in os.environ:
            raise UserError(f"{redact(address)} needs the environment variable {name}, which is not set")
        return quote(os.environ[name], safe="&=%" if found[0] == text else "")

    return _VARIABLE.sub(value, text)


def _is_filled_later(text: str) -> bool:
    return all(_VARIABLE.fullmatch(part) for part in text.split(":"))
