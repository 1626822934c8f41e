"""Publish the experiments of `dvc exp run`: each of their models becomes an MLflow run, once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lexmill import params
from lexmill.base import storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.workspace import HOME
from lexmill.compute.execution import Execution
from lexmill.runner.experiments import experiments, taken_out

_SENT = HOME / "experiments.json"


def publish_experiments(settings: Execution, say: Callable[[str], None], root: Path) -> None:
    """Send new experiments; report and skip one whose params this version cannot read.

    Raises:
        RetryableError, UserError: the store fails or refuses.
    """
    mark = root / _SENT
    sent: dict[str, str] = storage.read_json(mark) if mark.is_file() else {}
    new = [one for one in experiments(root) if sent.get(one.name) != one.commit]
    if not new:
        return
    from lexmill.tracking.store import opened

    with opened(settings.tracking_uri, root) as client:
        for one in new:
            try:
                with taken_out(root, one.commit, ["params.yaml"]) as folder:
                    chosen = params.load(folder / "params.yaml")
            except (UserError, UserErrors) as error:
                say(f"experiment {one.name}: not published: {error}")
                continue
            from lexmill.registry.experiments import paths, send_experiment

            with taken_out(root, one.commit, paths(chosen)) as folder:
                runs = send_experiment(
                    client,
                    settings.tracking_uri,
                    root,
                    name=one.name,
                    commit=one.commit,
                    baseline=one.baseline,
                    folder=folder,
                    params=chosen,
                )
            sent[one.name] = one.commit
            storage.write_json(mark, sent)
            say(f"experiment {one.name}: {len(runs)} models in MLflow")
