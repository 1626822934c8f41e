"""Catalogues of gettext: which pairs they give, the same from `.po` and `.mo`, and what is refused."""

import gzip
import struct

import polib
import pytest

from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all

HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset={}\\n"\n"Language: {}\\n"\n\n'
UTF8 = HEADER.format("UTF-8", "de")
MESSAGES = """
# a comment
#: source.py:12
msgctxt "menu"
msgid "Open a file"
msgstr "Datei öffnen"

#, python-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid ""
"Two\\n"
"\\"lines\\""
msgstr "Zwei\\n„Zeilen“"

#, fuzzy
msgid "Guessed"
msgstr "Geraten"

msgid "Untranslated"
msgstr ""

#~ msgid "Obsolete"
#~ msgstr "Veraltet"

msgid "Next\u2028line"
msgstr "Nächste\u0085Zeile"
"""
PAIRS = [
    ("Open a file", "Datei öffnen"),
    ("%d file", "%d Datei"),
    ("%d files", "%d Dateien"),
    ('Two\n"lines"', "Zwei\n„Zeilen“"),
    ("Next\u2028line", "Nächste\u0085Zeile"),
]


def read(tmp_path, data, name="a.po"):
    return read_all(corpus_of("parallel", {"format": "gettext"}), make_source(tmp_path, {name: data}))


def pairs(tmp_path, data, name="a.po"):
    records, errors = read(tmp_path, data, name)
    assert not errors, error_texts(errors)
    return [(record.id, *record.sides) for record in records]


def error_of(tmp_path, data, name="a.po"):
    (error,) = error_texts(read(tmp_path, data, name)[1])
    return error


def compiled(tmp_path, text):
    (tmp_path / "whole.po").write_text(text, newline="\n")
    return polib.pofile(str(tmp_path / "whole.po")).to_binary()


def test_messages_with_a_translation_are_pairs(tmp_path):
    found = pairs(tmp_path, UTF8 + MESSAGES)
    assert [pair[1:] for pair in found] == PAIRS
    assert [name for name, *_ in found] == ["a:7", "a:13", "a:13.2", "a:19", "a:34"]


def test_a_compiled_catalogue_gives_the_same_pairs(tmp_path):
    found = pairs(tmp_path, compiled(tmp_path, UTF8 + MESSAGES), "a.mo")
    assert sorted(pair[1:] for pair in found) == sorted(PAIRS)
    assert len({name for name, *_ in found}) == len(PAIRS)
    swapped = compiled_big_endian([(b"", b"Language: de\n"), (b"menu\x04a b", b"c d"), (b"1\0n", b"eins\0viele")])
    assert [pair[1:] for pair in pairs(tmp_path / "b", swapped, "a.mo")] == [
        ("a b", "c d"),
        ("1", "eins"),
        ("n", "viele"),
    ]


def compiled_big_endian(messages):
    at, texts, tables = 28 + 16 * len(messages), b"", ([], [])
    for side in (0, 1):
        for message in messages:
            tables[side].append((len(message[side]), at + len(texts)))
            texts += message[side] + b"\0"
    index = b"".join(struct.pack(">2I", *row) for table in tables for row in table)
    count = len(messages)
    return struct.pack(">7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0) + index + texts


def test_one_plural_form_translates_the_plural_and_the_last_of_several_too(tmp_path):
    one = 'msgid "a file"\nmsgid_plural "files"\nmsgstr[0] "ein"\n'
    assert [pair[1:] for pair in pairs(tmp_path, UTF8 + one)] == [("files", "ein")]
    three = one + 'msgstr[1] "wenige"\nmsgstr[2] "viele"\n'
    assert [pair[1:] for pair in pairs(tmp_path / "3", UTF8 + three)] == [("a file", "ein"), ("files", "viele")]


@pytest.mark.parametrize(("charset", "encoding"), [("ISO-8859-1", "latin-1"), ("UTF-8", "utf-8-sig")])
def test_the_header_says_the_encoding(tmp_path, charset, encoding):
    data = (HEADER.format(charset, "") + 'msgid "door"\nmsgstr "Tür"\n').encode(encoding)
    assert [pair[1:] for pair in pairs(tmp_path, data)] == [("door", "Tür")]
    assert [pair[1:] for pair in pairs(tmp_path / "z", gzip.compress(data), "a.po.gz")] == [("door", "Tür")]


@pytest.mark.parametrize(
    ("language", "pair"),
    [("", ("a", "b")), ("de", ("a", "b")), ("de_AT", ("a", "b")), ("en", ("b", "a")), ("fr", None), ("den", None)],
)
def test_the_header_says_the_language_of_the_translations(tmp_path, language, pair):
    data = HEADER.format("UTF-8", language) + 'msgid "a"\nmsgstr "b"\n'
    if pair:
        assert pairs(tmp_path, data) == [("a:6", *pair)]
    else:
        assert f"a.po: its header says Language: '{language}'; the corpus has en and de" in error_of(tmp_path, data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (UTF8 + 'msgid "a"\nmsgstr "b" c"\n', "a.po:7: not a gettext catalogue: unescaped double quote found"),
        (UTF8 + "\nnonsense\n", "a.po:7: not a gettext catalogue: not what a message of a .po file looks like"),
        (UTF8 + 'msgstr "b"\nmsgstr[0] "b"\n', "a.po:6: not a gettext catalogue: not what a message"),
        (UTF8.encode() + b'msgid "a"\nmsgstr "\xff"\n', "a.po: not UTF-8, the encoding of its header"),
        (b"\xde\x12\x04\x95" + bytes(5), "a.po: not a gettext catalogue: damaged"),
        (b"\xde\x12\x04\x95" + b"\xff" * 40, "a.po: not a gettext catalogue: damaged"),
    ],
)
def test_what_is_no_catalogue_is_said_with_its_line(tmp_path, data, said):
    assert said in error_of(tmp_path, data)


def test_a_compiled_catalogue_whose_texts_overlap_is_refused(tmp_path):
    """Each text would be held in memory: 4,000 messages that are the whole file would be 500 MB."""
    count = 4000
    index = struct.pack("<2I", 100_000, 28) * count * 2
    data = struct.pack("<7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0) + index + bytes(60_000)
    assert "not a gettext catalogue: damaged" in error_of(tmp_path, data, "a.mo")
