"""Files in other encodings than UTF-8: which are read, which encoding a file has, what is said of a wrong one."""

import gzip
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base.encodings import WIDE, codec_name
from lexmill.base.errors import UserError
from lexmill.base.strict import build
from lexmill.corpora.preparing import pieces
from lexmill.corpora.preparing.source_files import SourceFiles
from lexmill.corpora.preparing.spans import large_units
from lexmill.corpora.preparing.text_files import lines, whole_text
from lexmill.params.readers import TextReader
from tests.corpora.made_cuts import CORPORA, cut, same
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all

TEXT = "one é\r\n\n\u4e2d\u6587 😀\u2028\nlast"
LINES = {"format": "text", "document": "line"}


def written(folder, data):
    path = folder / "file.txt"
    path.write_bytes(data)
    return path


def texts_of(path, encoding):
    return [line for _, line in lines(path, encoding)]


@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_utf16_and_utf32_are_read_as_their_text(tmp_path, encoding, mark):
    codec = encoding if encoding.endswith("e") else f"{encoding}-le"
    data = (mark + TEXT).encode(codec)
    for packed in (data, gzip.compress(data)):
        path = written(tmp_path, packed)
        assert texts_of(path, encoding) == ["one é", "", "\u4e2d\u6587 😀\u2028", "last"]
        assert whole_text(path, encoding) == TEXT.replace("\r\n", "\n")
    if mark:  # it says the byte order
        assert texts_of(written(tmp_path, data), encoding[:6])[0] == "one é"
    assert texts_of(written(tmp_path, mark.encode(codec)), encoding) == []


@given(st.lists(st.text("aé\u4e2d😀\u0a0d\u0d0a\r", max_size=9), max_size=9), st.sampled_from(WIDE))
def test_a_newline_is_a_character_not_a_byte(tmp_path_factory, wanted, encoding):
    data = "\ufeff".join(["", "".join(f"{line}\r\n" for line in wanted)])
    path = written(
        tmp_path_factory.mktemp("wide"), data.encode(encoding if encoding.endswith("e") else f"{encoding}-be")
    )
    assert texts_of(path, encoding) == wanted


@pytest.mark.parametrize(
    ("data", "encoding", "said"),
    [
        ("a\nb".encode("utf-16-le") + b"c", "utf-16", ":2: not UTF-16-LE (truncated data)"),
        ("a\n".encode("utf-16-le") + b"\x00\xd8a\0", "utf-16-le", ":2: not UTF-16-LE (illegal UTF-16 surrogate)"),
        ("a\n\n".encode("utf-32-le") + b"\xff" * 4, "utf-32", ":3: not UTF-32-LE (code point"),
        ("a\n\0".encode("utf-16"), "utf-16", ":2: a NUL byte"),
        (b"plain text\n", "utf-16", ":1: not UTF-16 but UTF-8; set reader.encoding: utf-8 (init: --encoding utf-8)"),
        (
            "\ufefftext".encode("utf-16-be"),
            "utf-16-le",
            ":1: not UTF-16-LE but UTF-16-BE; set reader.encoding: utf-16-be",
        ),
        (
            "text\n".encode("utf-16"),
            "utf-8",
            ":1: the file is UTF-16; set reader.encoding: utf-16 (init: --encoding utf-16)",
        ),
        ("text\n".encode("utf-16"), "iso8859-1", ":1: the file is UTF-16; set reader.encoding: utf-16"),
        ("text\n".encode("utf-32"), "utf-8", ":1: the file is UTF-32; set reader.encoding: utf-32"),
        ("text\n".encode("utf-16-le"), "utf-8", ":1: the file seems to be UTF-16-LE; set reader.encoding: utf-16-le"),
        ("text ä\n".encode("utf-16-be"), "utf-8", ":1: the file seems to be UTF-16-BE; set reader.encoding: utf-16-be"),
        ("text\n".encode("utf-32-le"), "utf-8", ":1: the file seems to be UTF-32-LE; set reader.encoding: utf-32-le"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_its_remedy(tmp_path, data, encoding, said):
    path = written(tmp_path, data)
    with pytest.raises(UserError) as caught:
        texts_of(path, encoding)
    assert str(caught.value).startswith(f"{path}{said}")


def test_what_precedes_a_wrong_character_is_read(tmp_path):
    path = written(tmp_path, "\n".join(map(str, range(50_000))).encode("utf-16") + b"\n\0\0\xd8")
    numbered = lines(path, "utf-16")
    assert [next(numbered)[1] for _ in range(50_000)][-1] == "49999"
    with pytest.raises(UserError, match=r"txt:50001: "):
        next(numbered)


def test_a_large_file_in_utf16_takes_the_memory_of_a_block(tmp_path):
    path = written(tmp_path, ("a line\n" * 1_000_000).encode("utf-16"))
    tracemalloc.start()
    try:
        assert sum(1 for _ in lines(path, "utf-16")) == 1_000_000
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


def test_a_file_in_utf16_is_read_whole(tmp_path):
    """Its lines do not end at a byte."""
    folder = make_source(tmp_path, {"a.txt": ("one\n" * 99).encode("utf-16"), "b.txt": "two\n" * 99})
    corpus = corpus_of("text", {**LINES, "encodings": {"a.txt": "utf-16"}})
    assert same(corpus, folder, 50) > 2
    items = cut(corpus, folder, 50)
    assert [item["units"][0][0] for item in items if "span" not in item] == ["a"]
    assert large_units(corpus, [("a", ("a.txt",))], SourceFiles(folder), 50) == []
    assert pieces.cut([("a", ("a.txt",))], SourceFiles(folder), 50, {})[0]["units"] == [("a", ("a.txt",))]


# ---------------------------------------------------------------- an encoding for each file


def test_files_have_encodings_of_their_own(tmp_path):
    folder = make_source(
        tmp_path, {"old/1.txt": b"caf\xe9\n", "new/1.txt": "café\n", "x.txt.gz": gzip.compress(b"\x80\n")}
    )
    corpus = corpus_of("text", {**LINES, "encodings": {"old/*.txt": "latin-1", "x.txt": "cp1252"}})
    records, errors = read_all(corpus, folder)
    assert not errors
    assert {record.id: record.text for record in records} == {"old/1:1": "café", "new/1:1": "café", "x:1": "€"}


@pytest.mark.parametrize("side", ["en", "de"])
def test_both_sides_of_a_pair_have_theirs(tmp_path, side):
    files = {f"a.{end}": "ä\n".encode("utf-16" if end == side else "utf-8") for end in ("en", "de")}
    reader = {"format": "parallel_text", "source": ["*.en"], "target": ["*.de"], "encodings": {f"*.{side}": "utf-16"}}
    records, errors = read_all(corpus_of("parallel", reader), make_source(tmp_path, files))
    assert not errors
    assert [record.sides for record in records] == [("ä", "ä")]


@pytest.mark.parametrize(
    ("reader", "data"),
    [
        ({"format": "csv", "text": "t", "label": "l"}, "t,l\né,x\n"),
        ({"format": "jsonl", "text": "t", "label": "l"}, '{"t": "é", "l": "x"}\n'),
        ({"format": "labelled_lines"}, "x é\n"),
    ],
)
def test_every_reader_of_text_knows_them(tmp_path, reader, data):
    folder = make_source(tmp_path, {"a.txt": data.encode("utf-16"), "b.txt": data.encode("latin-1")})
    corpus = corpus_of("labelled", {**reader, "encoding": "latin-1", "encodings": {"a.*": "utf-16"}})
    records, errors = read_all(corpus, folder)
    assert not errors, error_texts(errors)
    assert [(record.text, record.label) for record in records] == [("é", "x"), ("é", "x")]


@pytest.mark.parametrize(
    ("encodings", "said"),
    [
        ({"c.txt": "latin-1"}, "reader.encodings: no file matches 'c.txt'; there are: a.txt, b.txt"),
        (
            {"*.txt": "latin-1", "a.*": "cp1252"},
            "reader.encodings: a.txt matches '*.txt' (iso8859-1) and 'a.*' (cp1252)",
        ),
    ],
)
def test_globs_that_give_no_encoding_or_two_are_errors(tmp_path, encodings, said):
    folder = make_source(tmp_path, {"a.txt": "x", "b.txt": "y"})
    (error,) = error_texts(read_all(corpus_of("text", {**LINES, "encodings": encodings}), folder)[1])
    assert said in error


def test_two_globs_may_give_one_encoding(tmp_path):
    folder = make_source(tmp_path, {"a.txt": b"\xe9", "b.txt": b"\xe9"})
    corpus = corpus_of("text", {**LINES, "encodings": {"*.txt": "latin-1", "a.*": "ISO-8859-1"}})
    assert [record.text for record in read_all(corpus, folder)[0]] == ["é", "é"]


def test_all_names_of_encodings_are_checked_at_once():
    errors = []
    encodings = {"a": "latin-17", "b": "hex", "c": "cp037", "d": "utf-16", "../e": "utf-8"}
    build(TextReader, {"format": "text", "encoding": "utf-9", "encodings": encodings}, errors, "reader")
    assert [error.partition(";")[0] for error in errors] == [
        "reader.encoding: 'utf-9' is unknown",
        "reader.encodings.a: 'latin-17' is unknown",
        "reader.encodings.b: 'hex' is unknown",
        "reader.encodings.c: 'cp037' cannot be read line by line",
        "reader.encodings[4]: '../e' leads out of the source's files",
    ]


def test_an_encoding_has_one_name():
    assert codec_name("UTF8") == codec_name("utf-8-sig") == "utf-8"
    assert codec_name("latin-1") == "iso8859-1"
    assert codec_name("UTF_16LE") == "utf-16-le"
    assert set(map(codec_name, WIDE)) == set(WIDE)
    assert CORPORA["latin-1"].reader.encoding == "latin-1"
