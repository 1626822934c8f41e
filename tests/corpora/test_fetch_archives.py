"""Members out of archives: every format, the globs, and what is refused."""

from __future__ import annotations

import glob
import gzip
import os
import stat
import tarfile
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from lexmill.corpora.fetching import source_folder
from lexmill.corpora.fetching.archives import extract
from lexmill.corpora.fetching.globs import matches
from lexmill.corpora.fetching.source_folder import SourceFolder
from tests.support.package_index import COMPRESSORS, deb_bytes, tar_bytes, zip_bytes

FILES = {"top/a/one.txt": b"1" * 100_000, "top/a/.hidden.txt": b"h", "top/b/two.txt": b"22", "top/three.md": b"333"}


def taken(folder: Path, data: bytes, *globs: str, strip_top: bool = False) -> Mapping[str, bytes]:
    """What `extract` writes for an archive of these bytes."""
    archive = folder / "archive"
    archive.write_bytes(data)
    out = folder / "out"
    out.mkdir()
    target = SourceFolder(out)
    extract(archive, globs, target, strip_top=strip_top)
    found = {entry["path"]: (out / entry["path"]).read_bytes() for entry in target.files}
    assert sorted(found) == sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    return found


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_tar_is_read_however_it_is_compressed(tmp_path: Path, suffix: str) -> None:
    data = COMPRESSORS[suffix](tar_bytes(FILES))
    assert taken(tmp_path, data, "top/*/*.txt") == {name: FILES[name] for name in ("top/a/one.txt", "top/b/two.txt")}


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_a_debian_package_gives_its_data(tmp_path: Path, suffix: str) -> None:
    data = COMPRESSORS[suffix](tar_bytes({f"./{name}": contents for name, contents in FILES.items()}))
    # Signed packages carry a further member after the data.
    package = deb_bytes(data, suffix) + f"{'_gpgorigin':<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{4:<10}`\nsign".encode()
    assert taken(tmp_path, package, "top/three.md") == {"top/three.md": b"333"}


def test_a_zip_is_read_and_the_top_folder_can_be_left_out(tmp_path: Path) -> None:
    assert taken(tmp_path, zip_bytes(FILES), "a/*", "three.md", strip_top=True) == {
        "a/one.txt": FILES["top/a/one.txt"],
        "three.md": b"333",
    }


def test_an_inner_archive_is_looked_into(tmp_path: Path) -> None:
    innermost = zip_bytes({"deep/x.txt": b"x", "deep/y.txt": b"y"})
    inner = gzip.compress(tar_bytes({"d/data.zip": innermost, "d/z.txt": b"z"}))
    outer = zip_bytes({"p/in.tar.gz": inner, "p/other.txt": b"o"})
    assert taken(tmp_path, outer, "p/in.tar.gz!z.txt", "p/in.tar.gz!*.zip!x.txt", "p/other.txt") == {
        "p/in.tar.gz/d/z.txt": b"z",
        "p/in.tar.gz/d/data.zip/deep/x.txt": b"x",
        "p/other.txt": b"o",
    }


def test_an_inner_archive_may_also_be_wanted_itself(tmp_path: Path) -> None:
    inner = zip_bytes({"x.txt": b"x"})
    found = taken(tmp_path, zip_bytes({"in.zip": inner}), "in.zip", "in.zip!x.txt")
    assert found == {"in.zip": inner, "in.zip!/x.txt": b"x"}


# ---------------------------------------------------------------- globs

NAMES = st.lists(st.text("ab.", min_size=1, max_size=3).filter(lambda part: part.strip(".")), min_size=1, max_size=4)
GLOBS = st.lists(st.sampled_from(["*", "**", "a", "b", "?", "*a", "a*", "[ab]", ".*", "*.b"]), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(names=st.lists(NAMES, min_size=1, max_size=6), parts=GLOBS)
def test_globs_agree_with_those_of_a_real_folder(
    tmp_path_factory: pytest.TempPathFactory, names: list[list[str]], parts: list[str]
) -> None:
    root = tmp_path_factory.mktemp("tree")
    files = []
    for name in names:
        path = root.joinpath(*name)
        if not path.exists() and all(not parent.is_file() for parent in path.parents):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"")
            files.append("/".join(name))
    pattern = "/".join(parts)
    found = glob.glob(pattern, root_dir=root, recursive=True)
    expected = {name for name in found if (root / name).is_file()}
    assert {name for name in files if matches(name, f"/{pattern}")} == expected


def test_a_glob_without_a_slash_is_looked_for_everywhere_unless_tied_to_the_top() -> None:
    assert matches("a/b/c.txt", "*.txt")
    assert not matches("a/b/._c.txt", "*.txt")
    assert not matches("a/c.txt", "/*.txt")
    assert matches("c.txt", "/*.txt")


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "C:/x", "a\\..\\x", "a/\n"])
@pytest.mark.parametrize("pack", [tar_bytes, zip_bytes])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str, pack: object) -> None:
    assert callable(pack)
    with pytest.raises(UserError, match="unsafe path"):
        taken(tmp_path, pack({"good": b"1", name: b"2"}), "**")
    assert list((tmp_path / "out").iterdir()) in ([], [tmp_path / "out" / "good"])


def test_a_wanted_link_is_refused_and_others_are_passed_over(tmp_path: Path) -> None:
    data = tar_bytes({"a/x.txt": b"x"}, links={"a/evil": "/etc/passwd"})
    assert taken(tmp_path, data, "*.txt") == {"a/x.txt": b"x"}
    with pytest.raises(UserError, match="'a/evil' is a link"):
        extract(tmp_path / "archive", ["a/*"], SourceFolder(_new(tmp_path)))


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("evil")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(UserError, match="is a link"):
        taken(tmp_path, out.getvalue(), "evil")


def test_hard_links_and_devices_are_never_made(tmp_path: Path) -> None:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        hard = tarfile.TarInfo("hard")
        hard.type, hard.linkname = tarfile.LNKTYPE, "/etc/passwd"
        archive.addfile(hard)
        device = tarfile.TarInfo("device")
        device.type = tarfile.CHRTYPE
        archive.addfile(device)
    with pytest.raises(UserError, match="'hard' is a link"):
        taken(tmp_path, out.getvalue(), "hard")
    with pytest.raises(UserError, match="no member matches 'device'"):
        extract(tmp_path / "archive", ["device"], SourceFolder(_new(tmp_path)))


def test_a_bomb_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_folder, "ROOM", 1000)
    bomb = gzip.compress(b"\0" * 10_000_000)
    for data in (gzip.compress(tar_bytes({"x": b"\0" * 10_000_000})), zip_bytes({"x": b"\0" * 10_000_000})):
        with pytest.raises(UserError, match="archive bomb"):
            extract(_file(tmp_path, data), ["x"], SourceFolder(_new(tmp_path)))
    # Also where it is hidden in an inner archive, on its way to a file that is not even wanted.
    inner = zip_bytes({"in.tar.gz": gzip.compress(tar_bytes({"x": bomb, "y": b"\0" * 10_000_000}))})
    with pytest.raises(UserError, match="archive bomb"):
        extract(_file(tmp_path, inner), ["in.tar.gz!y"], SourceFolder(_new(tmp_path)))


def test_the_same_name_twice_and_a_file_that_is_a_folder_are_refused(tmp_path: Path) -> None:
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for data in (b"1", b"2"):
            info = tarfile.TarInfo("x")
            info.size = 1
            archive.addfile(info, BytesIO(data))
    with pytest.raises(UserError, match="'x' twice"):
        taken(tmp_path, out.getvalue(), "x")
    for files in ({"x": b"1", "x/y": b"2"}, {"x/y": b"2", "x": b"1"}):
        with pytest.raises(UserError, match="both a file and a folder"):
            extract(_file(tmp_path, tar_bytes(files)), ["**"], SourceFolder(_new(tmp_path)))


def test_a_missing_member_is_reported_with_the_nearest_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no member matches 'top/b/tow.txt' \(4 files; nearest: top/b/two.txt"):
        taken(tmp_path, zip_bytes(FILES), "top/b/tow.txt", "top/three.md")


DAMAGED = {
    "empty": b"",
    "text": b"no archive at all",
    "gzip without tar": gzip.compress(b"no tar"),
    "cut gzip": gzip.compress(tar_bytes(FILES))[:-200],
    "cut zip": zip_bytes(FILES)[:-30],
    "cut zstd": COMPRESSORS[".zst"](tar_bytes(FILES))[:-50],
    "cut xz": COMPRESSORS[".xz"](tar_bytes(FILES))[:-50],
    "empty ar": b"!<arch>\n",
    "ar of rubbish": b"!<arch>\n" + b"x" * 60,
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_reported_in_one_sentence(tmp_path: Path, damage: str) -> None:
    with pytest.raises(UserError) as caught:
        taken(tmp_path, DAMAGED[damage], "top/a/one.txt")
    assert "\n" not in str(caught.value)


def test_a_flipped_byte_is_seen(tmp_path: Path) -> None:
    data = bytearray(zip_bytes({"x": os.urandom(1000)}))
    data[500] ^= 1
    with pytest.raises(UserError, match="damaged"):
        taken(tmp_path, bytes(data), "x")


def test_an_encrypted_zip_is_reported(tmp_path: Path) -> None:
    data = bytearray(zip_bytes({"x": b"1"}))
    data[data.index(b"PK\1\2") + 8] |= 1
    with pytest.raises(UserError, match="encrypted"):
        taken(tmp_path, bytes(data), "x")


def _file(folder: Path, data: bytes) -> Path:
    path = folder / "archive"
    path.write_bytes(data)
    return path


def _new(folder: Path) -> Path:
    path = folder / f"out{len(list(folder.iterdir()))}"
    path.mkdir()
    return path
