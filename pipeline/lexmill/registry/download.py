"""Download a registered model's package and check it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.params.corpora import RegisteredSource
from lexmill.registry import package
from lexmill.registry.lookup import Found
from lexmill.tracking.store import opened

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion


def registered_package(version: Found, uri: str, root: Path) -> Path:
    """Return the package of a registered version on this machine, its contents checked.

    The workspace's own package if it is the same model, else a copy under .lexmill/, downloaded once.

    Raises:
        UserError: the version is not lexmill's, or the registry holds another model than its tag says.
        RetryableError: the tracking server does not answer.
    """
    if not version.fingerprint:
        raise _foreign(version.name, version.version)
    copy = root / ".lexmill" / "champions" / version.name
    for folder in (root / layout.package(version.name), copy):
        if _holds(folder, version.fingerprint):
            return folder
    with storage.new_folder(copy) as folder:
        if bring(uri, version.name, version.version, folder, root)["fingerprint"] != version.fingerprint:
            raise UserError(f"version {version.version} of '{version.name}' holds another model than its tag says")
    return copy


def _foreign(name: str, version: str) -> UserError:
    return UserError(f"version {version} of '{name}' holds no package of lexmill, and nothing else is loaded")


def _holds(folder: Path, fingerprint: str) -> bool:
    """Return whether a folder holds the package of this fingerprint, undamaged."""
    try:
        return package.verify(folder)["fingerprint"] == fingerprint
    except (UserError, OSError):
        return False


def bring(uri: str, name: str, version: str, folder: Path, root: str | Path = ".") -> dict[str, Any]:
    """Download the package of a registered version into an empty folder; return its description.

    Raises:
        UserError: there is no such version, it holds no package of ours, or one that was changed.
        RetryableError: the tracking server does not answer.
    """
    with opened(uri, root) as client:
        from mlflow.artifacts import download_artifacts
        from mlflow.exceptions import MlflowException

        try:
            there = client.get_model_version(name, version)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            raise UserError(f"the registry {uri} has no version {version} of a model '{name}'") from None
        try:
            download_artifacts(artifact_uri=f"models:/{name}/{version}/data/{name}", dst_path=str(folder))
        except (MlflowException, OSError) as error:
            if isinstance(error, MlflowException) and error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            if (place := _missing(client, there)) is not None:
                raise UserError(
                    f"the files of version {version} of '{name}' are gone from {place}; bring them back, or"
                    " `lexmill run` makes a new version"
                ) from None
            raise _foreign(name, version) from None
    # MLflow downloads it as <folder>/.../<name>/: move it up.
    found = next((path.parent for path in folder.rglob(package.DESCRIPTION)), None)
    if found is None:
        raise _foreign(name, version)
    if found != folder:
        for path in list(found.iterdir()):
            path.rename(folder / path.name)
    return package.verify(folder)


def _missing(client: MlflowClient, version: ModelVersion) -> Path | None:
    """Return the local folder that a version's files should be in, if it is not there."""
    scheme, _, model_id = str(version.source).partition(":/")
    if scheme != "models" or not model_id.startswith("m-"):
        return None
    address = urlsplit(client.get_logged_model(model_id).artifact_location)
    place = Path(unquote(address.path))
    return place if address.scheme in ("", "file") and not place.exists() else None


def registered_model(source: RegisteredSource, uri: str, target: Path, root: str | Path = ".") -> dict[str, Any]:
    """Replace `target` by the model folder of a registered model, with its card and a manifest.

    Returns:
        The manifest: {"files": [{"path", "bytes", "sha256"}], "source": {...}}.

    Raises:
        UserError: as `bring`; also if its fingerprint is not `source.sha256`.
    """
    name = source.model
    with storage.new_folder(target) as folder:
        came = folder / ".came"
        came.mkdir()
        description = bring(uri, name, source.version, came, root)
        if description["fingerprint"] != source.sha256.lower():
            raise UserError(
                f"version {source.version} of '{name}' has the fingerprint {description['fingerprint']}, the params say"
                f" {source.sha256}; correct `sha256` if that version is the one you mean"
            )
        for path in list((came / package.MODEL).iterdir()):
            path.rename(folder / path.name)
        (came / "card.md").rename(folder / "README.md")
        shutil.rmtree(came)
        files = [
            {
                "path": path.relative_to(folder).as_posix(),
                "bytes": path.stat().st_size,
                "sha256": storage.sha256_file(path),
            }
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        ]
        manifest = {"files": files, "source": dataclasses.asdict(source)}
        storage.write_json(folder / "manifest.json", manifest)
    return manifest
