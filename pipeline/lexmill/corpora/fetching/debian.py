"""Debian packages: from apt's own sources with `apt-get download`, or from a flat repository.

`LEXMILL_DEBIAN_MIRROR` is the address of a flat repository (a folder with `Packages` or `Packages.gz` and the files
that it lists), used instead of apt. The package is not installed and its scripts are not run.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from lexmill.base.budgets import MAX_INDEX_BYTES, MIB
from lexmill.base.errors import RetryableError, UserError
from lexmill.base.outside import parsing
from lexmill.base.storage import sha256_file
from lexmill.corpora.fetching.connection import Client, lines, pip_settings, refused
from lexmill.corpora.fetching.downloads import DownloadCache, Wanted, download, mismatch
from lexmill.params.corpora import PackageSource

MIRROR = "LEXMILL_DEBIAN_MIRROR"


def debian_package(source: PackageSource, sha256: str, cache: DownloadCache) -> Path:
    """Return the .deb in the cache."""
    if mirror := os.environ.get(MIRROR):
        return _from_mirror(mirror.rstrip("/"), source, sha256, cache)
    return _from_apt(source, sha256, cache)


# ---------------------------------------------------------------- a flat repository


def _from_mirror(mirror: str, source: PackageSource, sha256: str, cache: DownloadCache) -> Path:
    with closing(Client(pip_settings())) as client:
        versions = {one.get("Version", ""): one.get("Filename", "") for one in mirrored(client, mirror, source.name)}
        if not versions.get(source.version):
            known = ", ".join(sorted(versions)) or "none"
            raise UserError(f"{MIRROR} has no version {source.version} (it has: {known}); correct name or version")
        address = f"{mirror}/{quote(versions[source.version].removeprefix('./'))}"
        return download(client, cache, Wanted(address, sha256, source.name))


def mirrored(client: Client, mirror: str, name: str) -> list[dict[str, str]]:
    """The entries of a package's versions in a flat repository."""
    return [stanza for stanza in stanzas(_packages_index(client, mirror)) if stanza.get("Package") == name]


def _packages_index(client: Client, mirror: str) -> str:
    response = client.get(f"{mirror}/Packages")
    if response.status_code == 200:
        return response.content.decode("utf-8", "replace")
    response = client.get(f"{mirror}/Packages.gz")
    if response.status_code != 200:
        raise refused(f"{mirror}/Packages", response.status_code)
    with parsing(f"{MIRROR}: Packages.gz is damaged"), gzip.open(io.BytesIO(response.content)) as stream:
        data = stream.read(MAX_INDEX_BYTES + 1)
    if len(data) > MAX_INDEX_BYTES:
        raise UserError(f"{MIRROR}: Packages.gz unpacks to more than {MAX_INDEX_BYTES // MIB} MiB")
    return data.decode("utf-8", "replace")


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """The paragraphs of a `Packages` file (deb-control(5)), first lines of fields only."""
    stanza: dict[str, str] = {}
    for line in [*lines(text), ""]:
        if not line.strip():
            if stanza:
                yield stanza
            stanza = {}
        elif not line[0].isspace():
            key, _, value = line.partition(":")
            stanza[key] = value.strip()


# ---------------------------------------------------------------- apt


def apt(*command: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of apt's programs in English; raise `UserError` without apt."""
    if shutil.which("apt-get") is None:
        raise UserError(f"no apt-get here; set {MIRROR} to the address of a flat Debian repository with the package")
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def _from_apt(source: PackageSource, sha256: str, cache: DownloadCache) -> Path:
    with tempfile.TemporaryDirectory(dir=cache.folder, prefix=".apt-") as name:
        folder = Path(name)
        wanted = f"{source.name}={source.version}"
        done = apt("apt-get", "-q", "-o", "Acquire::Retries=3", "download", wanted, folder=folder)
        files = sorted(folder.glob("*.deb"))
        if done.returncode != 0 or len(files) != 1:
            raise apt_error(done.stderr, source)
        actual = sha256_file(files[0])
        if actual != sha256:
            raise mismatch(sha256, actual, files[0].name)
        whole = cache.folder / f".{sha256}.{os.getpid()}.deb"
        os.replace(files[0], whole)
        return cache.store(whole, sha256)


def apt_error(said: str, source: PackageSource) -> UserError | RetryableError:
    """Turn apt's output into an error."""
    errors = (line[2:].strip() for line in said.splitlines() if line.startswith("E:"))
    reason = next(errors, "apt-get download gave no file")
    if "No space left" in said:
        return RetryableError(f"the disk is full: {reason}; make room and run again")
    unknown = ("Unable to locate", "was not found", "No packages found", "no installation candidate")
    if any(words in said for words in unknown):
        return UserError(
            f"apt does not know it ({reason}); `apt-get update` renews apt's lists, `apt-cache policy {source.name}`"
            " shows the available versions"
        )
    return RetryableError(f"apt could not fetch it ({reason}); is the network there? run it again later")
