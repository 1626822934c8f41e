"""Charts as inline SVG: a model next to its baselines, and learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from lexmill.base.cutting import cut, cut_middle
from lexmill.report.results import rounded
from lexmill.report.svg import drawing, element, line, polyline, text, tick_text, ticks
from lexmill.report.verdicts import plain

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Contender:
    """A metric with its interval (None if none was measured)."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Return the interval, or the value twice."""
        return (self.value, self.value) if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Scale:
    """A linear map from data to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


_ROW, _TOP, _AXIS = 26.0, 6.0, 34.0
_VALUES = 58.0


@dataclass(frozen=True)
class Size:
    """A chart's width, the width of the names at its left, and the characters that fit there."""

    width: float
    names: float
    characters: int


SMALL, LARGE = Size(390.0, 138.0, 19), Size(460.0, 186.0, 28)


def beside_baselines(
    model: Contender, baselines: Sequence[Contender], metric: str, higher_is_better: bool, size: Size
) -> Markup:
    """Draw dots with intervals, the model first, the best baseline next; shade the side that beats all baselines."""
    baselines = sorted(baselines, key=lambda baseline: baseline.value, reverse=higher_is_better)
    shown = [model, *baselines]
    height = _TOP + _ROW * len(shown) + _AXIS
    ends = [end for one in shown for end in one.ends]
    low, high = padded(min(ends), max(ends), 0.06)
    scale = Scale(low, high, size.names, size.width - _VALUES)
    bottom = height - _AXIS
    parts: list[Markup] = []
    if baselines:
        edge = scale(baselines[0].value)
        left, right = (edge, scale.end) if higher_is_better else (scale.start, edge)
        parts.append(element("rect", x=left, y=_TOP, width=right - left, height=bottom - _TOP, class_="better"))
    for tick in ticks(low, high, 5):
        x = scale(tick)
        parts += [line(x, _TOP, x, bottom, "grid"), text(x, bottom + 14, tick_text(tick), "tick", "middle")]
    if baselines:
        parts.append(line(edge, _TOP, edge, bottom, "best-baseline"))
    parts += [_contender(one, _TOP + _ROW * (i + 0.5), scale, i == 0, size.characters) for i, one in enumerate(shown)]
    arrow = "higher is better →" if higher_is_better else "← lower is better"
    parts.append(text((scale.start + scale.end) / 2, height - 4, f"{metric}, {arrow}", "axis", "middle"))
    words = ", ".join(f"{one.name} {rounded(one.value)}" for one in shown)
    return drawing(size.width, height, f"{metric}: {words}; {arrow.strip('←→ ')}", parts, "chart")


def _contender(one: Contender, y: float, scale: Scale, is_model: bool, characters: int) -> Markup:
    low, high = one.ends
    name = cut_middle(one.name, characters - characters // 6) if is_model else cut(plain(one.name), characters, "…")
    return element(
        "g",
        element("title", f"{one.name}: {rounded(one.value)}, interval {rounded(low)} to {rounded(high)}"),
        text(scale.start - 10, y + 4, name, "name", "end"),
        line(scale(low), y, scale(high), y, "interval"),
        element("circle", cx=scale(one.value), cy=y, r=5 if is_model else 3.5, class_="dot"),
        text(scale.end + 10, y + 4, rounded(one.value), "value"),
        class_="model" if is_model else "baseline",
    )


_CURVE_WIDTH, _CURVE_HEIGHT = 460.0, 220.0
_LEFT, _RIGHT, _UPPER, _LOWER = 44.0, 88.0, 12.0, 36.0


def learning_curve(train: Points, valid: Points, kept: float | None, unit: str) -> Markup | None:
    """Draw training and validation loss by step, None without two points; `kept` is the step of the kept weights."""
    points = [*train, *valid]
    steps = [step for step, _ in points]
    if len(points) < 2 or min(steps) == max(steps):
        return None
    losses = [loss for _, loss in points]
    low, high = padded(min(losses), max(losses), 0.05)
    x = Scale(min(0.0, *steps), max(steps), _LEFT, _CURVE_WIDTH - _RIGHT)
    y = Scale(low, high, _CURVE_HEIGHT - _LOWER, _UPPER)
    parts: list[Markup] = []
    for tick in ticks(low, high, 5):
        parts.append(line(x.start, y(tick), x.end, y(tick), "grid"))
        parts.append(text(x.start - 8, y(tick) + 4, tick_text(tick), "tick", "end"))
    parts += [text(x(tick), y.start + 16, tick_text(tick), "tick", "middle") for tick in ticks(x.low, x.high, 6)]
    parts.append(line(x.start, y.start, x.end, y.start, "base"))
    kept_loss = dict(valid).get(kept) if kept is not None else None
    if kept is not None and kept_loss is not None:
        parts.append(line(x(kept), y(kept_loss), x(kept), y.start, "kept"))
    for kind, series in (("train", train), ("valid", valid)):
        places = [(x(step), y(loss)) for step, loss in series]
        if len(places) > 1:
            parts.append(polyline(places, f"curve {kind}"))
        if kind == "valid":
            parts += [element("circle", cx=px, cy=py, r=2.5, class_="valid-dot") for px, py in places]
    if kept is not None and kept_loss is not None:
        parts.append(element("circle", cx=x(kept), cy=y(kept_loss), r=5, class_="kept-dot"))
    ends = [(kind, series[-1][1]) for kind, series in (("train", train), ("valid", valid)) if series]
    parts += _end_names(ends, x, y)
    parts.append(text((x.start + x.end) / 2, _CURVE_HEIGHT - 3, "step", "axis", "middle"))
    label = f"Loss in {unit} by step, from {rounded(losses[0])} to {rounded(points[-1][1])}"
    return drawing(_CURVE_WIDTH, _CURVE_HEIGHT, label, parts, "chart")


def _end_names(ends: Sequence[tuple[str, float]], x: Scale, y: Scale) -> list[Markup]:
    """Write the curves' names and last values at their ends, at least a line apart."""
    found: list[Markup] = []
    last = float("inf")
    for kind, loss in sorted(ends, key=lambda end: -y(end[1])):  # the lowest first: none falls below the axis
        last = min(y(loss) + 4, last - 15)
        found.append(text(x.end + 8, last, f"{kind} {rounded(loss)}", f"end {kind}"))
    return found


def padded(low: float, high: float, share: float) -> tuple[float, float]:
    """Return a slightly wider range; a single value gets a width."""
    margin = (high - low) * share or abs(high) * 0.1 or 1.0
    return low - margin, high + margin
