"""PNG plots, the same bytes from the same numbers: no date, no software tag, a backend without a display."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexmill.base.cutting import cut
from lexmill.base.errors import UserError
from lexmill.base.storage import write_bytes

_SIZE = (6.4, 4.0)  # inches
_DPI = 110


def _axes(width: float = _SIZE[0], height: float = _SIZE[1]) -> tuple[Any, Any]:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcdefaults()  # a user's matplotlibrc would change the bytes
    figure = Figure(figsize=(width, height), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _save(figure: Any, path: Path) -> None:
    data = io.BytesIO()
    with warnings.catch_warnings():
        # A label in a script that the built-in font lacks is drawn as boxes; the metrics file has the text.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(data, format="png", metadata={"Software": None})
    write_bytes(path, data.getvalue())


def read_curve(path: str | Path) -> dict[str, list[tuple[float, float]]]:
    """Read a training curve: column -> [(step, value)], without empty cells; raise `UserError` without such a file."""
    if not Path(path).is_file():
        raise UserError("the training left no curve here; train the model again", path)
    points: dict[str, list[tuple[float, float]]] = {}
    with open(path, encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            for column, cell in row.items():
                if column != "step" and cell:
                    points.setdefault(column, []).append((float(row["step"]), float(cell)))
    return points


def plot_curve(curve: str | Path, path: Path, title: str) -> None:
    """Plot training and validation loss by step, from reports/curves/<name>.csv."""
    points = read_curve(curve)
    figure, axes = _axes()
    if "train_loss" in points:
        steps, values = (np.array(column) for column in zip(*points["train_loss"], strict=True))
        window = max(1, len(values) // 40)
        if window > 1:
            axes.plot(steps, values, color="#d5dbe3", linewidth=0.8)
        mean = np.convolve(values, np.full(window, 1 / window), mode="valid")  # of the last `window` points
        label = "train" if window == 1 else f"train, mean of {window} points"
        axes.plot(steps[window - 1 :], mean, label=label, color="#64748b", linewidth=1.4)
    if "valid_loss" in points:
        steps, values = (np.array(column) for column in zip(*points["valid_loss"], strict=True))
        axes.plot(steps, values, label="valid", color="#c2410c", marker="o", markersize=3, linewidth=1.4)
    axes.set(xlabel="step", ylabel="loss (nats)", title=title)
    axes.grid(alpha=0.3)
    if axes.get_lines():
        axes.legend()
    _save(figure, path)


def plot_loss_by_position(nats: NDArray[np.float64], path: Path, title: str) -> None:
    """Plot the mean loss at each position of the scoring window, (context,), with gaps at NaN."""
    figure, axes = _axes()
    axes.plot(np.arange(1, len(nats) + 1), nats, color="#c2410c", linewidth=1.2)
    axes.set(xlabel="position in the window (tokens)", ylabel="loss (nats a token)", title=title)
    axes.grid(alpha=0.3)
    _save(figure, path)


def plot_gradient_reach(norms: NDArray[np.float64], path: Path, title: str) -> None:
    """Plot the norm of a prediction's gradient by the distance of the input, (T,), with gaps where it is 0."""
    figure, axes = _axes()
    axes.plot(np.arange(1, len(norms) + 1), np.where(norms > 0, norms, np.nan), color="#1d4ed8", linewidth=1.2)
    axes.set(xlabel="tokens before the predicted one", ylabel="norm of the gradient", title=title)
    if (norms > 0).any():
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    _save(figure, path)


def plot_confusion(counts: NDArray[np.int64], labels: Sequence[str], path: Path, title: str) -> None:
    """Plot a confusion matrix (labels, labels): rows are right labels, columns predicted ones; shaded by row."""
    side = min(max(3.6, 0.7 * len(labels) + 2.0), 14.0)
    figure, axes = _axes(side + 0.8, side)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    figure.colorbar(image, ax=axes, label="share of the right label", shrink=0.8)
    shown = [cut(label, 24, "…") for label in labels]
    ticks = range(len(labels))
    axes.set_xticks(ticks, shown, rotation=45 if len(labels) > 2 else 0, ha="right" if len(labels) > 2 else "center")
    axes.set_yticks(ticks, shown)
    # Labels are the user's text: a "$" does not begin mathematics.
    for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        tick.set_parse_math(False)
    axes.set(xlabel="predicted", ylabel="right", title=title)
    if len(labels) <= 20:
        for i in ticks:
            for j in ticks:
                colour = "white" if shares[i, j] > 0.5 else "black"
                axes.text(j, i, f"{counts[i, j]:,}", ha="center", va="center", color=colour, fontsize=9)
    _save(figure, path)


def plot_reliability(bins: Sequence[tuple[int, float, float]], path: Path, title: str) -> None:
    """Plot accuracy by confidence, for bins of (items, mean confidence, accuracy); the area of a dot is its items."""
    figure, axes = _axes(4.8, 4.4)
    counts, confidence, accuracy = (np.array(column, dtype=float) for column in zip(*bins, strict=True))
    axes.plot([0, 1], [0, 1], color="#94a3b8", linewidth=1, linestyle="--", label="as often right as it says")
    axes.plot(confidence, accuracy, color="#1d4ed8", linewidth=1)
    axes.scatter(confidence, accuracy, s=12 + 200 * counts / counts.sum(), color="#1d4ed8", zorder=3)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="probability of the prediction", ylabel="share that is right")
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left")
    _save(figure, path)


def plot_attention(
    texts: Sequence[tuple[Sequence[str], Sequence[str], Sequence[NDArray[np.float32]]]],
    heads: Sequence[str],
    path: Path,
    title: str,
) -> None:
    """Plot heat maps of attention: a row for each text, a column for each of `heads`.

    Args:
        texts: of each the tokens that attend and those they attend to, and for each column the weights (attending,
            attended).
    """
    wide, high = (1.5 + 0.14 * max(len(one[side]) for one in texts) for side in (1, 0))
    figure = _axes(len(heads) * (wide + 0.6), len(texts) * high)[0]
    figure.clear()
    figure.suptitle(title, fontsize=10, parse_math=False)
    for place, axes in enumerate(figure.subplots(len(texts), len(heads), squeeze=False).flat):
        (attending, attended, columns), column = texts[place // len(heads)], place % len(heads)
        image = axes.imshow(columns[column], vmin=0, cmap="Blues")
        figure.colorbar(image, ax=axes, shrink=0.8)
        axes.set_xticks(range(len(attended)), [cut(one, 14, "…") for one in attended], rotation=90, fontsize=7)
        axes.set_yticks(range(len(attending)), [cut(one, 14, "…") for one in attending], fontsize=7)
        for tick in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            tick.set_parse_math(False)
        axes.set_title(heads[column], fontsize=9)
    _save(figure, path)


def plot_numbers(right: NDArray[np.float64], predicted: NDArray[np.float64], path: Path, title: str) -> None:
    """Plot predicted numbers against the right ones, (items,) each."""
    figure, axes = _axes(4.8, 4.4)
    low, high = float(min(right.min(), predicted.min())), float(max(right.max(), predicted.max()))
    axes.plot([low, high], [low, high], color="#94a3b8", linewidth=1, linestyle="--")
    axes.scatter(right, predicted, s=6, alpha=0.4, color="#1d4ed8", linewidths=0)
    axes.set(xlabel="right", ylabel="predicted")
    axes.set_title(title, parse_math=False)
    axes.grid(alpha=0.3)
    _save(figure, path)


def plot_words(places: NDArray[np.float32], words: Sequence[str], path: Path, title: str) -> None:
    """Plot words in a plane, (words, 2), the most frequent first; each is labelled if its label has room."""
    figure, axes = _axes(9.0, 7.0)
    axes.scatter(places[:, 0], places[:, 1], s=5, color="#94a3b8")
    sides = np.maximum(np.ptp(places, axis=0), 1e-9)
    taken: list[tuple[float, float, float]] = []  # left end, right end and height of each label, as shares of a side
    for place, word in zip(places, words, strict=True):
        left, height = (place / sides).tolist()
        right = left + 0.012 * len(word)
        if all(abs(height - other) > 0.025 or right < start or end < left for start, end, other in taken):
            taken.append((left, right, height))
            offset = {"xytext": (2, 2), "textcoords": "offset points"}
            axes.annotate(word, place, **offset, fontsize=7, color="#c2410c", parse_math=False)
    axes.set(xlabel="first principal component", ylabel="second principal component", title=title)
    _save(figure, path)
