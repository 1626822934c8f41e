"""The user's own files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from lexmill.base.errors import UserError
from lexmill.params.corpora import FileSource
from tests.support.fetching import WRONG, bring, nothing_left


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    files = ("data/en/train.txt", "data/de/train.txt", "data/de/test.txt.gz", "my [1] file.csv", "a[1]/b [x]/c.csv")
    for name in (*files, "a1/d.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["data/en/train.txt"], ["train.txt"]),
        (["my [1] file.csv"], ["my [1] file.csv"]),
        (["a[1]/b [x]/*.csv"], ["c.csv"]),
        (["a[1]/**/*.csv"], ["b [x]/c.csv"]),
        (["*/b [x]/*.csv"], ["a[1]/b [x]/c.csv"]),
        (["a[12]/*.csv"], ["a1/d.csv"]),
        (["data/de/*"], ["test.txt.gz", "train.txt"]),
        (["data/**/*.txt"], ["de/train.txt", "en/train.txt"]),
        (["data/*/train.txt", "data/en/train.txt"], ["train.txt", "de/train.txt"]),  # one file, found twice
        (["data/en/train.txt", "data/de/train.txt"], ["en/train.txt", "de/train.txt"]),  # two files of one name
        (["./data/../data/en/train.txt"], ["train.txt"]),
    ],
)
def test_files_keep_their_names(workspace: Path, paths: list[str], names: list[str]) -> None:
    assert sorted(bring(FileSource("file", tuple(paths)), workspace)) == sorted(names)


def test_an_absolute_path_and_the_home_are_understood(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {"train.txt": b"data/en/train.txt"}
    assert bring(FileSource("file", (str(workspace / "data/en/train.txt"),)), workspace) == expected
    monkeypatch.setenv("HOME", str(workspace))
    assert bring(FileSource("file", ("~/data/en/train.txt",)), workspace) == expected


def test_hashes_are_checked_in_the_order_of_the_names(workspace: Path) -> None:
    hashes = tuple(hashlib.sha256(name).hexdigest() for name in (b"data/de/train.txt", b"data/en/train.txt"))
    source = FileSource("file", ("data/*/train.txt",), hashes)
    assert sorted(bring(source, workspace)) == ["de/train.txt", "en/train.txt"]
    with pytest.raises(UserError, match=r"file source: .*train\.txt has sha256"):
        bring(FileSource("file", ("data/*/train.txt",), hashes[::-1]), workspace)
    with pytest.raises(UserError, match=r"1 hashes for 2 files.*de/train\.txt, en/train\.txt"):
        bring(FileSource("file", ("data/*/train.txt",), (WRONG,)), workspace)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("data/en/trian.txt", r"data/en/trian\.txt matches no file; .* has train\.txt"),
        ("data/*/nothing", "matches no file"),
        ("nowhere/*.txt", "matches no file"),
        ("data/en", r"data/en is a folder; give a glob such as data/en/\*\*"),
        ("broken", "a link to a file that does not exist"),
        ("pipe", "not a regular file"),
    ],
)
def test_what_is_not_there_is_reported_with_what_is(workspace: Path, path: str, message: str) -> None:
    (workspace / "broken").symlink_to(workspace / "gone")
    os.mkfifo(workspace / "pipe")
    with pytest.raises(UserError, match=message):
        bring(FileSource("file", (path,)), workspace)
    assert nothing_left(workspace)


@pytest.mark.parametrize("loops", [1, 3])
def test_a_link_to_its_own_folder_adds_nothing(workspace: Path, loops: int) -> None:
    for i in range(loops):  # each path below two of them leads to two more
        (workspace / "data" / f"loop{i}").symlink_to(".")
    assert sorted(bring(FileSource("file", ("data/**/*.txt",)), workspace)) == ["de/train.txt", "en/train.txt"]


def test_links_out_of_the_folder_are_followed(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "more.txt").write_text("more")
    (workspace / "data" / "out").symlink_to(elsewhere)
    (workspace / "data" / "latest").symlink_to("en")
    files = bring(FileSource("file", ("data/**/*.txt",)), workspace)
    assert sorted(files) == ["de/train.txt", "en/train.txt", "out/more.txt"]
    # A folder that is also reached by a name that does not match is not lost.
    assert sorted(bring(FileSource("file", ("data/l*/*.txt",)), workspace)) == ["latest/train.txt"]
    assert sorted(bring(FileSource("file", ("data/e*/*.txt", "data/l*/*.txt")), workspace)) == ["latest/train.txt"]


def test_a_file_named_like_the_manifest_is_refused(workspace: Path) -> None:
    (workspace / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match=r"manifest\.json, a reserved name"):
        bring(FileSource("file", ("manifest.json",)), workspace)
    assert nothing_left(workspace)
