"""Download a registered model's package and check it."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.params.corpora import RegisteredSource
from lexmill.registry import package
from lexmill.registry.lookup import Found
from lexmill.tracking.store import opened


def champion_package(champion: Found, uri: str, root: Path) -> Path:
    """Return the champion's package on this machine.

    The workspace's own package if it is the same model, else a copy under .lexmill/, downloaded once.

    Raises:
        UserError: the registry holds another model than its tag says.
        RetryableError: the tracking server does not answer.
    """
    copy = root / ".lexmill" / "champions" / champion.name
    for folder in (root / layout.package(champion.name), copy):
        if (folder / package.DESCRIPTION).is_file() and package.read(folder)["fingerprint"] == champion.fingerprint:
            return folder
    with storage.new_folder(copy) as folder:
        if bring(uri, champion.name, champion.version, folder, root)["fingerprint"] != champion.fingerprint:
            raise UserError(f"version {champion.version} of '{champion.name}' holds another model than its tag says")
    return copy


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
            client.get_model_version(name, version)
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            raise UserError(f"the registry {uri} has no version {version} of a model '{name}'") from None
        download_artifacts(artifact_uri=f"models:/{name}/{version}/data/{name}", dst_path=str(folder))
    # MLflow downloads it as <folder>/.../<name>/: move it up.
    found = next((path.parent for path in folder.rglob(package.DESCRIPTION)), None)
    if found is None:
        raise UserError(f"the registered version of '{name}' holds no package of ours")
    if found != folder:
        for path in list(found.iterdir()):
            path.rename(folder / path.name)
    return package.verify(folder)


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
