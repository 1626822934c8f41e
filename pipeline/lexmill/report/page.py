"""Render the page from its parts with an escaping Jinja template; the page loads nothing from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from lexmill import params
from lexmill.base import languages
from lexmill.base.cutting import beginning
from lexmill.base.errors import UserError
from lexmill.base.yaml_file import read_yaml
from lexmill.report import comparison, data_parts, model_parts, results, seeds, verdicts
from lexmill.report.comparison_charts import COLOURS
from lexmill.report.differences import marked
from lexmill.report.graph import stages
from lexmill.report.graph_drawing import draw
from lexmill.report.results import rounded
from lexmill.report.svg import clean


def render(choices: params.Params, root: Path) -> str:
    """Return the whole page as HTML; the same files give the same text.

    Args:
        choices: params.yaml.
        root: the workspace: params.yaml, sources.lock.yaml, dvc.yaml, metrics/, reports/, manifests of corpora and
            tokenizers are read; missing files are left out.

    Raises:
        UserError: a file is broken.
    """
    rows = results.collect(choices, root)
    models = model_parts.collect(choices, rows, root)
    environment = _environment()
    return environment.get_template("page.html.j2").render(
        style=Markup(environment.get_template("style.css").render() + COLOURS),
        experiment=choices.experiment,
        summary=verdicts.summary({model.name: model.verdict for model in models}),
        models=models,
        corpora_used=len({model.corpus for model in models}),
        rows=[(row, verdicts.of_row(row)) for row in rows if row.split == "test"],
        stale_note=results.stale_note(rows),
        dag=_dag(root),
        comparison=comparison.collect(root),
        seeds=seeds.collect(choices, root),
        seed_heads=seeds.HEADS,
        corpora=data_parts.corpora(choices, root),
        translations=data_parts.translations(choices, root),
        tokenizers=data_parts.tokenizers(choices, root),
        evaluation=choices.evaluation,
    )


def render_decisions(rows: Sequence[Mapping[str, Any]], choices: params.Params) -> str:
    """Return the page of all decisions about champions as HTML.

    Args:
        rows: the newest first, with the keys of `lexmill.registry.decisions.rows`.
        choices: params.yaml.
    """
    made = {row["model"]: row["version"] for row in reversed(rows) if row["outcome"] != "stays"}
    now = ", ".join(f"{name} version {version}" for name, version in sorted(made.items()))
    environment = _environment()
    return environment.get_template("decisions.html.j2").render(
        style=Markup(environment.get_template("style.css").render()),
        experiment=choices.experiment,
        summary=f"Champions: {now}." if made else "No champion yet.",
        gain=choices.promotion.gain,
        confidence=choices.evaluation.confidence,
        rows=rows,
    )


LOADS = (  # by name, see lexmill.base.code
    "lexmill.kinds.{kind}",
    "lexmill/kinds/{kind}/section.html.j2",
    "lexmill/report/macros.html.j2",
)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader("lexmill.report", ""), PackageLoader("lexmill.kinds", "")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_cleaned,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=lambda value: rounded(value) if isinstance(value, int | float) else "–",
        small=lambda value: f"{value:.2g}" if isinstance(value, int | float) else "–",
        count=lambda value: "–" if value is None else f"{value:,.0f}",
        rounded=lambda value: "–" if value is None else rounded(value),
        percent=percent,
        language=languages.shown,
        plain=verdicts.plain,
        cut=cut,
        marked=marked,
        best_first=lambda baselines, row: sorted(
            baselines.items(), key=lambda entry: entry[1], reverse=row.higher_is_better
        ),
    )
    return environment


def _cleaned(value: Any) -> Any:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def percent(share: float) -> str:
    """Return a share in percent; none is rounded to 0% or 100%."""
    if 0 < share < 0.001:
        return "<0.1%"
    return ">99.9%" if 0.999 < share < 1 else f"{100 * share:.1f}%"


def cut(text: Any, most: int = 1200) -> str:
    """Cut a text to at most `most` code points."""
    words = str(text)
    return words if len(words) <= most else f"{beginning(words, most).rstrip()} …"


_CODE_STAGE = "code"  # not drawn: all others depend on it


def _dag(root: Path) -> Markup | None:
    try:
        found = stages(read_yaml(root / "dvc.yaml"), read_yaml(root / "params.yaml"))
        return draw([stage for stage in found if stage.kind != _CODE_STAGE])
    except UserError:
        if (root / "dvc.yaml").is_file() and (root / "params.yaml").is_file():
            raise
        return None  # a project without them still gets a page
