"""The default view of an experiment's page: models, the newest first, with their test metrics.

By default MLflow shows all runs and folds those with a parent, which hides the models of a pipeline run. Only the order
by time folds, so runs are sorted by source, which all models share, and then by time.

MLflow reads a shared view from a tag of the experiment, by the key in the address. It must hold the full state of the
page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lexmill.tracking.finding import MODEL, SOURCE
from lexmill.tracking.links import VIEW

if TYPE_CHECKING:
    from mlflow import MlflowClient

TAG = f"mlflow.sharedViewState.{VIEW}"


def state(metrics: Sequence[str]) -> str:
    """Return the state of the page as the tag's value, with these metrics of the test split; the page shows those that
    a run has.
    """
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
        "selectedColumns": [f"metrics.`test/{name}`" for name in metrics]
        + ["metrics.`valid_loss`"],  # the last is a search's
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


def offer(client: MlflowClient, experiment_id: str, metrics: Sequence[str]) -> None:
    """Give the experiment the view of these metrics if it lacks it."""
    wanted = state(metrics)
    if client.get_experiment(experiment_id).tags.get(TAG) != wanted:
        client.set_experiment_tag(experiment_id, TAG, wanted)
