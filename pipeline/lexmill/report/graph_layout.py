"""Where the boxes of the DAG stand: a layered drawing (Sugiyama et al. 1981), columns by depth.

Stages that share nothing but what gathers them all (the report) stand in bands one below the other. An edge that
crosses columns gets a waypoint in each, so that it passes no box; edges to one gatherer share theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lexmill.report.graph import Stage, depths, direct_needs

BOX_WIDTH, BOX_HEIGHT = 136.0, 40.0
COLUMN_GAP, ROW_GAP, BAND_GAP = 24.0, 12.0, 26.0
_WAYPOINT_HEIGHT = 8.0
_SWEEPS = 8


@dataclass(frozen=True)
class Waypoint:
    """Where an edge crosses a column: edges of one owner share it."""

    owner: str
    column: int


Node = str | Waypoint  # a stage's address, or a waypoint


@dataclass
class Layout:
    """Left and middle of each box and waypoint; edges between them, each from left to right."""

    stages: dict[str, Stage]
    x: dict[Node, float] = field(default_factory=dict)
    y: dict[Node, float] = field(default_factory=dict)
    edges: list[tuple[Node, Node]] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


def lay_out(found: Sequence[Stage]) -> Layout:
    """Place the stages."""
    column = depths(found)
    stages = {stage.address: stage for stage in found if stage.address in column}
    needs = direct_needs(found)
    gatherers = _gatherers(stages, needs)
    last = max(column.values(), default=0)
    column |= dict.fromkeys(gatherers, last)
    layout = Layout(stages)
    top = 0.0
    for band in _bands([name for name in stages if name not in gatherers], needs):
        layers, edges = _layered(band, gatherers, needs, column)
        y = _rows(layers, edges)
        shift = top - min(y[node] - _height(node) / 2 for node in y)
        layout.y |= {node: place + shift for node, place in y.items()}
        layout.edges += edges
        top = max(layout.y[node] + _height(node) / 2 for node in y) + BAND_GAP
    layout.height = max(top - BAND_GAP, 0.0)
    _place_gatherers(gatherers, layout)
    for node in layout.y:
        layout.x[node] = (node.column if isinstance(node, Waypoint) else column[node]) * (BOX_WIDTH + COLUMN_GAP)
    layout.width = max((x + BOX_WIDTH for x in layout.x.values()), default=0.0)
    return layout


def _gatherers(stages: Mapping[str, Stage], needs: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Stages without items that need several and that none needs."""
    needed = {name for own in needs.values() for name in own}
    return [name for name, stage in stages.items() if not stage.item and name not in needed and len(needs[name]) > 1]


def _bands(names: Sequence[str], needs: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """The connected parts, each in the given order, the parts by their first stage."""
    part = {name: name for name in names}

    def root(name: str) -> str:
        while part[name] != name:
            name = part[name]
        return name

    order = {name: i for i, name in enumerate(names)}
    for name in names:
        for before in needs[name]:
            if before in part:
                first, second = sorted((root(name), root(before)), key=order.__getitem__)
                part[second] = first
    bands: dict[str, list[str]] = {}
    for name in names:
        bands.setdefault(root(name), []).append(name)
    return list(bands.values())


def _layered(
    band: Sequence[str], gatherers: Sequence[str], needs: Mapping[str, tuple[str, ...]], column: Mapping[str, int]
) -> tuple[list[list[Node]], list[tuple[Node, Node]]]:
    """The band's nodes by column, waypoints included, and its edges from one column to the next."""
    inside = set(band)
    nodes: dict[Node, None] = dict.fromkeys(band)
    edges: dict[tuple[Node, Node], None] = {}
    for name in [*band, *gatherers]:
        for before in needs[name]:
            if before not in inside:
                continue
            here: Node = before
            for between in range(column[before] + 1, column[name]):
                point = Waypoint(name if name in gatherers else before, between)
                nodes[point] = None
                edges[here, point] = None
                here = point
            edges[here, name] = None
    layers: list[list[Node]] = [[] for _ in range(max(column.values(), default=0) + 1)]
    for node in nodes:
        layers[node.column if isinstance(node, Waypoint) else column[node]].append(node)
    return layers, list(edges)


def _rows(layers: list[list[Node]], edges: Sequence[tuple[Node, Node]]) -> dict[Node, float]:
    """The middle of each node: the order in a column by its neighbours, then as near to them as the boxes allow."""
    present = {node for layer in layers for node in layer}
    beside: dict[Node, list[Node]] = {node: [] for node in present}
    for left, right in edges:
        if left in present and right in present:
            beside[left].append(right)
            beside[right].append(left)
    y = {node: i * (BOX_HEIGHT + ROW_GAP) for layer in layers for i, node in enumerate(layer)}
    for _ in range(_SWEEPS):
        for layer in (*layers, *reversed(layers)):
            wanted = {node: _mean([y[other] for other in beside[node]], y[node]) for node in layer}
            layer.sort(key=lambda node: wanted[node])  # stable: equals keep their order
            y |= _spaced(layer, wanted)
    return y


def _spaced(layer: Sequence[Node], wanted: Mapping[Node, float]) -> dict[Node, float]:
    """The places nearest to the wanted ones (least squares) at which no two overlap: isotonic regression."""
    offsets: list[float] = []
    at = 0.0
    for i, node in enumerate(layer):
        if i:
            at += (_height(layer[i - 1]) + _height(node)) / 2 + ROW_GAP
        offsets.append(at)
    groups: list[tuple[float, int]] = []  # mean, size
    for node, offset in zip(layer, offsets, strict=True):
        mean, size = wanted[node] - offset, 1
        while groups and groups[-1][0] > mean:
            other, others = groups.pop()
            mean, size = (mean * size + other * others) / (size + others), size + others
        groups.append((mean, size))
    means = [mean for mean, size in groups for _ in range(size)]
    return {node: mean + offset for node, mean, offset in zip(layer, means, offsets, strict=True)}


def _place_gatherers(gatherers: Sequence[str], layout: Layout) -> None:
    """Each in the middle of what reaches it."""
    if not gatherers:
        return
    middle = layout.height / 2
    wanted: dict[Node, float] = {
        name: _mean([layout.y[left] for left, right in layout.edges if right == name], middle) for name in gatherers
    }
    order = sorted(wanted, key=wanted.__getitem__)
    layout.y |= _spaced(order, wanted)
    layout.height = max(layout.height, *(layout.y[name] + BOX_HEIGHT / 2 for name in order))


def _mean(values: Iterable[float], otherwise: float) -> float:
    found = list(values)
    return sum(found) / len(found) if found else otherwise


def _height(node: Node) -> float:
    return _WAYPOINT_HEIGHT if isinstance(node, Waypoint) else BOX_HEIGHT
