"""The DAG as inline SVG: one box a stage, its item's name first."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from lexmill.base.cutting import cut_middle
from lexmill.report.graph import Stage
from lexmill.report.graph_layout import BOX_HEIGHT, BOX_WIDTH, Layout, Node, Waypoint, lay_out
from lexmill.report.svg import coordinate, drawing, element, text

_MARGIN = 2.0
# A stage's role, the colour of its box, by the start of its name.
_ROLES = (
    ("baseline", "baseline"),
    ("evaluate", "evaluate"),
    ("train", "train"),
    ("register", "register"),
    ("report", "register"),
)


def draw(found: Sequence[Stage]) -> Markup | None:
    """Return the picture; None if there are no stages."""
    layout = lay_out(found)
    if not layout.stages:
        return None
    edges = [_edge(layout, left, right) for left, right in layout.edges]
    passes = [
        element("path", d=f"M{coordinate(layout.x[node])} {coordinate(y)}h{coordinate(BOX_WIDTH)}", class_="edge")
        for node, y in layout.y.items()
        if isinstance(node, Waypoint)
    ]
    boxes = [_box(layout, stage) for stage in layout.stages.values()]
    label = f"The pipeline's {len(boxes)} stages and what each needs, from left to right"
    inner = element("g", *edges, *passes, *boxes, transform=f"translate({_MARGIN:g} {_MARGIN:g})")
    return drawing(layout.width + 2 * _MARGIN, layout.height + 2 * _MARGIN, label, [inner], "dag")


def role(kind: str) -> str:
    """Return a stage's role: data, train, baseline, evaluate or register."""
    return next((name for start, name in _ROLES if kind.startswith(start)), "data")


def _box(layout: Layout, stage: Stage) -> Markup:
    x, y = layout.x[stage.address], layout.y[stage.address] - BOX_HEIGHT / 2
    kind = stage.kind.replace("_", " ")
    first, second = (stage.item, kind) if stage.item else (kind, "")
    needs = f" Needs {', '.join(stage.needs)}." if stage.needs else ""
    lines = [text(x + 10, y + (17 if second else 24), cut_middle(first, 19), "box-name")]
    if second:
        lines.append(text(x + 10, y + 31, cut_middle(second, 24), "box-kind"))
    return element(
        "g",
        element("title", f"{stage.address}. {stage.description}{needs}"),
        element("rect", x=x, y=y, width=BOX_WIDTH, height=BOX_HEIGHT, rx=5, class_="box"),
        element("rect", x=x, y=y + 5, width=3, height=BOX_HEIGHT - 10, rx=1.5, class_="box-role"),
        *lines,
        class_=f"stage {role(stage.kind)}",
    )


def _edge(layout: Layout, left: Node, right: Node) -> Markup:
    x1, y1, x2, y2 = layout.x[left] + BOX_WIDTH, layout.y[left], layout.x[right], layout.y[right]
    bend = (x2 - x1) * 0.55
    a, b, c, d, e, f = map(coordinate, (x1, y1, x1 + bend, x2 - bend, x2, y2))
    return element("path", d=f"M{a} {b}C{c} {b} {d} {f} {e} {f}", class_="edge")
