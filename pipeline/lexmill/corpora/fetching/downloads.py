"""Downloads into a cache keyed by sha256: a second fetch needs no network, a broken one goes on where it stopped.

The cache is $XDG_CACHE_HOME/lexmill/downloads (~/.cache by default), or .lexmill/downloads in the workspace where the
home cannot be written. `<sha256>` is a whole file; `<sha256>.part` one whose connection broke, continued by the
next fetch (with a Range request). It may be emptied at any time. Cost: memory O(1); each file is hashed once when
downloaded and once each time it is used.
"""

from __future__ import annotations

import errno
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
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.storage import flush_folder, sha256_file
from lexmill.corpora.fetching.connection import Client, explain, passing, redact, refused, status_text

_CONDITIONS = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}


def check_hash_text(sha256: str) -> str:
    """A sha256 in lower case; `UserError` when it is none."""
    if not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise UserError(f"sha256: {sha256!r} is no sha256 (64 hexadecimal digits)")
    return sha256.lower()


def mismatch(expected: str, actual: str, what: str = "the file") -> UserError:
    """The error for bytes that are not those that were pinned."""
    return UserError(
        f"{what} has sha256 {actual}, but the params say {expected}; if the file is the one you mean, correct `sha256`,"
        " otherwise its origin was changed: do not use it"
    )


class DownloadCache:
    """Whole files by their sha256.

    Args:
        workspace: holds the fallback folder.

    Attributes:
        folders: where files are looked for; the first that can be written takes new ones.
    """

    def __init__(self, workspace: Path) -> None:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        self.folders = [Path(home) / "lexmill" / "downloads", workspace / ".lexmill" / "downloads"]

    def find(self, sha256: str) -> Path | None:
        """The cached file, checked; a damaged one is removed."""
        for folder in self.folders:
            path = folder / sha256
            try:
                if not path.is_file():
                    continue
                if sha256_file(path) == sha256:
                    return path
                path.unlink()
            except PermissionError:
                continue  # another user's cache: as good as none
        return None

    @property
    def folder(self) -> Path:
        """The first folder that can be written."""
        for folder in self.folders[:-1]:
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    return folder
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
        self.folders[-1].mkdir(parents=True, exist_ok=True)
        return self.folders[-1]

    def store(self, path: Path, sha256: str) -> Path:
        """Move a whole, checked file of the cache's folder to its place."""
        place = path.with_name(sha256)
        os.replace(path, place)
        flush_folder(place.parent)
        return place


@dataclass(frozen=True)
class Wanted:
    """A file to download: where it is, its sha256 (lower case), and its name for people."""

    url: str
    sha256: str
    name: str


def download(client: Client, cache: DownloadCache, wanted: Wanted) -> Path:
    """A file of the cache with the wanted bytes, downloaded if it is not there.

    Raises:
        UserError: other bytes than the sha256 says, or an HTTP status that stays (404, 403 ...).
        RetryableError: no connection, a time-out or a failing server, after the retries; what came is kept for
            the next time.
    """
    found = cache.find(wanted.sha256)
    if found is not None:
        return found
    part = cache.folder / f"{wanted.sha256}.part"
    with _locked(part, wanted.name) as stream:
        found = cache.find(wanted.sha256)  # another process may have brought it meanwhile
        if found is None:
            try:
                _fill(client, wanted, stream)
            except RetryableError:
                if _size(stream) == 0:
                    part.unlink()
                raise
            except (UserError, OSError) as error:
                part.unlink(missing_ok=True)
                if isinstance(error, OSError):
                    error.filename = error.filename or str(part)  # a failed write does not say where
                raise
            return cache.store(part, wanted.sha256)
        part.unlink()
        return found


@dataclass(frozen=True)
class Answer:
    """A file whose hash was not known before: the sha256 that came, and what a server says to tell it from the next."""

    sha256: str
    validators: dict[str, str]


def look(client: Client, cache: DownloadCache, url: str, name: str, seen: Mapping[str, str]) -> Answer | None:
    """Bring a file into the cache whose hash nobody knows yet; None where the server says that it is as it was.

    Args:
        client: asks.
        cache: takes the file by the hash that it turns out to have.
        url: its address.
        name: its name for people.
        seen: the validators of the last answer (`etag`, `last-modified`); empty: none.

    Raises:
        UserError: an HTTP status that stays. RetryableError: no connection or a failing server, after the retries.
    """
    asked = {"Accept-Encoding": "identity"}
    asked |= {_CONDITIONS[key]: value for key, value in seen.items() if key in _CONDITIONS}
    attempts = client.attempts()
    with tempfile.NamedTemporaryFile(dir=cache.folder, prefix=".look-", suffix=".tmp", delete=False) as stream:
        path = Path(stream.name)
        try:
            while True:
                try:
                    validators = _receive_whole(client, Wanted(url, "", name), asked, stream)
                    break
                except (httpx2.TransportError, httpx2.InvalidURL, httpx2.TooManyRedirects) as error:
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

    def __init__(self, text: str, retry_after: str | None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


def _receive_whole(
    client: Client, wanted: Wanted, asked: Mapping[str, str], stream: IO[bytes]
) -> dict[str, str] | None:
    """One request from the first byte on; gives the validators, or None for "not modified"."""
    with client.get_stream(wanted.url, headers=asked) as response:
        status = response.status_code
        if status == 304 and len(asked) > 1:
            return None
        if passing(status):
            raise _Passing(status_text(wanted.url, status), response.headers.get("Retry-After"))
        if status != 200:
            raise refused(wanted.url, status)
        stream.seek(0)
        stream.truncate()
        length = response.headers.get("Content-Length", "")
        with progress.bar(f"download {wanted.name}", int(length) if length.isdigit() else None) as bar:
            for chunk in response.iter_raw():
                stream.write(chunk)
                bar.update(len(chunk))
        return {key: response.headers[key] for key in _CONDITIONS if key in response.headers}


@contextmanager
def _locked(part: Path, name: str) -> Iterator[IO[bytes]]:
    """The partial file, open for appending, while no other process has it."""
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
    """Whether the open file is still the one at this path: who had it before us may have moved or removed it."""
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
            problem, retry_after = _receive(client, wanted, stream)
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.TooManyRedirects) as error:
            problem, retry_after = explain(error, wanted.url, client.settings), None
        if problem is not None:
            if _size(stream) > before:
                attempts.progressed()
            resumed = _size(stream) > 0
            attempts.failed(problem, retry_after)
            continue
        os.fsync(stream.fileno())
        actual = sha256_file(stream.name)
        if actual == wanted.sha256:
            return
        if not resumed:
            raise mismatch(wanted.sha256, actual, redact(wanted.url))
        # The first half may have come from another file than the second: once more, whole.
        stream.truncate(0)
        resumed = False


def _receive(client: Client, wanted: Wanted, stream: IO[bytes]) -> tuple[str | None, str | None]:
    """One request; gives (what failed, Retry-After) or (None, None) when the body came to its end."""
    url, start = wanted.url, _size(stream)
    asked = {"Accept-Encoding": "identity"}
    if start:
        asked["Range"] = f"bytes={start}-"
    with client.get_stream(url, headers=asked) as response:
        status = response.status_code
        if status == 416 and start:  # the partial file is as long as the whole, or longer
            stream.truncate(0)
            return status_text(url, status), None
        if passing(status):
            return status_text(url, status), response.headers.get("Retry-After")
        continued = status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if status != 200 and not continued:
            raise refused(url, status)
        if not continued:
            stream.truncate(0)
            start = 0
        length = response.headers.get("Content-Length", "")
        total = start + int(length) if length.isdigit() else None
        with progress.bar(f"download {wanted.name}", total) as bar:
            bar.update(start)
            for chunk in response.iter_raw():  # as it comes: a chunk size would hold bytes back, lost at a break
                _write_all(stream, chunk)
                bar.update(len(chunk))
    return None, None


def _write_all(stream: IO[bytes], chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:  # an unbuffered write may take a part only
        view = view[stream.write(view) :]
