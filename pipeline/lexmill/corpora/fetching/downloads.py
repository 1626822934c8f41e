"""Downloads into a cache keyed by sha256: a second fetch needs no network, an interrupted one resumes.

The cache is $XDG_CACHE_HOME/lexmill/downloads (~/.cache by default), or .lexmill/downloads in the workspace if the home
is read-only. `<sha256>` is a whole file, `<sha256>.part` a partial one, which the next fetch resumes (with a Range
request). It may be emptied at any time. Cost: memory O(1); a file is hashed once when downloaded and at each use.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx2

from lexmill.base import progress
from lexmill.base.addresses import redact
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.storage import flush_folder, sha256_file
from lexmill.corpora.fetching.connection import BROKEN, Client, explain, passing, refused, status_text
from lexmill.corpora.fetching.source_folder import DISK_FULL

_CONDITIONS = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}


def check_hash_text(sha256: str) -> str:
    """Return a sha256 in lower case; raise `UserError` for any other text."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise UserError(f"sha256: {sha256!r} is not a sha256 (64 hexadecimal digits)")
    return sha256.lower()


def mismatch(expected: str, actual: str, what: str = "the file") -> UserError:
    """The error for a file whose sha256 is not the pinned one."""
    return UserError(
        f"{what} has sha256 {actual}, but the params say {expected}; if the file is the one you mean, correct `sha256`,"
        " otherwise its origin was changed: do not use it"
    )


def user_cache() -> Path:
    """$XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"))


def writable(folder: Path) -> bool:
    """Make a folder and return whether files can be written to it; raise `OSError` for a full disk."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        return False


class DownloadCache:
    """Whole files by their sha256.

    Args:
        workspace: holds the fallback folder.

    Attributes:
        folders: searched in order; the first writable one takes new files.
    """

    def __init__(self, workspace: Path) -> None:
        self.folders = [user_cache() / "lexmill" / "downloads", workspace / ".lexmill" / "downloads"]

    def find(self, sha256: str) -> Path | None:
        """The cached file, verified; a damaged one is removed."""
        for folder in self.folders:
            path = folder / sha256
            try:
                if not path.is_file():
                    continue
                if sha256_file(path) == sha256:
                    return path
                path.unlink()
            except PermissionError:
                continue  # another user's cache
        return None

    @property
    def folder(self) -> Path:
        """The first writable folder."""
        home, fallback = self.folders
        if writable(home):
            return home
        fallback.mkdir(parents=True, exist_ok=True)
        return fallback

    def store(self, path: Path, sha256: str) -> Path:
        """Rename a whole, verified file in the cache's folder to its hash."""
        place = path.with_name(sha256)
        os.replace(path, place)
        flush_folder(place.parent)
        return place


@dataclass(frozen=True)
class Wanted:
    """A file to download: its address, its sha256 (lower case) and its display name."""

    url: str
    sha256: str
    name: str


def download(client: Client, cache: DownloadCache, wanted: Wanted) -> Path:
    """Return the wanted file in the cache, downloaded if it is not there.

    Raises:
        UserError: another sha256, or a permanent HTTP status (404, 403 ...).
        RetryableError: no connection, a time-out or a failing server, after the retries; the partial file is kept.
    """
    found = cache.find(wanted.sha256)
    if found is not None:
        return found
    part = cache.folder / f"{wanted.sha256}.part"
    with _locked(part, wanted.name) as stream:
        found = cache.find(wanted.sha256)  # another process may have fetched it meanwhile
        if found is not None:
            part.unlink()
            return found
        try:
            _fill(client, wanted, stream)
        except RetryableError:
            if _size(stream) == 0:
                part.unlink()
            raise
        except (UserError, OSError) as error:
            part.unlink(missing_ok=True)
            if isinstance(error, OSError):
                error.filename = error.filename or str(part)  # a failed write does not name its file
            raise
        return cache.store(part, wanted.sha256)


@dataclass(frozen=True)
class Answer:
    """A file of unknown hash, as it came: its sha256, and the validators by which a server recognises it later."""

    sha256: str
    validators: dict[str, str]


def look(client: Client, cache: DownloadCache, url: str, name: str, seen: Mapping[str, str]) -> Answer | None:
    """Download a file of unknown hash into the cache; None where the server says that it has not changed.

    Args:
        client, cache: to fetch and to store it.
        url, name: its address and its display name.
        seen: the validators of the last answer (`etag`, `last-modified`); empty: none.

    Raises:
        UserError: a permanent HTTP status. RetryableError: no connection or a failing server, after the retries.
    """
    conditions = {_CONDITIONS[key]: value for key, value in seen.items() if key in _CONDITIONS}
    attempts = client.attempts()
    with tempfile.NamedTemporaryFile(dir=cache.folder, prefix=".look-", suffix=".tmp", delete=False) as stream:
        path = Path(stream.name)
        try:
            while True:
                try:
                    validators = _receive_whole(client, url, name, conditions, stream)
                    break
                except BROKEN as error:
                    attempts.failed(explain(error, url, client.settings))
                except _Passing as error:
                    attempts.failed(str(error), error.retry_after)
            if validators is None:
                return None
            stream.flush()
            os.fsync(stream.fileno())
            sha256 = sha256_file(path)
            cache.store(path, sha256)
            return Answer(sha256, validators)
        finally:
            path.unlink(missing_ok=True)


class _Passing(Exception):
    """A status that may pass."""

    def __init__(self, url: str, response: httpx2.Response) -> None:
        super().__init__(status_text(url, response.status_code))
        self.retry_after: str | None = response.headers.get("Retry-After")


def _receive_whole(
    client: Client, url: str, name: str, conditions: Mapping[str, str], stream: IO[bytes]
) -> dict[str, str] | None:
    """Make one request for the whole file; return the validators, or None for "not modified"."""
    with client.get_stream(url, headers={"Accept-Encoding": "identity", **conditions}) as response:
        status = response.status_code
        if status == 304 and conditions:
            return None
        if passing(status):
            raise _Passing(url, response)
        if status != 200:
            raise refused(url, status)
        stream.seek(0)
        stream.truncate()
        _save(response, stream, name)
        return {key: response.headers[key] for key in _CONDITIONS if key in response.headers}


def _save(response: httpx2.Response, stream: IO[bytes], name: str, start: int = 0) -> None:
    """Append the body to a file that has `start` bytes of it."""
    length = response.headers.get("Content-Length", "")
    with progress.bar(f"download {name}", start + int(length) if length.isdigit() else None) as bar:
        bar.update(start)
        for chunk in response.iter_raw():  # as it comes: a fixed chunk size would hold back bytes, lost at a break
            view = memoryview(chunk)
            while view:  # an unbuffered write may take only a part
                view = view[stream.write(view) :]
            bar.update(len(chunk))


@contextmanager
def _locked(part: Path, name: str) -> Iterator[IO[bytes]]:
    """The partial file, open for appending and locked."""
    while True:
        stream = open(part, "ab", buffering=0)  # noqa: SIM115
        try:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress.say(f"download {name}: waiting for another process that fetches it")
                fcntl.flock(stream, fcntl.LOCK_EX)
            if _has_name(stream, part):
                yield stream
                return
        finally:
            stream.close()


def _has_name(stream: IO[bytes], part: Path) -> bool:
    """Whether the open file is still the one at this path: its last owner may have moved or removed it."""
    try:
        return os.path.samestat(os.fstat(stream.fileno()), part.stat())
    except FileNotFoundError:
        return False


def _size(stream: IO[bytes]) -> int:
    return os.fstat(stream.fileno()).st_size


def _fill(client: Client, wanted: Wanted, stream: IO[bytes]) -> None:
    """Append until the whole file is there and its hash is right."""
    resumed = _size(stream) > 0
    attempts = client.attempts()
    while True:
        before = _size(stream)
        try:
            _receive(client, wanted, stream)
        except (_Passing, *BROKEN) as error:
            if _size(stream) > before:
                attempts.progressed()
            resumed = _size(stream) > 0
            if isinstance(error, _Passing):
                attempts.failed(str(error), error.retry_after)
            else:
                attempts.failed(explain(error, wanted.url, client.settings))
            continue
        os.fsync(stream.fileno())
        actual = sha256_file(stream.name)
        if actual == wanted.sha256:
            return
        if not resumed:
            raise mismatch(wanted.sha256, actual, redact(wanted.url))
        # The parts may come from two different files: fetch it once more, whole.
        stream.truncate(0)
        resumed = False


def _receive(client: Client, wanted: Wanted, stream: IO[bytes]) -> None:
    """Make one request for the missing bytes; raise `_Passing` or one of `BROKEN` unless the body came to its end."""
    url, start = wanted.url, _size(stream)
    asked = {"Accept-Encoding": "identity"}
    if start:
        asked["Range"] = f"bytes={start}-"
    with client.get_stream(url, headers=asked) as response:
        status = response.status_code
        if status == 416 and start:  # the partial file is as long as the whole, or longer
            stream.truncate(0)
            raise _Passing(url, response)
        if passing(status):
            raise _Passing(url, response)
        continued = status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if status != 200 and not continued:
            raise refused(url, status)
        if not continued:
            stream.truncate(0)
            start = 0
        _save(response, stream, wanted.name, start)
