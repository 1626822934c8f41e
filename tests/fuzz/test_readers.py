"""Corpus readers: any bytes end in records or in errors with the file; the costs of hostile files are bounded."""

from __future__ import annotations

import gzip
import io
import random
import struct
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard
from hypothesis import given

from lexmill.base.errors import UserError, UserErrors
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.readers.parquet_pages import check_pages
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all
from tests.fuzz.budget import empty_folder, fuzzed, limited, mutated, outcome


def parquet(table: dict[str, Any], **choices: Any) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(table), out, **choices)
    return out.getvalue()


TEXT = "one two\n\nthree äöü\r\nfour\n".encode()
ROWS = b'text,label\n"a, ""b""",x\nc,y\n"d\ne",x\n'
LINES = b'{"text": "a", "label": 1}\n\n{"text": "b\\n\\u00e4", "label": "x"}\n'
ARRAY = b'[{"text": "a", "label": 1},\n {"text": "\\u00e4", "label": "x"}]'
TABLE = parquet({"text": ["a", "b", None, "d"] * 20, "label": ["x", "y", "x", "z"] * 20}, row_group_size=30)
TREE = b'{"a": {"b": "text", "c": ["x"]}, "d": "more"}'
TMX = (
    b"<?xml version='1.0'?><!DOCTYPE tmx SYSTEM 'tmx14.dtd'>\n<tmx><body><tu><tuv xml:lang='en'><seg>a <ph>x</ph>&amp;"
    b"</seg></tuv>\n<tuv xml:lang='de-AT'><seg>\xc3\xa4<hi>b</hi></seg></tuv></tu></body></tmx>"
)
ENTITIES = b"<!DOCTYPE tmx [<!ENTITY a 'aaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'>]><tmx><tu>&b;</tu></tmx>"
UNIT = b"<source>a <g id='1'>b</g></source><target>c<x/></target>"
XLIFF1 = (
    b"<xliff><file source-language='en' target-language='de'>\n<trans-unit>" + UNIT + b"</trans-unit></file></xliff>"
)
XLIFF2 = b"<xliff srcLang='en' trgLang='de'>\n<file><unit><segment>" + UNIT + b"</segment></unit></file></xliff>"
PO = (
    b'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgctxt "c"\nmsgid "a"\nmsgid_plural "b"\n'
    b'msgstr[0] "\xc3\xa4"\nmsgstr[1] "d"\n\n#, fuzzy\nmsgid "e"\n"f"\nmsgstr "g"\n'
)
MO = (
    struct.pack("<7I", 0x950412DE, 0, 2, 28, 44, 0, 0)
    + struct.pack("<8I", 1, 60, 1, 62, 3, 64, 3, 68)
    + b"a\0b\0c\0d\0e\0f\0"
)
COLUMNS = b"-DOCSTART- O\n\na I-x\nb B-x\n\n\xc3\xa4 O\n"
UD = b"# newdoc id = x\n1-2\tab" + b"\t_" * 8 + b"\n1\ta\t_\tX" + b"\t_" * 6 + b"\n\n2\tb\t_\tY" + b"\t_" * 6 + b"\n"
LISTS = b'{"words": ["a", "b"], "tags": ["B-x", "E-x"]}\n{"words": ["c"], "tags": ["O"]}\n'
NUMBERS = parquet({"words": [["a", "b"], ["c"]] * 9, "tags": [[0, 1], [0]] * 9}, row_group_size=7)
RECORDS = {"text": "text", "label": "label"}
KINDS: dict[str, tuple[str, dict[str, Any], list[bytes]]] = {
    "file": ("text", {"format": "text"}, [TEXT, gzip.compress(TEXT), zstandard.compress(TEXT)]),
    "paragraph": ("text", {"format": "text", "document": "paragraph"}, [TEXT]),
    "line": ("text", {"format": "text", "document": "line", "encoding": "latin-1"}, [TEXT, gzip.compress(TEXT)]),
    "utf-16": ("text", {"format": "text", "document": "line", "encoding": "utf-16"}, [TEXT.decode().encode("utf-16")]),
    "utf-32": ("text", {"format": "text", "encoding": "utf-32-le"}, [gzip.compress(TEXT.decode().encode("utf-32-le"))]),
    "folder": ("labelled", {"format": "text", "document": "line", "label_from": "folder"}, [TEXT, gzip.compress(TEXT)]),
    "labelled lines": ("labelled", {"format": "labelled_lines"}, [b"x a b\ny c\n\nx d\r\n", gzip.compress(TEXT)]),
    "csv": ("labelled", {"format": "csv", **RECORDS}, [ROWS, gzip.compress(ROWS)]),
    "tsv": ("labelled", {"format": "tsv", "quoting": False, **RECORDS}, [ROWS.replace(b",", b"\t")]),
    "jsonl": ("labelled", {"format": "jsonl", **RECORDS}, [LINES, zstandard.compress(LINES)]),
    "json": ("labelled", {"format": "json", **RECORDS}, [ARRAY, b'{"x": [1], "data": ' + ARRAY + b"}"]),
    "several labels": ("labelled", {"format": "csv", "text": "text", "labels": ["label", "text"]}, [ROWS]),
    "parquet": ("labelled", {"format": "parquet", **RECORDS}, [TABLE, parquet({"text": ["a"], "label": [1]})]),
    "conll": ("tagged", {"format": "conll", "scheme": "iob1"}, [COLUMNS, gzip.compress(COLUMNS)]),
    "conllu": ("tagged", {"format": "conllu", "group": "document"}, [UD, zstandard.compress(UD)]),
    "lists": ("tagged", {"format": "tagged_records", "scheme": "bioes"}, [LISTS]),
    "lists in parquet": (
        "tagged",
        {"format": "tagged_records", "file_format": "parquet", "names": ["O", "X"]},
        [NUMBERS],
    ),
    "parallel": ("parallel", {"format": "parallel_text", "source": ["a.en"], "target": ["a.de"]}, [TEXT]),
    "tmx": ("parallel", {"format": "tmx"}, [TMX, gzip.compress(TMX), TMX.decode().encode("utf-16"), ENTITIES]),
    "xliff": ("parallel", {"format": "xliff"}, [XLIFF1, XLIFF2]),
    "gettext": ("parallel", {"format": "gettext"}, [PO, gzip.compress(PO), MO]),
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
        files |= {"folder": {"a/x.txt": data, "a/y/z.txt": seeds[0]}}
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
    from lexmill.corpora.preparing.readers import parquet as reading

    monkeypatch.setattr(reading, "MAX_ROW_GROUP_BYTES", 100)
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


def read_memory(folder: str) -> None:
    """Read a translation memory without holding its pairs."""
    from lexmill.corpora.preparing import readers
    from lexmill.corpora.preparing.errors import Errors
    from lexmill.corpora.preparing.source_files import SourceFiles

    errors = Errors()
    for _ in readers.read(corpus_of("parallel", {"format": "tmx"}), SourceFiles(folder), errors):
        pass
    errors.raise_all()


@pytest.mark.parametrize(
    ("begin", "piece", "end", "said"),
    [
        ("<tmx><!--", "x" * 1000, "--></tmx>", "a tag or comment is longer than 1 MiB"),
        (
            "<tmx><tu><tuv xml:lang='en'><seg>",
            "x" * 1000,
            "</seg></tuv></tu></tmx>",
            "the text of a unit is longer than 16 Mi",
        ),
        ("<tmx>", "<a>" * 300, "</tmx>", "elements are nested deeper than 100"),
        ("<tmx>", "<a b='text'/>\n" * 70, "</tmx>", ""),
    ],
)
def test_a_small_xml_file_that_unpacks_to_much_takes_no_memory(
    tmp_path: Path, begin: str, piece: str, end: str, said: str
) -> None:
    data = gzip.compress(f"{begin}{piece * 50_000}{end}".encode())
    source = make_source(tmp_path / "source", {"a.tmx": data})
    found = limited("tests.fuzz.test_readers:read_memory", str(source), megabytes=150)
    assert said in found if said else found == ""


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


def number(value: int) -> bytes:
    """A whole number in Thrift's compact protocol."""
    value, out = value << 1, bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def page_of_zeros(size: int) -> bytes:
    """A page with one text of zeros, and its header."""
    packer, out = zstandard.ZstdCompressor().compressobj(), bytearray()
    for piece in ((size - 4).to_bytes(4, "little"), *(bytes(1 << 20) for _ in range(size // (1 << 20))), b"\0" * 4):
        out += packer.compress(piece[: size - 4])
    out += packer.flush()
    about = b"\x15" + number(1) + b"\x15" + number(0) + b"\x15" + number(3) + b"\x15" + number(3) + b"\0"
    return b"\x15" + number(0) + b"\x15" + number(size) + b"\x15" + number(len(out)) + b"\x2c" + about + b"\0" + out


def with_page(page: bytes) -> bytes:
    """A parquet file whose one page is another than its metadata say."""
    schema = pyarrow.schema([pyarrow.field("text", pyarrow.string(), nullable=False)])
    out = io.BytesIO()
    rows = pyarrow.table({"text": [random.Random(1).randbytes(100_000).hex()]}, schema=schema)
    pyarrow.parquet.write_table(rows, out, compression="zstd", use_dictionary=False, write_statistics=False)
    data = out.getvalue()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert len(page) < footer - 4
    return data[:4] + page.ljust(footer - 4, b"\0") + data[footer:]


def test_a_parquet_page_that_claims_more_than_its_metadata_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    data = with_page(page_of_zeros(600 << 20))
    assert len(data) < 300_000
    source = make_source(tmp_path / "source", {"a.parquet": data})
    said = limited("tests.fuzz.test_readers:read_table", str(source))
    assert "a.parquet: the page at byte 4 claims 629,145,600 bytes, more than 256 MiB; write it with smaller" in said


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_every_page_of_a_usual_file_is_found(version: str, compression: str, tmp_path: Path) -> None:
    texts = [f"text {i} {'x' * (i % 90)}" for i in range(20_000)]
    data = parquet(
        {"text": texts, "list": [[i, 2] for i in range(20_000)]},
        data_page_version=version,
        compression=compression,
        data_page_size=4096,
        row_group_size=7000,
        write_page_index=True,
        use_dictionary=["list.list.element"],
    )
    path = tmp_path / "a.parquet"
    path.write_bytes(data)
    with pyarrow.parquet.ParquetFile(path) as table:
        for group in range(table.metadata.num_row_groups):
            for column in range(2):
                check_pages(path, table.metadata.row_group(group).column(column))
    records, errors = read_all(
        corpus_of("text", {"format": "parquet", "text": "text"}), make_source(tmp_path / "s", {"a": data})
    )
    assert errors.count == 0
    assert [record.text for record in records] == texts
