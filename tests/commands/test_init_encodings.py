"""`lexmill init` recognises encodings, says them and writes them down."""

import gzip
import random
import re

import pytest
import zstandard

from lexmill.base.errors import UserError, UserErrors
from lexmill.commands.init.encodings import encodings
from lexmill.commands.init.entry import note_encodings, typed
from tests.corpora.made_sources import make_source, read_all

TEXTS = {
    "western": "The café Français in the ‘thirties’ — and why…?",
    "polish": "Zażółć gęślą jaźń, to jest polski tekst o żółwiach.",
    "russian": "Это простой текст на русском языке.",
    "chinese": "这是一个中文文本，用于测试编码。",
    "japanese": "これは日本語のテキストです。",
}


READER = {"format": "text", "document": "line"}


def entry_of(folder):
    source = {"kind": "file", "paths": [str(folder / "*.txt")]}
    return {"kind": "text", "source": source, "reader": dict(READER)}


def made_source(folder):
    return make_source(folder, {path.name: path.read_bytes() for path in folder.glob("*.txt")})


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


def test_each_file_of_a_folder_has_its_own(tmp_path):
    """ASCII is no UTF-16, so that one file's encoding is not that of all; but it is latin-1."""
    for i, text in enumerate(["plain", "plain too", TEXTS["western"]]):
        (tmp_path / f"{i}.txt").write_bytes(f"{text}\n".encode("utf-16" if i == 2 else "ascii"))
    entry = entry_of(tmp_path)
    note_encodings(entry, tmp_path)
    assert entry["reader"] == READER | {"encodings": {"2.txt": "utf-16"}}
    records, errors = read_all(typed(entry), made_source(tmp_path))
    assert not errors
    assert [record.text for record in records] == ["plain", "plain too", TEXTS["western"]]
    (tmp_path / "2.txt").write_bytes(TEXTS["western"].encode("cp1252"))
    entry = entry_of(tmp_path)
    note_encodings(entry, tmp_path)
    assert entry["reader"] == READER | {"encoding": "cp1252"}


def test_lines_in_two_encodings_are_named_in_each_file(tmp_path):
    table = "text\tlabel\n" + "caf\u00e9 one\ta\n" * 3
    for name in ("a.tsv", "b.tsv"):
        (tmp_path / name).write_bytes(table.encode() + "caf\u00e9 two\tb\n".encode("latin-1") * 4)
    with pytest.raises(UserErrors) as raised:
        encodings({name: tmp_path / name for name in ("a.tsv", "b.tsv")})
    mixed = "not UTF-8, as line 2 is: the file mixes encodings; write all of it in one"
    assert raised.value.errors == [f"{tmp_path / name}:5: {mixed}" for name in ("a.tsv", "b.tsv")]


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
