"""The two pictures of a comparison: quality against compute, and cost against length on logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from lexmill.base.cutting import cut
from lexmill.report.charts import Scale, padded
from lexmill.report.results import rounded
from lexmill.report.svg import drawing, element, line, polyline, text, tick_text, ticks

METRIC = "bits_per_byte"
_SAME = 1.1  # FLOPs that differ by a tenth at most: steps are whole
_NAME, _LINE = 22, 15.0  # characters of a name, pixels between lines
_LEFT, _TOP, _BOTTOM, _HEIGHT = 52.0, 24.0, 40.0, 320.0  # the least height

Model = Mapping[str, Any]
_STYLE = """
svg { font-family: system-ui, "DejaVu Sans", sans-serif; background: #fff }
text { fill: #1b1f24; font-size: 12px } .tick, .axis { fill: #5b6470; font-size: 11px } .title { font-weight: 600 }
.grid { stroke: #e2e5e9 } .base { stroke: #8b94a0 } .series { fill: none; stroke-width: 2 } .spread { stroke-width: 3 }
"""
_PALETTE = (
    *("#3b6fe0", "#d9622b", "#2a9c52", "#9068dd", "#c08a2a", "#1c8fb0"),
    *("#d8438a", "#7c8694", "#7a9a1f", "#a8583c", "#4b57a8", "#c0483f"),
    *("#00a693", "#e0a100", "#b23a6b", "#5f9fd0", "#8d6e63", "#ff8a65"),
    *("#66bb6a", "#ba68c8"),
)
# Of classes `series-0`, ..., readable on light and dark paper; `again` is what comes after the last colour.
COLOURS = ".again.series { stroke-dasharray: 5 3; } text.again { font-style: italic; }\n" + "".join(
    f".dot.series-{n}, text.series-{n} {{ fill: {colour}; }}\n"
    f".series.series-{n}, .spread.series-{n}, .whole.series-{n} {{ stroke: {colour}; }}\n"
    f".dot.again.series-{n} {{ fill: none; stroke: {colour}; }}\n"
    for n, colour in enumerate(_PALETTE)
)


@dataclass(frozen=True)
class _Log:
    """A logarithmic map from data to pixels."""

    linear: Scale

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Log:
        low, high = padded(math.log10(min(values)), math.log10(max(values)), 0.06)
        return cls(Scale(low, high, start, end))

    def __call__(self, value: float) -> float:
        return self.linear(math.log10(value))

    def ticks(self) -> list[float]:
        """Return powers of ten within the range; of few, also twice and five times these; of fewer, round numbers."""
        low, high = self.linear.low, self.linear.high
        powers = range(math.floor(low), math.ceil(high) + 1)
        for steps in ((1,), (1, 2, 5)):
            inside = [
                step * 10.0**power for power in powers for step in steps if low <= math.log10(step) + power <= high
            ]
            if len(inside) >= 3:
                return inside[:: -(-len(inside) // 7)]
        return ticks(10**low, 10**high, 5)


def quality_against_compute(models: Sequence[Model]) -> Markup | None:
    """Draw bits per byte against training FLOPs, None without any: a dot a seed, a thin line for the interval.

    Where all have the same FLOPs, as by a budget of them, it is against parameters.
    """
    shown = [model for model in models if model[METRIC] is not None and model["training_flops"]]
    if not shown:
        return None
    flops = [model["training_flops"] for model in shown]
    key = "training_flops" if max(flops) > _SAME * min(flops) else "parameters"
    title = "training FLOPs" if key == "training_flops" else key
    width, height, names = 620.0, _height(shown), 190.0
    values = [value for model in shown for value in (*_seeds(model), *model["interval"])]
    y = Scale(*padded(min(values), max(values), 0.08), height - _BOTTOM, _TOP)
    x = _Log.over([model[key] for model in shown], _LEFT, width - names)
    parts = _axes(x, [(tick, y(tick), tick_text(tick)) for tick in ticks(y.low, y.high, 6)], y.start)
    for series, model in _styled(models, shown):
        place, seeds = x(model[key]), [y(value) for value in _seeds(model)]
        low, high = map(y, model["interval"])
        parts.append(line(place, low, place, high, f"whole {series}"))
        parts.append(line(place, min(seeds), place, max(seeds), f"spread {series}"))
        parts += [element("circle", cx=place, cy=one, r=3.5, class_=f"dot {series}") for one in seeds]
    ends = [(series, model, y(model[METRIC])) for series, model in _styled(models, shown)]
    parts += _names(ends, x.linear.end + 12, lambda model: f"{_name(model)} {rounded(model[METRIC])}")
    parts.append(text((x.linear.start + x.linear.end) / 2, height - 6, title, "axis", "middle"))
    parts.append(text(_LEFT, 14, "bits per byte of the test split: a dot a seed, a line for the interval", "title"))
    words = ", ".join(f"{model['preset']} {rounded(model[METRIC])}" for model in shown)
    return drawing(width, height, f"Bits per byte against {title}: {words}", parts, "chart comparison")


_PANELS: tuple[tuple[str, Callable[[float, Mapping[str, Any]], float]], ...] = (
    ("training step of one window, s", lambda length, cost: length * cost["seconds_per_token"]),
    ("generation of one token, s", lambda _, cost: 1 / cost["generation_tokens_per_second"]),
    ("cache, bytes", lambda _, cost: cost["cache_bytes"]),
)


def cost_against_length(models: Sequence[Model]) -> Markup | None:
    """Draw time of a training step, time of a generated token and bytes of the cache by length; None without any."""
    shown = [model for model in models if _costs(model)]
    if not shown:
        return None
    panel, gap, names, height = 230.0, 66.0, 170.0, _height(shown)
    lengths = sorted({length for model in shown for length in _costs(model)})
    parts: list[Markup] = []
    for place, (title, value) in enumerate(_PANELS):
        left = _LEFT + place * (panel + gap)
        x = _Log.over(lengths, left, left + panel)
        lines = {model["preset"]: [(n, value(n, cost)) for n, cost in _costs(model).items()] for model in shown}
        y = _Log.over([v for points in lines.values() for _, v in points if v > 0], height - _BOTTOM, _TOP)
        parts += _axes(x, [(tick, y(tick), _power(tick)) for tick in y.ticks()], y.linear.start, lengths)
        parts.append(text(left, 14, title, "title"))
        parts.append(text(left + panel / 2, height - 6, "tokens", "axis", "middle"))
        for series, model in _styled(models, shown):
            points = [(x(n), y(v)) for n, v in lines[model["preset"]] if v > 0]
            parts.append(polyline(points, f"series {series}"))
            parts += [element("circle", cx=px, cy=py, r=2.5, class_=f"dot {series}") for px, py in points]
    end = _LEFT + len(_PANELS) * (panel + gap) - gap
    ends = [
        (series, model, y(lines[model["preset"]][-1][1] or 10**y.linear.low))
        for series, model in _styled(models, shown)
    ]
    parts += _names(ends, end + 12, _name)
    return drawing(end + names, height, "Cost against length, logarithmic", parts, "chart comparison wide-chart")


def standalone(picture: Markup) -> str:
    """Return a picture as a file of its own, with its colours."""
    head, _, rest = str(picture).partition(">")
    opened = head.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    return f"{opened}><style>{_STYLE}{COLOURS}</style>{rest}\n"


def length_text(length: int) -> str:
    """Return a number of tokens as text: 256, 4k."""
    return str(length) if length % 1024 else f"{length // 1024}k"


def _name(model: Model) -> str:
    return cut(model["preset"], _NAME, "…")


def _seeds(model: Model) -> list[float]:
    return [value for value in model["by_seed"].values() if value is not None]


def _costs(model: Model) -> dict[int, Mapping[str, Any]]:
    """Return the costs by length, of the lengths that are possible."""
    found = {int(length): cost for length, cost in model["lengths"].items() if "reason" not in cost}
    return dict(sorted(found.items()))


def _height(shown: Sequence[Model]) -> float:
    """Return the height of a picture that has a line for each name."""
    return max(_HEIGHT, _TOP + _BOTTOM + _LINE * len(shown))


def _styled(models: Sequence[Model], shown: Sequence[Model]) -> list[tuple[str, Model]]:
    """Return each shown model with the classes of its colour, the same in both pictures."""
    order = sorted(model["preset"] for model in models)
    places = [divmod(order.index(model["preset"]), len(_PALETTE)) for model in shown]
    return [(f"{'again ' * (turn > 0)}series-{n}", model) for (turn, n), model in zip(places, shown, strict=True)]


def _axes(
    x: _Log, rows: Sequence[tuple[float, float, str]], bottom: float, marks: Sequence[float] | None = None
) -> list[Markup]:
    """Draw the grid: `rows` are ticks of y with their place and text; `marks` are the ticks of x, if they are given."""
    start, end = x.linear.start, x.linear.end
    parts = []
    for _, place, words in rows:
        parts += [line(start, place, end, place, "grid"), text(start - 6, place + 4, words, "tick", "end")]
    for tick in marks or x.ticks():
        parts.append(text(x(tick), bottom + 16, length_text(int(tick)) if marks else _power(tick), "tick", "middle"))
    return [*parts, line(start, bottom, end, bottom, "base")]


def _names(ends: Sequence[tuple[str, Model, float]], x: float, words: Callable[[Model], str]) -> list[Markup]:
    """Write the models' names beside their ends, at least a line apart, the lowest first, each below those to come."""
    found, last = [], math.inf
    for place, (series, model, y) in enumerate(sorted(ends, key=lambda end: -end[2])):
        last = min(max(y + 4, _TOP + _LINE * (len(ends) - place)), last - _LINE)
        found.append(text(x, last, words(model), f"end {series}"))
    return found


def _power(value: float) -> str:
    """Return a tick of a logarithmic axis in few characters: 0.001, 20k, 2e12."""
    return tick_text(value) if 1e-3 <= value < 1e9 else f"{value:.3g}".replace("e-0", "e-").replace("e+", "e")
