"""Pictures: PNG, and the same bytes from the same numbers."""

from pathlib import Path

import matplotlib
import numpy as np

from lexmill.evaluation.plots import plot_confusion, plot_curve, plot_loss_by_position, plot_words, read_curve

CURVE = """step,tokens,epoch,train_loss,valid_loss,lr,grad_norm
10,100,0.1,3.5,,0.001,1.2
20,200,0.2,3.1,3.2,0.001,1.1
30,300,0.3,2.9,,0.0005,1.0
"""


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG\r\n")


def test_cells_that_were_not_measured_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(CURVE, encoding="utf-8")
    found = read_curve(tmp_path / "c.csv")
    assert found["valid_loss"] == [(20, 3.2)]
    assert found["train_loss"] == [(10, 3.5), (20, 3.1), (30, 2.9)]


def test_the_same_bytes_twice(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(CURVE, encoding="utf-8")
    for name in ("a", "b"):
        plot_curve(tmp_path / "c.csv", tmp_path / name / "curve.png", "gpt")
        plot_loss_by_position(np.array([3.0, np.nan, 2.0]), tmp_path / name / "position.png", "gpt")
        plot_confusion(np.array([[5, 1], [0, 3]]), ["a", "b"], tmp_path / name / "confusion.png", "reviews")
    for picture in ("curve", "position", "confusion"):
        first, second = (tmp_path / name / f"{picture}.png" for name in ("a", "b"))
        assert is_png(first)
        assert first.read_bytes() == second.read_bytes()
        assert b"Software" not in first.read_bytes()


def test_the_users_settings_of_matplotlib_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(CURVE, encoding="utf-8")
    plot_curve(tmp_path / "c.csv", tmp_path / "plain.png", "gpt")
    with matplotlib.rc_context({"font.size": 20, "axes.facecolor": "black", "savefig.dpi": 30}):
        plot_curve(tmp_path / "c.csv", tmp_path / "theirs.png", "gpt")
    assert (tmp_path / "theirs.png").read_bytes() == (tmp_path / "plain.png").read_bytes()


def test_a_curve_without_points(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text(CURVE.splitlines()[0] + "\n", encoding="utf-8")
    plot_curve(tmp_path / "c.csv", tmp_path / "curve.png", "gpt")
    assert is_png(tmp_path / "curve.png")


def test_labels_are_text_whatever_they_hold(tmp_path: Path) -> None:
    labels = ["$x_", "a" * 80, "日本", *(f"label {i}" for i in range(25))]
    plot_confusion(np.eye(len(labels), dtype=np.int64), labels, tmp_path / "c.png", "$\\frac")
    assert is_png(tmp_path / "c.png")


def test_words_in_a_plane(tmp_path: Path) -> None:
    places = np.array([[0, 0], [0, 0.001], [1, 1], [1, 1]], np.float32)
    for name in ("a", "b"):
        plot_words(places, ["$x_", "hidden", "日本", "a" * 80], tmp_path / f"{name}.png", "gpt")
    assert is_png(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    plot_words(np.zeros((3, 2), np.float32), ["a", "b", "c"], tmp_path / "one_place.png", "gpt")
    assert is_png(tmp_path / "one_place.png")
