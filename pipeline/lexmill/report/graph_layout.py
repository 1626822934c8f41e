"""The layout of the DAG's boxes: a layered drawing (Sugiyama et al. 1981), columns by depth.

Stages connected only by a gatherer (the report) are in separate bands, one below the other. An edge that crosses
columns gets a waypoint in each, so that it crosses no box; edges from one stage share waypoints, as do edges to one
gatherer. Boxes keep the order of the file where possible, and the same graph gives the same bytes. (DVC's grandalf does
neither: it draws each edge on its own and orders edges by their addresses in memory.)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

from lexmill.report.graph import Stage, depths, direct_needs

BOX_WIDTH, BOX_HEIGHT = 148.0, 40.0
COLUMN_GAP, ROW_GAP, BAND_GAP = 20.0, 12.0, 26.0
_WAYPOINT_HEIGHT = 8.0
_LIGHT = 0.05  # the weight of a waypoint against a box: lines give way
_SWEEPS = 8


@dataclass(frozen=True)
class Waypoint:
    """The place where an edge crosses a column, shared by edges of one owner within a band."""

    owner: str
    band: int
    column: int


Node = str | Waypoint  # a stage's address, or a waypoint


@dataclass
class Layout:
    """The left and vertical middle of each box and waypoint; edges between them, from left to right."""

    stages: dict[str, Stage]
    x: dict[Node, float] = field(default_factory=dict)
    y: dict[Node, float] = field(default_factory=dict)
    edges: list[tuple[Node, Node]] = field(default_factory=list)
    width: float = 0.0
    height: float = 0.0


@dataclass(frozen=True)
class _Graph:
    """The stages by address, their direct needs and columns; gatherers are in the last column."""

    stages: dict[str, Stage]
    needs: dict[str, tuple[str, ...]]
    column: dict[str, int]
    gatherers: list[str]


def lay_out(found: Sequence[Stage]) -> Layout:
    """Place the stages."""
    graph = _graph(found)
    layout = Layout(graph.stages)
    top = 0.0
    for number, band in enumerate(_bands(graph)):
        layers, edges = _layered(graph, band, number)
        y = _rows(layers, edges)
        shift = top - min(y[node] - _height(node) / 2 for node in y)
        layout.y |= {node: place + shift for node, place in y.items()}
        layout.edges += edges
        top = max(layout.y[node] + _height(node) / 2 for node in y) + BAND_GAP
    layout.height = max(top - BAND_GAP, 0.0)
    _place_gatherers(graph.gatherers, layout)
    for node in layout.y:
        column = node.column if isinstance(node, Waypoint) else graph.column[node]
        layout.x[node] = column * (BOX_WIDTH + COLUMN_GAP)
    layout.width = max((x + BOX_WIDTH for x in layout.x.values()), default=0.0)
    return layout


def _graph(found: Sequence[Stage]) -> _Graph:
    column = depths(found)
    stages = {stage.address: stage for stage in found if stage.address in column}
    needs = direct_needs(found)
    needed = {name for own in needs.values() for name in own}
    gatherers = [
        name for name, stage in stages.items() if not stage.item and name not in needed and len(needs[name]) > 1
    ]
    last = max((column[name] for name in stages if name not in gatherers), default=-1) + 1
    return _Graph(stages, needs, {**column, **dict.fromkeys(gatherers, last)}, gatherers)


def _bands(graph: _Graph) -> list[list[str]]:
    """Return the connected parts without the gatherers, each in the file's order, by their first stage."""
    names = [name for name in graph.stages if name not in graph.gatherers]
    part = {name: name for name in names}

    def root(name: str) -> str:
        while part[name] != name:
            name = part[name]
        return name

    order = {name: i for i, name in enumerate(names)}
    for name in names:
        for before in graph.needs[name]:
            if before in part:
                first, second = sorted((root(name), root(before)), key=order.__getitem__)
                part[second] = first
    bands: dict[str, list[str]] = {}
    for name in names:
        bands.setdefault(root(name), []).append(name)
    return list(bands.values())


def _layered(graph: _Graph, band: Sequence[str], number: int) -> tuple[list[list[Node]], list[tuple[Node, Node]]]:
    """Return a band's nodes by column, with waypoints, and its edges from one column to the next."""
    inside = set(band)
    nodes: dict[Node, None] = dict.fromkeys(band)
    edges: dict[tuple[Node, Node], None] = {}
    for name in [*band, *graph.gatherers]:
        for before in graph.needs[name]:
            if before not in inside:
                continue
            here: Node = before
            for between in range(graph.column[before] + 1, graph.column[name]):
                point = Waypoint(before, number, between)
                if name in graph.gatherers and point not in nodes:  # follow the stage's own line while it lasts
                    point = Waypoint(name, number, between)
                nodes[point] = None
                edges[here, point] = None
                here = point
            edges[here, name] = None
    layers: list[list[Node]] = [[] for _ in range(max(graph.column.values(), default=0) + 1)]
    for node in nodes:
        layers[node.column if isinstance(node, Waypoint) else graph.column[node]].append(node)
    return layers, list(edges)


def _rows(layers: list[list[Node]], edges: Sequence[tuple[Node, Node]]) -> dict[Node, float]:
    """Return each node's middle: ordered in a column by its neighbours, then as near to them as the boxes allow."""
    present = {node for layer in layers for node in layer}
    neighbours: dict[Node, list[Node]] = {node: [] for node in present}
    for left, right in edges:
        if left in present and right in present:
            neighbours[left].append(right)
            neighbours[right].append(left)
    y = {node: i * (BOX_HEIGHT + ROW_GAP) for layer in layers for i, node in enumerate(layer)}
    for _ in range(_SWEEPS):
        for layer in (*layers, *reversed(layers)):
            wanted = {node: _mean([y[other] for other in neighbours[node]], y[node]) for node in layer}
            layer.sort(key=lambda node: wanted[node])  # stable: equals keep their order
            y |= _spaced(layer, wanted)
    for layer in layers[1:]:  # last, straighten the lines: each node as level with its inputs as the boxes allow
        led = {node: [y[left] for left, right in edges if right == node] for node in layer}
        y |= _spaced(layer, {node: _mean(led[node], y[node]) for node in layer})
    return y


def _spaced(layer: Sequence[Node], wanted: Mapping[Node, float]) -> dict[Node, float]:
    """Return the places nearest to the wanted ones (least squares) without overlaps: isotonic regression
    by pooling adjacent violators (Ayer et al. 1955)."""
    gaps = [(_height(above) + _height(node)) / 2 + ROW_GAP for above, node in pairwise(layer)]
    offsets = list(accumulate(gaps, initial=0.0))[: len(layer)]
    groups: list[tuple[float, float, int]] = []  # mean, weight, size
    for node, offset in zip(layer, offsets, strict=True):
        mean, weight, size = wanted[node] - offset, _LIGHT if isinstance(node, Waypoint) else 1.0, 1
        while groups and groups[-1][0] > mean:
            other, other_weight, others = groups.pop()
            mean = (mean * weight + other * other_weight) / (weight + other_weight)
            weight, size = weight + other_weight, size + others
        groups.append((mean, weight, size))
    means = [mean for mean, _, size in groups for _ in range(size)]
    return {node: mean + offset for node, mean, offset in zip(layer, means, offsets, strict=True)}


def _place_gatherers(gatherers: Sequence[str], layout: Layout) -> None:
    """Place each gatherer in the middle of its inputs."""
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
