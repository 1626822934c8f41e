"""Files at http(s) addresses: as they are, or members of archives."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lexmill.base.addresses import redact
from lexmill.base.errors import UserError
from lexmill.corpora.fetching.archives import extract
from lexmill.corpora.fetching.connection import Client, pip_settings
from lexmill.corpora.fetching.downloads import DownloadCache, Wanted, check_hash_text, download
from lexmill.corpora.fetching.source_folder import SourceFolder
from lexmill.params.corpora import UrlSource


def fetch_urls(source: UrlSource, workspace: Path, target: SourceFolder) -> None:
    """Fetch the files, each checked against its hash.

    The last part of its address names a file; if two names clash, or members come from several archives, each address
    has its own folder: 0/, 1/, ...

    Raises:
        UserError: an invalid address, 404 and the like, another sha256.
        RetryableError: no connection or a failing server, after retries; the next fetch resumes this one.
    """
    if not source.urls:
        raise UserError("urls: empty; give at least one address")
    hashes = [check_hash_text(sha256) for sha256 in source.sha256]
    names = [_name(url) for url in source.urls]
    apart = len(set(names)) < len(names) or (bool(source.members) and len(names) > 1)
    cache = DownloadCache(workspace)
    with closing(Client(pip_settings())) as client:
        wanted = [Wanted(*one) for one in zip(source.urls, hashes, names, strict=True)]
        paths = [download(client, cache, one) for one in wanted]
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
        raise UserError(f"urls: not an address: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise UserError(f"urls: {redact(url)!r} is not an http(s) address; for a local file use source kind `file`")
    name = unquote(parts.path).rstrip("/").rpartition("/")[2]
    return name or "index"
