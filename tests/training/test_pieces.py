"""Tensors in files, whole and in pieces, against the safetensors library and plain slicing."""

import errno
import hashlib
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from lexmill.base.errors import UserError
from lexmill.base.storage import read_json, sha256_file
from lexmill.training import pieces
from lexmill.training.checkpoints import CheckpointFolder, Share
from lexmill.training.pieces import Piece, Reader, write
from lexmill.training.ranks import Ranks
from lexmill.training.saving import Saver
from tests.training.arithmetic_task import ArithmeticTask, train
from tests.training.arithmetic_task import settings as training

KINDS = [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool]


def test_whole_tensors_are_the_librarys_own_bytes(tmp_path: Path) -> None:
    named = {f"x.{index}": torch.randn(3, 5 + index).to(kind) for index, kind in enumerate(KINDS)}
    named |= {"scalar": torch.tensor(4.0), "empty": torch.empty(0, 3), "turned": torch.randn(4, 6).t()}
    digest = write(tmp_path / "ours", {name: Piece.of(value) for name, value in named.items()})
    save_file({name: value.contiguous() for name, value in named.items()}, tmp_path / "theirs")
    assert digest == sha256_file(tmp_path / "ours") == hashlib.sha256((tmp_path / "ours").read_bytes()).hexdigest()
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    read = Reader([tmp_path / "ours"]).whole()
    assert all(torch.equal(value, read[name]) and value.dtype == read[name].dtype for name, value in named.items())


def cuts(length: int) -> st.SearchStrategy[list[int]]:
    inner = st.lists(st.integers(0, length), max_size=3)
    return inner.map(lambda found: sorted({0, length, *found}))


@st.composite
def cases(draw: st.DrawFn) -> Any:
    shape = draw(st.tuples(st.integers(1, 7), st.integers(1, 5)))
    wanted = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in shape]
    return shape, [draw(cuts(n)) for n in shape], wanted


@settings(max_examples=60, deadline=None)
@given(case=cases())
def test_any_slice_comes_from_any_cut(case: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    """However a matrix was cut along both axes, one piece a file."""
    shape, (rows, columns), ((top, bottom), (left, right)) = case
    folder = tmp_path_factory.mktemp("cut")
    whole = torch.arange(shape[0] * shape[1], dtype=torch.float32).view(shape)
    for a, b in pairwise(rows):
        for c, d in pairwise(columns):
            piece = Piece(whole[a:b, c:d].contiguous(), shape, (a, c))
            write(folder / f"{a}-{c}.safetensors", {"w": piece, f"alone.{a}.{c}": Piece.of(torch.ones(1))})
    reader = Reader(sorted(folder.iterdir()))
    assert reader.shape("w") == shape
    found = reader.slice("w", (top, left), (bottom - top, right - left))
    assert torch.equal(found, whole[top:bottom, left:right])


def test_a_missing_piece_is_reported(tmp_path: Path) -> None:
    write(tmp_path / "a", {"w": Piece(torch.ones(2, 3), (4, 3), (0, 0))})
    with safe_open(tmp_path / "a", "pt") as file:
        assert set(file.metadata()) == {"pieces"}
    assert load_file(tmp_path / "a")["w"].shape == (2, 3)
    reader = Reader([tmp_path / "a"])
    assert torch.equal(reader.slice("w", (0, 1), (2, 1)), torch.ones(2, 1))
    with pytest.raises(UserError, match="only 3 of 6 numbers of 'w'"):
        reader.slice("w", (1, 0), (2, 3))


def saver(root: Path) -> Saver:
    return Saver(CheckpointFolder(root, "m", {}), Ranks.of(0, 1, 1, torch.device("cpu")), sharded=False)


def test_what_was_copied_is_saved_whatever_happens_to_it_afterwards(tmp_path: Path) -> None:
    weight, state = torch.ones(1000, 1000), {"rows": [1]}
    one = saver(tmp_path)
    one.save(3, state, {"weights": {"w": weight}})
    weight.fill_(2.0)
    state["rows"].append(2)
    one.wait()
    saved = one.folder.open(3)
    assert torch.equal(saved.read("weights")["w"], torch.ones(1000, 1000))
    assert saved.state["rows"] == [1]


def test_a_training_goes_on_while_its_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A save of minutes must not let the other processes wait in an exchange until their patience ends."""
    write_, written = pieces.write, threading.Event()

    def slow(path: Path, named: Any) -> str:
        assert written.wait(20)
        return write_(path, named)

    monkeypatch.setattr(pieces, "write", slow)
    one = saver(tmp_path)
    one.save(3, {}, {"weights": {"w": torch.ones(2)}})
    assert one.busy
    assert one.folder.latest() is None
    written.set()
    one.wait()
    assert one.folder.latest() == 3


class Second(Ranks):
    """The second of two processes that hold the same weights, with nobody to ask."""

    def from_first(self, number: int) -> int:
        return number


def test_of_those_that_hold_the_same_only_the_first_writes(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, "m", {})
    second = Saver(folder, Second.of(1, 2, 1, torch.device("cpu")), sharded=False)
    second.save(3, {}, {"weights": {"w": torch.ones(2)}})
    second.wait()
    assert not folder.path.exists()


def test_an_error_in_the_background_ends_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is an OSError, which every stage tells in one sentence; what was complete stands."""
    write_ = pieces.write

    def full(path: Path, named: Any) -> str:
        if "step-00000006" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write_(path, named)

    monkeypatch.setattr(pieces, "write", full)
    with pytest.raises(OSError, match="No space left"):
        train(ArithmeticTask(), tmp_path, training(40))
    (folder,) = tmp_path.iterdir()
    assert sorted(path.parent.name for path in folder.glob("step-*/COMPLETE")) == ["step-00000004", "step-00000005"]
    monkeypatch.setattr(pieces, "write", write_)
    assert train(ArithmeticTask(), tmp_path, training(40)).steps_now == 35
    assert not list(folder.glob(".step-*"))


def test_nothing_is_touched_after_a_rank_handed_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It renames the folder as soon as it sees the last one's hashes, however soon that is."""
    folder, replace = CheckpointFolder(tmp_path, "tiny", {"data": "made"}), Path.replace

    def at_once(path: Path, target: Path) -> Path:
        found = replace(path, target)
        path.parent.rename(path.parent.with_name("in-place"))
        return found

    monkeypatch.setattr(Path, "replace", at_once)
    folder.save(3, {}, {"model": {"weight": torch.ones(2)}}, share=Share(rank=1, world=2))
    (part,) = folder.path.glob("in-place/*.json")
    assert list(read_json(part)["files"]) == ["model-00001-of-00002.safetensors"]
