"""`lexmill init` recognises encodings, says them and writes them down."""

import gzip
import random
import re

import pytest
import zstandard

from lexmill.base.errors import UserError
from lexmill.commands.init.encodings import encodings

TEXTS = {
    "western": "The café Français in the ‘thirties’ — and why…?",
    "polish": "Zażółć gęślą jaźń, to jest polski tekst o żółwiach.",
    "russian": "Это простой текст на русском языке.",
    "chinese": "这是一个中文文本，用于测试编码。",
    "japanese": "これは日本語のテキストです。",
}


def encoding_of(path):
    found = encodings({path.name: path})
    return found[path.name] if found else None


@pytest.mark.parametrize(
    ("language", "encoding"),
    [("western", "cp1252"), ("polish", "cp1250"), ("russian", "cp1251"), ("russian", "koi8_r"),
     ("chinese", "gb18030"), ("japanese", "shift_jis")],
)  # fmt: skip
def test_text_that_is_not_utf8(tmp_path, language, encoding):
    text = "plain words first\n" * 50 + (TEXTS[language] + "\n") * 20
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    found, example = encoding_of(tmp_path / "a.txt")
    assert text.encode(encoding).decode(found) == text
    assert any(word in example for word in TEXTS[language].split() if not word.isascii())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_characters(tmp_path, encoding):
    (tmp_path / "a.txt").write_bytes((TEXTS["western"] + "\n").encode(encoding))
    found, example = encoding_of(tmp_path / "a.txt")
    assert found == encoding
    assert "café" in example


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_utf8_is_not_mentioned(tmp_path, mark):
    for text in ("plain\n", TEXTS["chinese"] + "\n", TEXTS["western"] * 9000):
        (tmp_path / "a.txt").write_bytes((mark + text).encode())
        assert encoding_of(tmp_path / "a.txt") is None


def test_a_character_of_the_last_line_and_compression_count(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a line of plain words\n" * 100_000 + "Größe".encode("latin-1")))
    assert encoding_of(tmp_path / "a.txt.gz") == ("cp1252", "Größe")


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.zst"])
def test_a_compressed_file_that_is_cut_off_is_named(tmp_path, name):
    data = bytes(random.Random(1).choices(range(32, 127), k=200_000))
    packed = gzip.compress(data) if name.endswith("gz") else zstandard.compress(data)
    (tmp_path / name).write_bytes(packed[:-9])
    with pytest.raises(UserError, match=rf"{re.escape(name)}: the compressed file is cut off or damaged"):
        encoding_of(tmp_path / name)


def test_what_is_no_text_is_named(tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(random.Random(1).choices(range(127, 256), k=5000)))
    with pytest.raises(UserError, match=r"a\.txt: neither UTF-8 nor an encoding .* --encoding"):
        encoding_of(tmp_path / "a.txt")


def test_the_expected_encoding_is_preferred_where_it_can_be(tmp_path):
    (tmp_path / "a.txt").write_bytes((TEXTS["western"] + "\n").encode("cp1252"))
    found = encodings({"a": tmp_path / "a.txt"}, "cp1250")
    assert found["a"][0] == "cp1250"
    (tmp_path / "a.txt").write_bytes((TEXTS["western"] + "\n").encode())
    assert encodings({"a": tmp_path / "a.txt"}, "cp1250") == {}
