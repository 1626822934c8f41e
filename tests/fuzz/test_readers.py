"""Corpus readers: any bytes end in records or in errors with the file; the costs of hostile files are bounded."""

from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given

from lexmill.base.errors import UserError, UserErrors
from lexmill.corpora.preparing.prepare import prepare
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all
from tests.fuzz.budget import empty_folder, fuzzed, limited, mutated, outcome


def parquet(table: dict[str, Any], **choices: Any) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(table), out, **choices)
    return out.getvalue()


TEXT = "one two\n\nthree äöü\r\nfour\n".encode()
ROWS = b'text,label\n"a, ""b""",x\nc,y\n"d\ne",x\n'
LINES = b'{"text": "a", "label": 1}\n\n{"text": "b\\n\\u00e4", "label": "x"}\n'
TABLE = parquet({"text": ["a", "b", None, "d"] * 20, "label": ["x", "y", "x", "z"] * 20}, row_group_size=30)
TREE = b'{"a": {"b": "text", "c": ["x"]}, "d": "more"}'
RECORDS = {"text": "text", "label": "label"}
KINDS: dict[str, tuple[str, dict[str, Any], list[bytes]]] = {
    "file": ("text", {"format": "text"}, [TEXT, gzip.compress(TEXT), zstandard.compress(TEXT)]),
    "paragraph": ("text", {"format": "text", "document": "paragraph"}, [TEXT]),
    "line": ("text", {"format": "text", "document": "line", "encoding": "latin-1"}, [TEXT, gzip.compress(TEXT)]),
    "csv": ("labelled", {"format": "csv", **RECORDS}, [ROWS, gzip.compress(ROWS)]),
    "tsv": ("labelled", {"format": "tsv", "quoting": False, **RECORDS}, [ROWS.replace(b",", b"\t")]),
    "jsonl": ("labelled", {"format": "jsonl", **RECORDS}, [LINES, zstandard.compress(LINES)]),
    "parquet": ("labelled", {"format": "parquet", **RECORDS}, [TABLE, parquet({"text": ["a"], "label": [1]})]),
    "parallel": ("parallel", {"format": "parallel_text", "source": ["a.en"], "target": ["a.de"]}, [TEXT]),
    "tree": ("parallel", {"format": "translation_tree", "source": "a/{group}.en", "target": "a/{group}.de"}, [TREE]),
}


@pytest.mark.parametrize("name", KINDS)
def test_any_bytes_end_in_records_or_errors_with_their_file(name: str) -> None:
    kind, reader, seeds = KINDS[name]
    corpus = corpus_of(kind, reader)

    @fuzzed(60)
    @given(mutated(seeds))
    def check(data: bytes) -> None:
        files = {"parallel": {"a.en": data, "a.de": seeds[0]}, "tree": {"a/x.en": data, "a/x.de": seeds[0]}}
        with empty_folder() as folder:
            source = make_source(folder / "source", files.get(name, {"a.txt": data}))

            def read() -> None:
                _, errors = read_all(corpus, source)
                assert all("/a" in text for text in error_texts(errors)), error_texts(errors)
                errors.raise_all()
                prepare("made", corpus, source, folder / "out")

            outcome(read)

    check()


def test_a_parquet_column_that_is_not_utf_8_is_reported_by_row(tmp_path: Path) -> None:
    binary = pyarrow.array([b"good", b"\xff\xfe", b"fine"])
    data = parquet({"text": pyarrow.StringArray.from_buffers(3, binary.buffers()[1], binary.buffers()[2])})
    records, errors = read_all(
        corpus_of("text", {"format": "parquet", "text": "text"}), make_source(tmp_path, {"a": data})
    )
    assert [record.text for record in records] == ["good", "fine"]
    (message,) = error_texts(errors)
    assert message.startswith(f"{tmp_path / 'a'}: row 2: a value cannot be read ('utf-8' codec")


def test_a_row_group_over_its_budget_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lexmill.corpora.preparing.readers import tables

    monkeypatch.setattr(tables, "MAX_ROW_GROUP_BYTES", 100)
    source = make_source(
        tmp_path, {"a": parquet({"text": ["some text"] * 3, "other": [str(i) * 90 for i in range(3)]})}
    )
    assert read_all(corpus_of("text", {"format": "parquet", "text": "text"}), source)[1].count == 0
    _, errors = read_all(corpus_of("text", {"format": "parquet", "text": "other"}), source)
    assert "row group 0 claims" in error_texts(errors)[0]


def read_in_turn(folder: str, kind: str, **reader: str) -> None:
    """Read a source without holding its records, as prepare does."""
    from lexmill.corpora.preparing import readers
    from lexmill.corpora.preparing.errors import Errors
    from lexmill.corpora.preparing.source_files import SourceFiles

    errors = Errors()
    for _ in readers.read(corpus_of("text", {"format": kind, **reader}), SourceFiles(folder), errors):
        pass
    errors.raise_all()


def read_table(folder: str) -> None:
    read_in_turn(folder, "parquet", text="text")


def read_lines(folder: str) -> None:
    read_in_turn(folder, "jsonl", text="text")


def read_text(folder: str) -> None:
    read_in_turn(folder, "text")


def test_one_text_a_hundred_times_in_a_small_parquet_takes_its_memory_once(tmp_path: Path) -> None:
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 100, pyarrow.int32()), ["x" * (15 << 20)])
    data = parquet({"text": column}, compression="zstd", dictionary_pagesize_limit=1 << 30)
    assert len(data) < 10_000
    source = make_source(tmp_path / "source", {"a.parquet": data})
    assert limited("tests.fuzz.test_readers:read_table", str(source), megabytes=250) == ""


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("read", ["read_text", "read_lines"])
def test_a_compressed_line_without_end_takes_no_memory(tmp_path: Path, pack: Any, read: str) -> None:
    source = make_source(tmp_path / "source", {"a": pack(b"a" * (300 << 20))})
    assert "the line is longer than 16 MiB" in limited(f"tests.fuzz.test_readers:{read}", str(source), megabytes=150)


def test_json_nested_without_end_is_an_error_of_its_line(tmp_path: Path) -> None:
    deep = '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}\n"
    source = make_source(tmp_path, {"a.jsonl": '{"text": "a"}\n' + deep})
    _, errors = read_all(corpus_of("text", {"format": "jsonl", "text": "text"}), source)
    assert error_texts(errors) == [f"{tmp_path / 'a.jsonl'}:2: not valid JSON: nested too deep, or a number too long"]


@pytest.mark.parametrize("manifest", [b"[]", b'{"files": [{"path": 1}]}', b"{", b"\xff", b"[" * 100_000])
def test_a_damaged_manifest_is_named(tmp_path: Path, manifest: bytes) -> None:
    source = make_source(tmp_path, {"a": "x"})
    (source / "manifest.json").write_bytes(manifest)
    with pytest.raises((UserError, UserErrors), match=r"manifest\.json"):
        read_all(corpus_of("text", {"format": "text"}), source)
