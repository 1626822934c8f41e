"""`lexmill publish`: every package becomes one MLflow run and one registered model version, once.

A package is known by its fingerprint, which tags the run and the version. So publishing again does nothing (without
even importing MLflow for a local store), a result that was restored from the cache or pulled is linked to what is
there, and a publish that was killed is finished by the next: a version that carries a decision is complete; one
without is decided; a run without a version is filled again and registered.

Order for one package: run, model files, version, decision file, champion alias, decision tag. Two publishes of one
workspace or one local store wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import kinds
from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.models.folder import WEIGHTS
from lexmill.params import Params
from lexmill.registry import decisions, lookup, package, record
from lexmill.registry.deciding import Approve, Case, Judge, Outcome, Proposal, held
from lexmill.registry.logged_model import log_model, register
from lexmill.registry.lookup import Found
from lexmill.registry.reproduce import recipe
from lexmill.tracking import points, store, view
from lexmill.tracking.database import locked
from lexmill.tracking.links import base_url, compare_url, experiment_url
from lexmill.tracking.store import sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["Approve", "Outcome", "Proposal", "publish_all"]


def publish_all(
    params: Params,
    execution: Execution,
    say: Callable[[str], None],
    root: str | Path = ".",
    *,
    approve: Approve | None = None,
) -> list[Outcome]:
    """Publish the package of every model of params.yaml that has one; those published before are left alone.

    Args:
        params: the choices: which models, the experiment's name, the rule of promotion.
        execution: `tracking_uri` is used.
        say: called with one line a model, and the addresses of the pages.
        root: the workspace.
        approve: called before the alias moves from a champion to a version that won; it may take hours, for nothing is
            locked meanwhile. False: the champion stays. None: no approval is needed.

    Raises:
        UserError: there is no package, or one was changed after it was made.
        RetryableError: the tracking server does not answer; what was sent stays and the next call sends the rest.
    """
    root, uri = Path(root), execution.tracking_uri
    folders = {name: root / layout.package(name) for name in params.models}
    packages = {name: package.read(folder) for name, folder in folders.items() if folder.is_dir()}
    if not packages:
        raise UserError("there is no package to publish; `lexmill run` makes them")
    for name in folders.keys() - packages.keys():
        say(f"{name}: no package yet; `lexmill run` makes it")
    if sqlite_path(uri, root) is not None and not decisions.interrupted(root):
        outcomes = {name: _already(uri, description, root) for name, description in packages.items()}
        if all(outcomes.values()):
            done = [outcome for outcome in outcomes.values() if outcome is not None]
            if not (root / decisions.PAGE).is_file():
                decisions.write_page(params, root)
            for outcome in done:
                say(outcome.sentence)
            return done
    judge = Judge(params, execution, root, say, approve)
    published: dict[str, Outcome] = {}
    asked: list[tuple[Case, Proposal]] = []
    with held(uri, root) as client:
        experiment_id = store.experiment_id(client, params.experiment, sqlite_path(uri, root))
        view.offer(client, experiment_id, kinds.metric_names())
        for name in packages:
            brought = _bring(client, folders[name], experiment_id, execution.threads, root)
            if isinstance(brought, Case):
                settled = judge.settle(client, brought)
                if isinstance(settled, Proposal):
                    say(f"{name}: version {settled.version} waits for approval: {settled.decision.reason}")
                    asked.append((brought, settled))
                    continue
                brought = settled
            published[name] = brought
            say(brought.sentence)
    for case, proposal in asked:
        outcome = judge.ask(case, proposal)
        published[outcome.name] = outcome
        say(outcome.sentence)
    decisions.write_page(params, root)
    base = base_url(uri)
    say(f"runs: {experiment_url(base, experiment_id)}")
    if len(published) > 1:
        say(f"side by side: {compare_url(base, experiment_id, [published[name].run_id for name in packages])}")
    return [published[name] for name in packages]


def _already(uri: str, description: dict[str, Any], root: Path) -> Outcome | None:
    """Return the outcome for a package that a local store holds complete, else None."""
    found = lookup.published(uri, description["name"], description["fingerprint"], root)
    if found is None or not found.decision:
        return None
    trained = _points_of(description, root)
    if trained is not None and not points.complete(trained):
        return None
    return _outcome_of(found, lookup.champion(uri, description["name"], root), description["kind"])


def _points_of(description: dict[str, Any], root: Path) -> Path | None:
    """Return the points of the training that made a package's weights, if they are in this workspace."""
    path = points.file_of("train", description["name"], root)
    made = points.weights_of(path)
    weights = root / layout.package(description["name"]) / package.MODEL / WEIGHTS
    return path if made is not None and made == storage.sha256_file(weights) else None


def _outcome_of(found: Found, champion: Found | None, kind: str) -> Outcome:
    return Outcome(
        name=found.name,
        kind=kind,
        version=found.version,
        created=False,
        champion=champion is not None and champion.version == found.version,
        reason=found.decision,
        run_id=found.run_id,
    )


def _bring(client: MlflowClient, folder: Path, experiment_id: str, threads: int, root: Path) -> Outcome | Case:
    """Register a package if needed; return its outcome if it was decided before, else the case to decide."""
    description = package.verify(folder)
    name, kind = description["name"], description["kind"]
    found = lookup.client_published(client, name, description["fingerprint"])
    trained = _points_of(description, root)
    # A package that is new to this store: the points may have gone to another one.
    if trained is not None and (found is None or not points.complete(trained)):
        with locked(points.lock_of(trained)):
            points.Delivery(client, experiment_id, trained, name, into=found.run_id if found else "").send()
    if found is not None and found.decision:
        return _outcome_of(found, lookup.client_champion(client, name), kind)
    if found is None:
        weights = storage.sha256_file(folder / package.MODEL / WEIGHTS)
        run = record.find_or_start(client, experiment_id, description, weights)
        made = recipe(description, run.info.run_id, threads, root)
        record.fill(client, run, folder, description, root)
        record.log_recipe(client, run.info.run_id, folder, made, root)
        model = log_model(client, run, folder, description, root)
        found = register(
            client, run, model, description, made.description((folder / "card.md").read_text(encoding="utf-8"))
        )
    return Case(folder, description, found)
