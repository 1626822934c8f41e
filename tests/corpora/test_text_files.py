"""Lines end at "\\n" and nowhere else; every error has a line; memory is bounded."""

import gzip
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from lexmill.corpora.preparing import text_files
from lexmill.corpora.preparing.text_files import lines, whole_text


def written(folder, data):
    path = folder / "file.txt"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def texts(path, encoding="utf-8"):
    return [line for _, line in lines(path, encoding)]


def test_only_a_newline_ends_a_line(tmp_path):
    odd = "a\x85b\u2028c\u2029d\x0ce\x0bf\x1cg\x1dh\x1ei\rj"
    assert texts(written(tmp_path, f"{odd}\nnext\n")) == [odd, "next"]


def test_crlf_mark_empty_lines_and_a_missing_last_newline(tmp_path):
    path = written(tmp_path, "\ufeff\ufeffone\r\n\r\n\nfour\r\r\nlast")
    assert texts(path) == ["\ufeffone", "", "", "four\r", "last"]
    assert [number for number, _ in lines(path, "utf-8")] == [1, 2, 3, 4, 5]


def test_nothing_in_nothing_out(tmp_path):
    assert texts(written(tmp_path, b"")) == []
    assert texts(written(tmp_path, b"\xef\xbb\xbf")) == []
    assert texts(written(tmp_path, b"\n")) == [""]
    assert whole_text(written(tmp_path, b""), "utf-8") == ""


ALPHABET = st.sampled_from("ab \r\x85\u2028\x0cé😀")


@given(st.lists(st.text(ALPHABET), min_size=1))
def test_what_was_joined_by_newlines_comes_apart_the_same(tmp_path_factory, wanted):
    path = written(tmp_path_factory.mktemp("joined"), "".join(f"{line}\r\n" for line in wanted))
    assert texts(path) == wanted
    assert whole_text(path, "utf-8") == "".join(f"{line}\n" for line in wanted)


def test_whole_text_is_the_file_as_it_is(tmp_path):
    text = "  two  spaces \n\n\ttab\x0c\nno newline at the end"
    assert whole_text(written(tmp_path, text), "utf-8") == text
    assert whole_text(written(tmp_path, "\ufeffa\r\nb\rc\n"), "utf-8") == "a\nb\rc\n"


def test_gzip_and_zstd_are_seen_by_their_first_bytes(tmp_path):
    data = "".join(f"line {i} é\n" for i in range(20_000)).encode()
    half = len(data) // 2
    frame = zstandard.ZstdCompressor().compress
    forms = {
        "gzip": gzip.compress(data),
        "two gzip members": gzip.compress(data[:half]) + gzip.compress(data[half:]),
        "zstd": frame(data),
        "two zstd frames": frame(data[:half]) + frame(data[half:]),
    }
    wanted = texts(written(tmp_path, data))
    for name, form in forms.items():
        assert texts(written(tmp_path, form)) == wanted, name


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress])
def test_damaged_compression_is_reported(tmp_path, compress):
    form = compress(b"".join(b"%d\n" % i for i in range(30_000)))
    for broken in (form[: len(form) // 2], form[:-1], form[:20] + b"damaged" + form[27:], form[:5]):
        with pytest.raises(UserError, match="cut off or damaged"):
            texts(written(tmp_path, broken))


def test_the_bytes_read_are_reported(tmp_path):
    message = []
    path = written(tmp_path, gzip.compress(b"a line\n" * 100_000))
    assert sum(1 for _ in lines(path, "utf-8", message.append)) == 100_000
    assert sum(message) == path.stat().st_size


def test_not_utf8_has_a_line_a_byte_and_a_hint(tmp_path):
    path = written(tmp_path, b"fine\ncaf\xe9\n")
    for read in (lambda: texts(path), lambda: whole_text(path, "utf-8")):
        with pytest.raises(UserError, match=r"file\.txt:2: not UTF-8 \(byte 4 of the line, 0xe9\); .*latin-1"):
            read()
    assert texts(path, "latin-1") == ["fine", "café"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"one\ntwo\0\n", r":2: a NUL byte \(byte 4 of the line\): the file is binary"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, data, said):
    with pytest.raises(UserError, match=said):
        texts(written(tmp_path, data))


def test_a_line_of_100_mb_is_refused_without_reading_it_all(tmp_path):
    path = tmp_path / "file.txt"
    with open(path, "wb") as stream:
        stream.write(b"short\n")
        stream.truncate(100 << 20)
    tracemalloc.start()
    try:
        for read in (lambda: texts(path), lambda: whole_text(path, "utf-8")):
            with pytest.raises(UserError, match=":2: the line is longer than 16 MiB"):
                read()
        assert tracemalloc.get_traced_memory()[1] < 48 << 20
    finally:
        tracemalloc.stop()


def test_a_document_has_a_bound(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_DOCUMENT_BYTES", 2 << 20)
    with pytest.raises(UserError, match=r"the document is larger than 2 MiB; set reader\.document"):
        whole_text(written(tmp_path, b"a line\n" * 400_000), "utf-8")


def test_a_missing_file_is_the_users_error(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        texts(tmp_path / "absent.txt")
