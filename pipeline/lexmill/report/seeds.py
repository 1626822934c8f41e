"""Models that were trained with several seeds (`lexmill seeds`): one row each, for the page and the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lexmill import kinds
from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.base.yaml_file import read_yaml
from lexmill.params import Params
from lexmill.report import read
from lexmill.report.results import rounded

STAGE = "seeds"  # its folder of metrics/, no stage's
HEADS = ("model", "corpus", "metric", "mean ± deviation", "least to largest", "seeds")


@dataclass(frozen=True)
class Entry:
    """One model.

    Attributes:
        rows: of each metric of its kind the cells of `HEADS`.
        notes: failed trainings, and whether its settings have changed since.
    """

    model: str
    rows: list[tuple[str, ...]]
    notes: list[str]


def collect(choices: Params, root: Path) -> list[Entry]:
    """Return the entries of the models of params.yaml, in its order.

    Raises:
        UserError: a file is broken.
    """
    return [entry for name in choices.models if (entry := _entry(choices, name, root)) is not None]


def _entry(choices: Params, name: str, root: Path) -> Entry | None:
    path = root / layout.metrics(STAGE, name)
    found = read.json_object(path)
    if found is None:
        return None
    try:
        rows: list[tuple[str, ...]] = []
        for metric in kinds.find(choices.models[name].kind).metrics:
            if (one := found["test"].get(metric.name)) is None:
                continue
            value = f"{rounded(one['mean'])} ± {rounded(one['deviation'])}"
            ends = f"{rounded(one['least'])} to {rounded(one['largest'])}"
            arrow = "↑" if metric.higher_is_better else "↓"
            rows.append((name, found["corpus"], f"{metric.words} {arrow}", value, ends, str(len(found["seeds"]))))
        notes = [f"{name}: seed {seed} failed: {why}" for seed, why in found["failed"].items()]
        present = storage.fingerprint(read_yaml(root / "params.yaml")["models"][name])
        if present != found["of"]:
            notes.append(f"{name}: its settings have changed since; `lexmill seeds {name}` trains it anew")
    except (AttributeError, KeyError, TypeError):
        raise UserError(f"not what `lexmill seeds` writes; `lexmill seeds {name}` makes it anew", path) from None
    return Entry(name, rows, notes)


def markdown(entries: Sequence[Entry]) -> str:
    """Return the entries as a table in Markdown, with their notes below."""
    lines = [HEADS, ("---",) * len(HEADS), *(row for entry in entries for row in entry.rows)]
    notes = [f"* {note}" for entry in entries for note in entry.notes]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), *([""] if notes else []), *notes]) + "\n"
