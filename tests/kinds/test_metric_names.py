"""The metrics that the page of an experiment shows."""

from __future__ import annotations

import json

from lexmill import kinds
from lexmill.tracking import view


def test_the_page_has_a_column_for_each_metric_of_each_kind() -> None:
    columns = json.loads(view.state(kinds.metric_names()))["selectedColumns"]
    wanted = {f"metrics.`test/{metric.name}`" for kind in kinds.every() for metric in kind.metrics}
    assert {"metrics.`test/f1`", "metrics.`test/entity_f1`", "metrics.`test/bleu`"} <= wanted
    assert sorted(columns) == sorted(wanted | {"metrics.`valid_loss`"})
