"""The texts and tables of a run's page: its stages, graph, links, a proposal. Independent of Prefect."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import params
from lexmill.base import layout
from lexmill.base.progress import seconds_text
from lexmill.compute import execution
from lexmill.registry import lookup, package
from lexmill.report.results import rounded
from lexmill.runner.graph import Plan
from lexmill.runner.supervised import Outcome
from lexmill.tracking.links import base_url, compare_url, experiment_url, run_url
from lexmill.tracking.store import opened

if TYPE_CHECKING:
    from lexmill.registry.publish import Proposal

_REASONS = 4
_MARKS = {"ran": "✓", "restored": "✓", "unchanged": "·", "failed": "✗", "stopped": "✗", "not run": " "}


def slug(name: str) -> str:
    """Return a name as the key of an artifact: lowercase letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def stage_rows(plan: Plan, outcomes: Mapping[str, Outcome]) -> list[dict[str, Any]]:
    """Return a row for each stage that was to run, in order: how it ended, its seconds, why it ran."""
    rows = []
    for name, reasons in plan.reasons().items():
        outcome = outcomes.get(name)
        more = max(len(reasons) - _REASONS, 0)
        ran = outcome is not None and not (outcome.state == "stopped" and outcome.seconds == 0)
        rows.append(
            {
                "stage": name,
                "state": outcome.state if ran and outcome else "not run",
                "seconds": round(outcome.seconds, 1) if ran and outcome else None,
                "exit code": outcome.code if ran and outcome else None,
                "message": outcome.message if outcome else "",
                "why": "; ".join([*reasons[:_REASONS], *([f"{more} more"] if more else [])]),
            }
        )
    return rows


def stage_counts(plan: Plan, outcomes: Mapping[str, Outcome]) -> str:
    """Return the counts by state: `3 ran, 1 failed, 2 not run, 12 unchanged`."""
    counts = Counter(row["state"] for row in stage_rows(plan, outcomes))
    counts += Counter({"unchanged": plan.unchanged})
    return ", ".join(f"{count} {state}" for state, count in counts.items())


def graph_markdown(plan: Plan, outcomes: Mapping[str, Outcome]) -> str:
    """Return the graph as a text tree: each stage below the last one it needs, the others named after it."""
    names = [stage.name for stage in plan.stages]
    place = {name: number for number, name in enumerate(names)}
    below: dict[str, list[str]] = {name: [] for name in names}
    roots: list[str] = []
    others: dict[str, list[str]] = {}
    for stage in plan.stages:
        needs = sorted((need for need in stage.needs if need in place), key=place.__getitem__)
        (below[needs[-1]] if needs else roots).append(stage.name)
        others[stage.name] = needs[:-1]
    states = {row["stage"]: row for row in stage_rows(plan, outcomes)}
    lines: list[tuple[str, str]] = []

    def draw(name: str, before: str, branch: str, rest: str) -> None:
        row = states.get(name)
        state = "unchanged" if row is None else row["state"]
        took = "" if row is None or row["seconds"] is None else f" {seconds_text(row['seconds'])}"
        also = f"  (also after {', '.join(others[name])})" if others[name] else ""
        lines.append((f"{before}{branch}{name}", f"{_MARKS[state]} {state}{took}{also}"))
        for number, child in enumerate(below[name]):
            last = number == len(below[name]) - 1
            draw(child, before + rest, "└─ " if last else "├─ ", "   " if last else "│  ")

    for root in roots:
        draw(root, "", "", "")
    width = max((len(left) for left, _ in lines), default=0)
    text = "\n".join(f"{left.ljust(width)}  {right}" for left, right in lines)
    return f"```\n{text}\n```\n"


def decision_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the table of decisions for a page: metrics rounded, the difference with its interval in one cell."""
    shown = []
    for row in rows:
        metrics = {key: _short(row[key]) for key in ("challenger", "champion", "difference", "low", "high")}
        between = f"{metrics['difference']} [{metrics['low']}, {metrics['high']}]" if metrics["difference"] else ""
        shown.append(
            {
                "decided": row["decided"][:16].replace("T", " "),
                **{key: row[key] for key in ("model", "version", "against", "outcome", "metric")},
                **{key: metrics[key] for key in ("challenger", "champion")},
                "difference": between,
                "p": "" if row["p_value"] is None else f"{row['p_value']:.2g}",
                "level": "" if row["level"] is None else f"{row['level']:.2g}",
                "reason": row["reason"],
            }
        )
    return shown


def _short(value: Any) -> str:
    """Return a rounded metric; one that is not finite is a text already, a missing one is empty."""
    return "" if value is None else value if isinstance(value, str) else rounded(value)


def proposal_sentence(proposal: Proposal) -> str:
    """Return the question in one sentence."""
    return f"May version {proposal.version} of {proposal.name} replace version {proposal.champion_version} as champion?"


def proposal_markdown(proposal: Proposal) -> str:
    """Return the question with the metrics behind it."""
    found = proposal.decision.comparison
    parts = [proposal_sentence(proposal), proposal.decision.reason.rstrip(".") + "."]
    if found is not None:
        rows: Sequence[tuple[str, str]] = (
            ("metric", found.metric.replace("_", " ")),
            (f"version {proposal.version} (new)", rounded(found.challenger)),
            (f"version {proposal.champion_version} (champion)", rounded(found.champion)),
            ("difference", f"{rounded(found.difference)} [{rounded(found.low)}, {rounded(found.high)}]"),
            ("p", f"{found.p_value:.3g}"),
        )
        parts.append("\n".join(["| metric | value |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)]))
    return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class Link:
    """A page of MLflow: its short name, content and address."""

    name: str
    text: str
    url: str


def mlflow_links(root: Path) -> list[Link]:
    """Return links to the experiment, the comparison of the models' runs, and each run; none if nothing is published.

    Raises:
        RetryableError, UserError: the tracking store does not answer.
    """
    choices, settings = params.load(root / "params.yaml"), execution.load_execution(root)
    folders = {name: root / layout.package(name) for name in choices.models}
    packages = {name: package.read(folder) for name, folder in folders.items() if folder.is_dir()}
    if not packages or not settings.publish:
        return []
    with opened(settings.tracking_uri, root) as client:
        experiment = client.get_experiment_by_name(choices.experiment)
        found = {
            name: lookup.client_published(client, name, description["fingerprint"])
            for name, description in packages.items()
        }
    runs = {name: one.run_id for name, one in found.items() if one is not None and one.run_id}
    if experiment is None or not runs:
        return []
    base, number = base_url(settings.tracking_uri), experiment.experiment_id
    links = [Link("experiment", f"the runs of '{choices.experiment}' in MLflow", experiment_url(base, number))]
    if len(runs) > 1:
        links.append(Link("comparison", "all models side by side", compare_url(base, number, list(runs.values()))))
    return links + [
        Link(f"run-{name}", f"the run of {name}: curves, params, files", run_url(base, number, run))
        for name, run in runs.items()
    ]
