"""A large file is cut between its records: whatever the cut, what is read and reported is that of the whole file."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.base import storage
from lexmill.base.errors import UserErrors
from lexmill.compute.workers.executor import Here
from lexmill.compute.workers.processes import Processes
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.readers import delimited
from tests.corpora.made_cuts import CORPORA, QUOTED, Pieces, same
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all

EXAMPLES = 40


def same_of(corpus, made, piece_bytes):
    with tempfile.TemporaryDirectory() as folder:
        same(corpus, make_source(Path(folder), made), piece_bytes)


# ---------------------------------------------------------------- any cut of any file

TEXT = ["a", "b c", "é", "😀", "\u2028", "\x85", " ", "\t", ",", '"', '""', "\r", "\n", "\n", "\r\n", "\n\n", "x" * 40]
QUOTES = ['"', '""', '"\n', '\n"', '","', '",\n', "a,b\n", '"a', "\n", ",", "\t", '"\t"', '"\t\n', "\r", "é"]
BROKEN = st.sampled_from([b"\xff", b"\0", b"\xe2\x82"])
MARK = "\ufeff".encode()


@st.composite
def files(draw):
    """Bytes of a text file, often with a mark at its start or a header, seldom with what is no text."""
    parts = st.sampled_from([part.encode() for part in draw(st.sampled_from([TEXT, QUOTES]))])
    begin = draw(
        st.sampled_from([b"", MARK, b"t,g\n", b"g\tt\r\n", MARK + b'"t",g\n', b'\n\n"t",\t"g"\n', b"\xff\xfe"])
    )
    inner = draw(st.lists(parts, max_size=40))
    if draw(st.integers(0, 3)) == 0:
        inner.insert(draw(st.integers(0, len(inner))), draw(BROKEN))
    return begin + b"".join(inner)


def row(values):
    return json.dumps(dict(zip("tg", values, strict=True)), ensure_ascii=False).encode()


JSON = st.one_of(
    st.tuples(st.text('aé😀\u2028\n"', max_size=30), st.sampled_from(["g", "h"])).map(row),
    st.sampled_from([b"", b" ", b"no json", b"[]", b'{"t": 1, "g": "g"}']),
).flatmap(lambda line: st.sampled_from([b"\n", b"\r\n"]).map(lambda end: line + end))


@pytest.mark.parametrize("form", [name for name in CORPORA if name not in ("jsonl", "parallel")])
@settings(max_examples=EXAMPLES, deadline=None)
@given(data=files(), piece_bytes=st.integers(1, 60))
def test_a_file_of_anything(form, data, piece_bytes):
    same_of(CORPORA[form], {"a.txt": data}, piece_bytes)


@settings(max_examples=EXAMPLES, deadline=None)
@given(lines=st.lists(JSON, max_size=25), ended=st.booleans(), piece_bytes=st.integers(1, 200))
def test_a_file_of_json(lines, ended, piece_bytes):
    data = b"".join(lines) if ended else b"".join(lines).removesuffix(b"\n")
    same_of(CORPORA["jsonl"], {"a.jsonl": data}, piece_bytes)


SENTENCES = st.lists(st.sampled_from([b"", b"a", "é b".encode(), b"long " * 9, b"\r", b" "]), max_size=30)


@settings(max_examples=EXAMPLES, deadline=None)
@given(source=SENTENCES, target=SENTENCES, equal=st.booleans(), broken=st.lists(BROKEN, max_size=2), data=st.data())
def test_a_pair_of_files(source, target, equal, broken, data):
    if equal:
        count = min(len(source), len(target))
        source, target = source[:count], target[:count]
    for bad in broken:
        side = data.draw(st.sampled_from([source, target]))
        side.insert(data.draw(st.integers(0, len(side))), bad)
        if equal:
            (target if side is source else source).insert(0, b"partner")
    made = {f"a.{end}": b"".join(line + b"\n" for line in side) for end, side in (("en", source), ("de", target))}
    same_of(CORPORA["parallel"], made, data.draw(st.integers(1, 80)))


MADE = {
    "lines": "é1\r\n\n😀2\n",
    "paragraphs": "é1\r\n😀2\n\n \n",
    "jsonl": '{"t": "é1\u2028", "g": 1}\r\n\n',
    "csv": '"é, ""1""\r\n\n",g\n2😀,"h"\r\n',
    "conll": "// a\n//b\né1\u2028\tB-x\r\nb\tI-x\n \t\n\n😀2\tO\n\n",
    "tsv without quotes": '"é\t1\r\n\n😀\t"2"\n',
}


@pytest.mark.parametrize("form", MADE)
def test_a_good_file_cut_at_every_byte(tmp_path, form):
    """Through multi-byte characters, line ends, quotes, records longer than a piece; and it is really cut."""
    begin = {"csv": "t,g\n", "tsv without quotes": "g\tt\n"}.get(form, "")
    text = (begin + MADE[form] * 12 + MADE[form].strip()).encode()
    folder = make_source(tmp_path, {"a.txt": text})
    counts = [same(CORPORA[form], folder, size) for size in range(1, len(text) + 2)]
    assert counts[0] > 12
    assert counts[len(text) // 2] >= 2
    assert counts[-2:] == [1, 1]
    records, errors = read_all(CORPORA[form], folder)
    assert len(records) > 12
    assert not errors


def test_the_errors_of_sentences_cut_at_every_byte(tmp_path):
    folder = make_source(tmp_path, {"a.txt": "a\tO\nb\n\nc\tI-x\n\n// d\ne\tO\tO\nf\tX\n\n" * 3})
    for size in range(1, 60):
        same(CORPORA["conll"], folder, size)
    assert len(error_texts(read_all(CORPORA["conll"], folder)[1])) == 9


@pytest.mark.parametrize(
    ("form", "text"), [("paragraphs", "\ufeff\nfirst\n\nsecond\n"), ("csv", '\ufeff"t\n",t,g\n"a\n","b\n",g\n')]
)
def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path, form, text):
    folder = make_source(tmp_path, {"a.txt": text})
    corpus = corpus_of("text", {**QUOTED, "text": "t"}) if form == "csv" else CORPORA[form]
    for size in range(1, 30):
        same(corpus, folder, size)
    assert not read_all(corpus, folder)[1]


def test_a_quoted_field_without_end(tmp_path, monkeypatch):
    """It ends the reading of its file, so nobody tells what is wrong with half of it."""
    monkeypatch.setattr(delimited, "MAX_LINE_BYTES", 300)
    folder = make_source(tmp_path, {"a.csv": 't,g\na,g\n"' + "no, quote\n" * 60 + 'b"c",g\n"d'})
    for size in range(1, 700, 23):
        same(CORPORA["csv"], folder, size)
    (error,) = error_texts(read_all(CORPORA["csv"], folder)[1])
    assert "a.csv:3: a quoted field that begins here does not end within" in error


# ---------------------------------------------------------------- the whole of prepare

CHOICES = {
    "splits": {"valid": 0.2, "test": 0.2},
    "deduplicate": {"near": True, "shingle": 2, "permutations": 16},
    "filters": {"min_words": 2},
}


def a_text(number):
    return f"{'one ' * (number % 7)}é{number % 50} 😀"


def large_files(form):
    texts = [a_text(i * i) for i in range(200)]
    if form == "jsonl":
        return {"a.txt": "".join(json.dumps({"t": text, "g": f"g{len(text)}"}) + "\r\n" for text in texts)}
    if form == "csv":
        return {"a.txt": "t,g\n" + "".join(f'"{text},\n""x""","g{len(text)}"\n' for text in texts)}
    if form == "parallel":
        return {"a.en": "\n".join(texts), "a.de": "\n".join(text.upper() * 2 for text in texts) + "\n"}
    return {"a.txt": "\n\n".join(texts), "b.txt": "small and\nwhole\n"}


@pytest.mark.parametrize("form", ["lines", "paragraphs", "jsonl", "csv", "parallel"])
def test_pieces_of_large_files_give_the_corpus_of_whole_ones(tmp_path, form):
    plain = CORPORA[form]
    corpus = corpus_of(plain.kind, asdict(plain.reader), **CHOICES)
    source = make_source(tmp_path / "source", large_files(form))
    wanted = prepare("made", corpus, source, tmp_path / "whole")
    assert wanted.metrics["removed"]["near_duplicates"] + wanted.metrics["removed"]["exact_duplicates"] > 0
    with Processes(2, 1500) as pool:
        for number, executor in enumerate([Pieces(400), Pieces(4096), *([pool] if form == "csv" else [])]):
            found = prepare("made", corpus, source, tmp_path / f"cut{number}", executor)
            assert found == wanted
            assert storage.sha256_folder(tmp_path / f"cut{number}") == storage.sha256_folder(tmp_path / "whole")


def test_the_errors_of_a_large_file_are_those_of_the_whole_one(tmp_path):
    lines = [json.dumps({"t": a_text(i), "g": "g"}) for i in range(300)]
    for at in (7, 50, 90, 130, 200):
        lines[at] = "no json"
    first, *rest = lines
    source = make_source(tmp_path / "source", {"a.txt": "\n".join(lines), "b.txt": "\n".join([first, "\0", *rest])})
    message = []
    for executor in (Here(), Pieces(500), Pieces(5000)):
        with pytest.raises(UserErrors) as caught:
            prepare("made", CORPORA["jsonl"], source, tmp_path / "made", executor)
        message.append(caught.value.errors)
    assert message[0] == message[1] == message[2]
    assert len(message[0]) == 5  # three that say the same, how many more do, and the one at which b.txt ends
    assert "b.txt:2: a NUL byte" in message[0][3]
