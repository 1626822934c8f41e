"""How an experiment's page opens: with the models, the newest first, and their test figures beside them.

MLflow alone shows names and times of all runs, and folds what has a parent: of a pipeline's run the models could not be
seen. Only the order by time folds. Here it is by the source, which all models share, and then by time.

MLflow's page reads a shared view from a tag of the experiment, which an address asks for by its key. It holds the state
of the page in full: what is left out would be undefined there. Of an address without the key it takes nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lexmill.tracking.finding import MODEL, SOURCE
from lexmill.tracking.links import VIEW

if TYPE_CHECKING:
    from mlflow import MlflowClient

FIGURES = ("test/bits_per_byte", "test/perplexity", "test/accuracy", "test/macro_f1", "test/bleu", "test/chrf")
TAG = f"mlflow.sharedViewState.{VIEW}"


def state() -> str:
    """The page as it opens, as the tag's value."""
    searched: dict[str, Any] = {
        "searchFilter": f"tags.`{MODEL}` != ''",
        "orderByKey": f"tags.`{SOURCE}`",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "datasetsFilter": [],
        "modelVersionFilter": "All Runs",
    }
    shown = {
        "selectedColumns": [f"metrics.`{name}`" for name in (*FIGURES, "valid_loss")],  # the last is a search's
        "columnOrder": [],
        "columnWidths": {},
        "runsExpanded": {},
        "runsPinned": [],
        "runsHidden": [],
        "runsVisibilityMap": {},
        "runsHiddenMode": "FIRST_10_RUNS",
        "viewMaximized": False,
        "runListHidden": False,
        "isAccordionReordered": False,
        "useGroupedValuesInCharts": True,
        "hideEmptyCharts": True,
        "groupBy": None,
        "groupsExpanded": {},
        "autoRefreshEnabled": True,
        "globalLineChartConfig": {"xAxisKey": "step", "lineSmoothness": 0, "selectedXAxisMetricKey": ""},
    }
    return json.dumps(searched | shown)


def offer(client: MlflowClient, experiment_id: str) -> None:
    """See that the experiment has the view."""
    if client.get_experiment(experiment_id).tags.get(TAG) != state():
        client.set_experiment_tag(experiment_id, TAG, state())
