"""Files behind http(s) addresses: as they are, or members of archives."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from lexmill.base.errors import UserError
from lexmill.corpora.fetching.archives import extract
from lexmill.corpora.fetching.connection import Client, pip_settings, redact
from lexmill.corpora.fetching.downloads import DownloadCache, Wanted, check_hash_text, download
from lexmill.corpora.fetching.source_folder import SourceFolder
from lexmill.params.corpora import UrlSource


def fetch_urls(source: UrlSource, workspace: Path, target: SourceFolder) -> None:
    """Bring the files, each checked against its hash.

    A file is named by the last part of its address; where two would have one name, or members are taken from several
    archives, each address has a folder of its own: 0/, 1/, ...

    Raises:
        UserError: an address that is none, 404 and the like, other bytes than the sha256 says.
        RetryableError: no connection or a failing server, after retries; the next fetch goes on where this one stopped.
    """
    if not source.urls:
        raise UserError("urls: empty; give at least one address")
    hashes = [check_hash_text(sha256) for sha256 in source.sha256]
    names = [_name(url) for url in source.urls]
    apart = len(set(names)) < len(names) or (bool(source.members) and len(names) > 1)
    cache = DownloadCache(workspace)
    client = Client(pip_settings())
    try:
        paths = [
            download(client, cache, Wanted(url, sha256, name))
            for url, sha256, name in zip(source.urls, hashes, names, strict=True)
        ]
    finally:
        client.close()
    for i, (path, name) in enumerate(zip(paths, names, strict=True)):
        prefix = f"{i}/" if apart else ""
        if source.members:
            try:
                extract(path, source.members, target, prefix=prefix)
            except UserError as error:
                raise UserError(f"{redact(source.urls[i])}: {error}") from None
        else:
            with open(path, "rb") as stream:
                target.add(prefix + name, stream)


def _name(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError as error:
        raise UserError(f"urls: one is no address: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise UserError(
            f"urls: {redact(url)!r} is no http(s) address; for a file of this machine use source kind `file`"
        )
    name = unquote(parts.path).rstrip("/").rpartition("/")[2]
    return name or "index"
