from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from lexmill.report.charts import LARGE, Contender, beside_baselines, learning_curve
from lexmill.report.svg import coordinate, element, tick_text, ticks


def places(picture: str, name: str) -> list[float]:
    return [float(circle.attrib["cx"]) for circle in ET.fromstring(picture).iter(name) if "cx" in circle.attrib]


def test_the_model_is_first_and_the_best_baseline_next() -> None:
    baselines = [Contender("weak", 0.2), Contender("strong", 0.7, 0.68, 0.72)]
    picture = str(beside_baselines(Contender("m", 0.9, 0.88, 0.92), baselines, "accuracy", True, LARGE))
    model, best, worst = places(picture, "circle")
    assert worst < best < model
    assert "m 0.900, strong 0.700, weak 0.200; higher is better" in picture
    lower = str(beside_baselines(Contender("m", 0.9), baselines, "loss", False, LARGE))
    assert "m 0.900, weak 0.200, strong 0.700; lower is better" in lower


def test_the_shade_covers_what_beats_the_best_baseline() -> None:
    picture = str(
        beside_baselines(Contender("m", 2.0), [Contender("a", 2.1), Contender("b", 3.0)], "bits", False, LARGE)
    )
    shade = next(ET.fromstring(picture).iter("rect"))
    left, right = float(shade.attrib["x"]), float(shade.attrib["x"]) + float(shade.attrib["width"])
    model, best, worst = places(picture, "circle")
    assert left < model < right
    assert abs(best - right) <= 0.1
    assert worst > right


def test_a_model_without_baselines_or_spread_is_drawn() -> None:
    assert places(str(beside_baselines(Contender("m", 0.0), [], "bits", False, LARGE)), "circle")


def test_a_curve_ends_where_it_ends() -> None:
    picture = str(learning_curve([(1, 5.0), (2, 3.0)], [(2, 3.5)], 2, "nats a token"))
    assert "train 3.000" in picture
    assert "valid 3.500" in picture
    assert "kept-dot" in picture


def test_no_curve_without_two_steps() -> None:
    assert learning_curve([], [], None, "nats") is None
    assert learning_curve([(1, 5.0)], [(1, 4.0)], 1, "nats") is None


def test_names_at_the_end_do_not_touch() -> None:
    picture = str(learning_curve([(1, 5.0), (2, 1.0)], [(1, 5.0), (2, 1.01)], None, "nats"))
    first, second = (float(y) for y in re.findall(r'y="([\d.]+)" class="end', picture))
    assert abs(first - second) >= 12


@given(st.floats(-1e3, 1e3), st.floats(1e-3, 1e6), st.integers(2, 8))
def test_ticks_are_round_inside_and_few(low: float, span: float, about: int) -> None:
    found = ticks(low, low + span, about)
    assert len(found) <= about + 1
    assert all(low - span * 1e-6 <= tick <= low + span * (1 + 1e-6) for tick in found)


def test_ticks_and_numbers_as_text() -> None:
    assert ticks(0, 10, 5) == [0, 2, 4, 6, 8, 10]
    assert ticks(3, 3, 5) == [3]
    assert [tick_text(x) for x in (0.25, 500, 20000, 1500000, 2e9)] == ["0.25", "500", "20k", "1.5M", "2G"]
    assert [coordinate(x) for x in (1.0, -0.01, 2.25, 7)] == ["1", "0", "2.2", "7"]


def test_markup_is_escaped_once() -> None:
    assert str(element("g", "<&", element("a", ">"), class_='"')) == '<g class="&#34;">&lt;&amp;<a>&gt;</a></g>'
