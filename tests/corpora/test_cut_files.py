"""What of a corpus is cut, by whom, what that costs and what is reported while it is done."""

import gzip
import tracemalloc

import pytest

from lexmill.base.errors import RetryableError, UserErrors
from lexmill.compute.workers.executor import Here
from lexmill.corpora.preparing import pieces, readers
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.pieces import prepare_piece
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.source_files import SourceFiles
from lexmill.corpora.preparing.spans import find_spans, large_units, look
from lexmill.corpora.preparing.text_files import no_advance
from tests.corpora.made_cuts import CORPORA, Pieces, cut, same
from tests.corpora.made_sources import corpus_of, make_source, read_all


@pytest.mark.parametrize(
    ("reader", "files"),
    [
        ({"format": "text"}, {"a.txt": "word " * 100}),
        (
            {"format": "text", "document": "line"},
            {"a.txt.gz": gzip.compress(b"".join(b"%d\n" % i for i in range(999)))},
        ),
        ({"format": "parquet", "text": "t"}, {"a.parquet": b"PAR1\n" * 99}),
        ({"format": "jsonl", "text": "t"}, {"a.jsonl": '{"t": "word"}\n', "b.jsonl": '{"t": "word"}\n'}),
    ],
)
def test_what_is_not_cut(tmp_path, reader, files):
    items = cut(corpus_of("text", reader), make_source(tmp_path, files), 50)
    assert [len(item["units"]) for item in items] == [1] * len(files) if len(files) == 1 else [2]
    assert not any("span" in item for item in items)


def test_files_of_unequal_length_are_not_cut(tmp_path):
    folder = make_source(tmp_path, {"a.en": "x\n" * 90, "a.de": "y\n" * 91})
    assert same(CORPORA["parallel"], folder, 20) == 1


def test_units_of_one_name_are_cut_each_by_itself(tmp_path):
    """Where names() fails to tell files apart, the spans of one are not taken for those of the other."""
    folder = make_source(tmp_path, {"a.txt": "one\n" * 99, "b.txt": "two\n" * 5})
    files, corpus = SourceFiles(folder), CORPORA["lines"]
    units = [("same", ("a.txt",)), ("same", ("b.txt",))]
    large = large_units(corpus, units, files, 80)
    assert large == units[:1]
    found = find_spans(large, files, Pieces(80), pieces.common(corpus, folder, folder), no_advance)
    assert [item["units"] for item in pieces.cut(units, files, 80, found)] == [units[:1]] * 5 + [units[1:]]


def test_files_whose_names_meet_are_cut_each_by_itself(tmp_path):
    """The stem of one is the whole name of another, and one of them alone is large."""
    made = {"b.csv": "c\n", "b.txt": "small\n" * 45, "b.txt.md": "".join(f"line {i}\n" for i in range(40))}
    folder = make_source(tmp_path, made)
    for size in (20, 100, 275, 300):
        assert same(CORPORA["lines"], folder, size) > 1
    records, _ = read_all(CORPORA["lines"], folder)
    assert len({record.id for record in records}) == len(records) == 86


@pytest.mark.parametrize("form", ["lines", "csv"])
@pytest.mark.parametrize("seen", [0, 24, 40, 60, 79])
def test_a_worker_that_sees_less_of_a_file_than_the_stage(tmp_path, form, seen):
    """As on a network folder: no line may be lost without a word."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"1234567\n" * 10)
    item = {**pieces.common(CORPORA[form], tmp_path, tmp_path), "path": path.name, "begin": 40, "end": 80}
    assert look(item, no_advance)["lines"] == 5
    path.write_bytes(path.read_bytes()[:seen])
    with pytest.raises(RetryableError, match=r"a\.txt: a worker on \S+ does not see the first 80 bytes"):
        look(item, no_advance)


@pytest.mark.parametrize("piece_bytes", [50, 1000])
def test_a_worker_that_sees_less_of_a_piece_than_the_stage(tmp_path, piece_bytes):
    """Of a file that is cut, and of one that is not."""
    source = make_source(tmp_path / "source", {"a.txt": "".join(f"line {i}\n" for i in range(40))})
    size = (source / "a.txt").stat().st_size

    class Behind(Pieces):
        def map(self, work, common, items, advance):
            if work is prepare_piece:
                (source / "a.txt").write_bytes((source / "a.txt").read_bytes()[:-1])
            return super().map(work, common, items, advance)

    with pytest.raises(RetryableError, match=f"does not see the first {size} bytes"):
        prepare("made", CORPORA["lines"], source, tmp_path / "made", Behind(piece_bytes))


def test_a_worker_that_does_not_see_a_file(tmp_path):
    """A sentence, not a traceback, and it comes through the stage."""
    folder = make_source(tmp_path, {"a.txt": "line\n" * 40})

    class Blind(Pieces):
        def map(self, work, common, items, advance):
            (folder / "a.txt").unlink()
            return super().map(work, common, items, advance)

    with pytest.raises(UserErrors) as caught:
        prepare("made", CORPORA["lines"], folder, tmp_path / "made", Blind(50))
    assert caught.value.errors == [f"{folder / 'a.txt'}: the file does not exist; fetch the corpus again"]


def test_one_worker_alone_cuts_nothing(tmp_path, monkeypatch):
    source = make_source(tmp_path / "source", {"a.txt": "".join(f"line {i}\n" for i in range(200))})
    seen = []

    class Alone(Here):
        piece_bytes = 100

        def map(self, work, common, items, advance):
            seen.append((work.__name__, len(items)))
            return super().map(work, common, items, advance)

    prepare("made", CORPORA["lines"], source, tmp_path / "made", Alone())
    assert seen == [("prepare_piece", 1)]


def test_a_piece_of_a_huge_file_takes_the_memory_of_a_piece(tmp_path):
    """Looking at it too."""
    line = "word " * 2000 + "\n"
    source = make_source(tmp_path / "source", {"a.txt": line * 2000})
    corpus, files, message = CORPORA["paragraphs"], SourceFiles(source), []
    common = pieces.common(corpus, source, tmp_path)
    units = readers.units(corpus, files, Errors())
    lines_only = CORPORA["lines"]
    tracemalloc.start()
    try:
        for begin in (0, 5 << 20, 19 << 20):
            end = min(begin + (1 << 20), files.sizes["a.txt"])
            look({**common, "path": "a.txt", "begin": begin, "end": end}, message.append)
        assert tracemalloc.get_traced_memory()[1] < 3 << 20
        tracemalloc.reset_peak()
        found = find_spans(units[:1], files, Pieces(1 << 20), pieces.common(lines_only, source, tmp_path), no_advance)
        items = pieces.cut(units[:1], files, 1 << 20, found)
        assert len(items) == 20
        message.clear()
        for item in items[5], items[-1]:
            prepare_piece({**pieces.common(lines_only, source, tmp_path), **item}, message.append)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert sum(message) == items[5]["bytes"] + items[-1]["bytes"]


LONG = "long " * 60_000  # more than is read at once


@pytest.mark.parametrize(
    ("form", "made"),
    [
        ("lines", {"a.txt": f"a\n{LONG}\nb\n{LONG}{LONG}"}),
        ("lines", {"a.txt": f"{LONG}{LONG}\na\n{LONG}{LONG}\nb\nc", "b.txt": "small\n"}),
        ("csv", {"a.csv": "t,g\n" + f'"{LONG}\n\n",g\n' * 3}),
        ("csv", {"a.csv": "t,g\n" + f"{LONG},g\n" * 3 + "too,many,fields\n" * 9}),
        ("parallel", {"a.en": "a\n" * 500, "a.de": "b\n" * 499 + f"{LONG}{LONG}\n"}),
        ("parallel", {"a.en": f"{LONG}{LONG}\n" + "a\n" * 500, "a.de": "b\n" * 501}),
        ("parallel", {"a.en": "a\n" * 500, "a.de": f"{LONG}\n" + "b\n" * 498 + LONG}),
    ],
)
def test_what_is_reported_of_progress_adds_up_to_the_files(tmp_path, form, made):
    """Looking at them and preparing them, however much of them their pieces read."""
    source = make_source(tmp_path / "source", made)
    corpus, files, looked = CORPORA[form], SourceFiles(source), []
    common = pieces.common(corpus, source, tmp_path)
    units = readers.units(corpus, files, Errors())
    for size in (300, 100_000):
        large = large_units(corpus, units, files, size)
        looked.clear()
        found = find_spans(large, files, Pieces(size), common, looked.append)
        assert sum(looked) == sum(files.sizes[path] for _, paths in large for path in paths)
        assert found or size > 300
        items = pieces.cut(units, files, size, found)
        shares = []
        for item in items:
            message = []
            prepare_piece({**common, **item}, message.append)
            assert min(message) >= 0
            shares.append(sum(message))
            assert shares[-1] == item.get("bytes", shares[-1])
        assert sum(shares) == files.bytes
