"""dvc.yaml with its foreach written out, beside DVC's own reading of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.report.graph import Stage, depths, direct_needs, stages
from lexmill.report.graph_drawing import draw
from lexmill.report.graph_layout import BOX_HEIGHT, Waypoint, lay_out
from tests.report.project import ROOT
from tests.support.once import init_repository


def real() -> list[Stage]:
    files = (yaml.safe_load((ROOT / name).read_text(encoding="utf-8")) for name in ("dvc.yaml", "params.yaml"))
    return stages(*files)


def test_the_projects_own_graph_is_dvcs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same stages and the same needs as DVC finds."""
    for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR", "DVC_SYSTEM_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "home" / name))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("dvc.yaml", "params.yaml"):
        (folder / name).write_bytes((ROOT / name).read_bytes())
    init_repository(folder)
    from dvc.repo import Repo

    with Repo(str(folder)) as repo:
        graph = repo.index.graph
        theirs = {node.addressing: {other.addressing for other in graph.successors(node)} for node in graph.nodes}
    # It depends on no path of another stage; the page draws no arrow of it.
    assert all("code" in needs for name, needs in theirs.items() if name != "code")
    theirs = {name: needs - {"code"} for name, needs in theirs.items()}
    assert {stage.address: set(stage.needs) for stage in real()} == theirs


def test_foreach_over_a_mapping_a_list_and_none() -> None:
    dag = {
        "stages": {
            "a": {"foreach": "${x.y}", "do": {"outs": ["a/${key}"]}},
            "b": {"foreach": ["one", "two"], "do": {"deps": ["a/${item}"], "outs": [{"b/${item}": {"cache": False}}]}},
            "c": {"deps": ["b", "nowhere"], "metrics": ["c.json"]},
        }
    }
    found = stages(dag, {"x": {"y": {"one": 1, "two": 2}}})
    assert [(stage.address, stage.needs) for stage in found] == [
        ("a@one", ()),
        ("a@two", ()),
        ("b@one", ("a@one",)),
        ("b@two", ("a@two",)),
        ("c", ("b@one", "b@two")),
    ]


@pytest.mark.parametrize(
    "dag",
    [None, [], {}, {"stages": None}, {"stages": {"a": None, "b": {"foreach": "${no}", "do": {}}, "c": {"deps": "x"}}}],
)
def test_a_strange_file_gives_what_can_be_seen(dag: Any) -> None:
    draw(stages(dag, {}))
    draw(stages(dag, None))


def test_a_cycle_is_left_out() -> None:
    dag = {"stages": {"a": {"deps": ["b"], "outs": ["a"]}, "b": {"deps": ["a"], "outs": ["b"]}, "c": {"outs": ["c"]}}}
    assert list(lay_out(stages(dag, {})).stages) == ["c"]


def test_depth_is_the_longest_way() -> None:
    chain = [
        Stage("a", "", ""),
        Stage("b", "", "", ("a",)),
        Stage("c", "", "", ("a", "b")),
        Stage("d", "", "", ("c", "a")),
    ]
    assert depths(chain) == {"a": 0, "b": 1, "c": 2, "d": 3}
    assert direct_needs(chain) == {"a": (), "b": ("a",), "c": ("b",), "d": ("c",)}


@st.composite
def graphs(draw_: st.DrawFn) -> list[Stage]:
    count = draw_(st.integers(1, 12))
    found = []
    for i in range(count):
        needs = draw_(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        found.append(Stage("s", str(i), "", tuple(f"s@{n}" for n in sorted(needs))))
    return [*found, Stage("all", "", "", tuple(stage.address for stage in found))]


def reached(needs: dict[str, tuple[str, ...]], name: str) -> set[str]:
    return {name}.union(*(reached(needs, other) for other in needs[name]))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_the_reduction_keeps_what_is_reached_and_no_line_too_many(found: list[Stage]) -> None:
    whole, direct = {stage.address: stage.needs for stage in found}, direct_needs(found)
    for name in whole:
        assert reached(whole, name) == reached(direct, name)
        for other in direct[name]:
            rest = tuple(n for n in direct[name] if n != other)
            assert other not in set().union(*(reached(direct, n) for n in rest))


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_no_two_boxes_overlap_and_lines_run_to_the_right(found: list[Stage]) -> None:
    layout = lay_out(found)
    assert set(layout.stages) == {stage.address for stage in found}
    nodes = list(layout.y)
    for i, one in enumerate(nodes):
        for other in nodes[:i]:
            if layout.x[one] == layout.x[other]:
                room = BOX_HEIGHT / 2 if isinstance(one, Waypoint) != isinstance(other, Waypoint) else 0
                room = BOX_HEIGHT if not isinstance(one, Waypoint) and not isinstance(other, Waypoint) else room
                assert abs(layout.y[one] - layout.y[other]) >= room - 1e-6, (one, other)
    for left, right in layout.edges:
        assert layout.x[left] < layout.x[right]
    for node in nodes:
        assert -1e-6 <= layout.y[node] <= layout.height + 1e-6


def test_every_need_is_drawn() -> None:
    """Along the edges and waypoints every stage reaches what it needs."""
    found = real()
    layout = lay_out(found)
    lines = {stage.address: 0 for stage in found}
    before: dict[Any, list[Any]] = {}
    for left, right in layout.edges:
        before.setdefault(right, []).append(left)
    direct = direct_needs(found)
    for name in lines:
        seen: set[Any] = set()
        waiting = list(before.get(name, []))
        while waiting:
            node = waiting.pop()
            seen.add(node)
            if isinstance(node, Waypoint):
                waiting.extend(before[node])
        assert set(direct[name]) <= seen


def test_the_picture_names_every_stage() -> None:
    picture = str(draw(real()))
    for stage in real():
        assert f"<title>{stage.address}. {stage.description}" in picture.replace("&#34;", '"').replace("&#39;", "'")
