"""Elements of inline SVG. Every text and attribute is escaped; colours are CSS classes, for the page's themes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from markupsafe import Markup, escape

# Control characters but tab and newline.
_FORBIDDEN = {code: "\ufffd" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


def clean(words: str) -> str:
    """Return foreign text without what HTML forbids and UTF-8 cannot hold (control characters, lone surrogates)."""
    return words.translate(_FORBIDDEN).encode("utf-8", "replace").decode("utf-8")


def element(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """Return an element; an attribute's `_` becomes `-`, a last `_` is dropped, floats get one decimal."""
    parts = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), clean(coordinate(value)))
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(child if isinstance(child, Markup) else escape(clean(child)) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), parts, inner)


def coordinate(value: object) -> str:
    """Return a float as text with at most one decimal, the same on any machine; other values as they are."""
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.1f}"
    return "0" if text == "-0.0" else text.removesuffix(".0")


def drawing(width: float, height: float, label: str, children: Iterable[Markup], kind: str) -> Markup:
    """Return a whole picture that scales to its container; `label` is for screen readers."""
    return element(
        "svg",
        *children,
        viewBox=f"0 0 {coordinate(width)} {coordinate(height)}",
        width=width,
        height=height,
        role="img",
        aria_label=label,
        class_=kind,
    )


def text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> Markup:
    """Return a line of text with its baseline at y."""
    return element("text", words, x=x, y=y, class_=kind, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def polyline(points: Iterable[tuple[float, float]], kind: str) -> Markup:
    places = " ".join(f"{coordinate(float(x))},{coordinate(float(y))}" for x, y in points)
    return element("polyline", points=places, class_=kind)


def ticks(low: float, high: float, about: int) -> list[float]:
    """Return about `about` round numbers (1, 2 or 5 times a power of ten apart) from `low` to `high`."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(m * power for m in (1, 2, 5, 10) if span / (m * power) <= about)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


def tick_text(value: float) -> str:
    """Return a tick's number in few characters: 20k, 1.5M, 0.25."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):.6g}{unit}"
    return f"{value:.6g}"
