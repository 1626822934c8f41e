"""Archives: bombs are refused by name within a budget of memory; mutated ones end in a message or their members."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given

from lexmill.base import budgets
from lexmill.base.errors import UserError
from lexmill.corpora.fetching import archives, source_folder, tar_stream
from lexmill.corpora.fetching.archives import extract
from lexmill.corpora.fetching.source_folder import SourceFolder
from tests.fuzz.budget import empty_folder, fuzzed, limited, mutated, outcome
from tests.support.package_index import COMPRESSORS, deb_bytes, tar_bytes, zip_bytes


def unpack(archive: str, out: str, *globs: str) -> None:
    folder = Path(out)
    folder.mkdir()
    extract(Path(archive), globs or ("**",), SourceFolder(folder))


def unpack_in_little_room(*arguments: str) -> None:
    source_folder.ROOM = 64 << 20
    unpack(*arguments)


def bomb(folder: Path, data: bytes, *globs: str, megabytes: float = 60) -> str:
    """Unpack a bomb in a process of its own, with 64 MiB of `ROOM`, so that it may be small."""
    (folder / "bomb").write_bytes(data)
    return limited(
        "tests.fuzz.test_archives:unpack_in_little_room",
        str(folder / "bomb"),
        str(folder / "out"),
        *globs,
        megabytes=megabytes,
    )


def header(name: str, size: int, kind: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


ZEROS = bytes(120 << 20)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_name_of_3_gb_is_refused_before_it_is_read(tmp_path: Path, kind: bytes) -> None:
    data = gzip.compress(header("././@LongLink", 3 << 30, kind)) + gzip.compress(ZEROS)
    assert "claims 3,221,225,472 bytes, more than 1 MiB" in bomb(tmp_path, data)


def test_what_is_skipped_counts_too(tmp_path: Path) -> None:
    data = gzip.compress(header("big", len(ZEROS), tarfile.REGTYPE) + ZEROS)
    assert "archive bomb" in bomb(tmp_path, data, "small.txt")


def test_headers_without_end_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tar_stream, "MAX_MEMBERS", 2000)
    chain = header("x", 0, tarfile.XHDTYPE) * 2001
    (tmp_path / "chain.tar").write_bytes(chain)
    with pytest.raises(UserError, match="more than 2,000 members"):
        unpack(str(tmp_path / "chain.tar"), str(tmp_path / "out"))


def test_a_tar_of_many_members_takes_no_memory(tmp_path: Path) -> None:
    data = gzip.compress(header("x", 0, tarfile.REGTYPE) * 10_000, 1)
    assert "no member matches 'wanted'" in bomb(tmp_path, data, "wanted", megabytes=12)


def test_a_zip_of_many_members_is_refused_before_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_MEMBERS", 100)
    (tmp_path / "a.zip").write_bytes(zip_bytes({str(i): b"" for i in range(101)}))
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(UserError, match="more than 100 members"):
        unpack(str(tmp_path / "a.zip"), str(tmp_path / "out"))


@pytest.mark.parametrize("packer", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_bomb_takes_no_memory(tmp_path: Path, packer: int) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", packer) as archive, archive.open("x", "w") as member:
        member.write(ZEROS)
    assert "archive bomb" in bomb(tmp_path, out.getvalue())


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, zstandard.compress])
def test_a_compressed_bomb_takes_no_memory(tmp_path: Path, pack: object) -> None:
    data = header("x", len(ZEROS), tarfile.REGTYPE) + ZEROS
    assert "archive bomb" in bomb(tmp_path, pack(data))


def test_an_xz_dictionary_beyond_its_budget_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1536 << 20}]
    data = bytearray(lzma.compress(tar_bytes({"a": b"a"}), filters=[{**filters[0], "dict_size": 1 << 20}]))
    assert budgets.MAX_XZ_MEMORY < 1536 << 20
    at = data.index(bytes([0x21, 1])) + 2  # LZMA2's filter id, one byte of properties: the size of the dictionary
    data[at] = 37  # 1.5 GiB
    size = (data[12] + 1) * 4
    data[12 + size - 4 : 12 + size] = zlib.crc32(bytes(data[12 : 12 + size - 4])).to_bytes(4, "little")
    assert "Memory usage limit" in bomb(tmp_path, bytes(data))


def test_a_sparse_member_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(header("holes.txt", 0, tarfile.GNUTYPE_SPARSE) + bytes(1024))
    with pytest.raises(UserError, match=r"'holes\.txt' is a sparse file"):
        unpack(str(tmp_path / "a.tar"), str(tmp_path / "out"))


FILES = {"top/a.txt": b"one\n" * 50, "top/" + "long" * 40 + "/b.txt": b"two", "top/c": b""}
PLAIN = tar_bytes(FILES)
GNU = io.BytesIO()
with tarfile.open(fileobj=GNU, mode="w", format=tarfile.GNU_FORMAT) as made:
    for name, contents in FILES.items():
        one = tarfile.TarInfo(name)
        one.size = len(contents)
        made.addfile(one, io.BytesIO(contents))
SEEDS = {
    "tar": [PLAIN, GNU.getvalue()],
    "packed": [pack(PLAIN) for suffix, pack in COMPRESSORS.items() if suffix] + [bz2.compress(PLAIN)],
    "zip": [zip_bytes(FILES), zip_bytes({"in.tar": PLAIN})],
    "deb": [deb_bytes(COMPRESSORS[suffix](PLAIN), suffix) for suffix in ("", ".xz", ".zst")],
}


@pytest.mark.parametrize("kind", SEEDS)
def test_any_bytes_end_in_members_or_a_message(kind: str) -> None:
    @fuzzed(60)
    @given(mutated(SEEDS[kind]))
    def check(data: bytes) -> None:
        with empty_folder() as folder:
            (folder / "archive").write_bytes(data)
            outcome(lambda: unpack(str(folder / "archive"), str(folder / "out"), "**", "*.tar!*"))
            for path in folder.rglob("*"):
                path.resolve().relative_to(folder.resolve())

    check()
