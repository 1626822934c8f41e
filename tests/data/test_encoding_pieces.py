"""Encoding piece by piece gives the shards of encoding in one go, whatever the pieces and whoever works on them."""

import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from lexmill.base import storage
from lexmill.base.errors import RetryableError, UserErrors
from lexmill.compute.workers import files
from lexmill.compute.workers.executor import Here
from lexmill.compute.workers.processes import Processes
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.prepare import prepare
from lexmill.data import encoding_pieces
from lexmill.data.encoding import encode_corpus
from lexmill.data.encoding_pieces import cut, encode_pieces
from lexmill.tokenizers import load
from lexmill.tokenizers.saving import save
from lexmill.tokenizers.training import train
from tests.corpora.made_sources import corpus_of, make_source
from tests.support.prepared import write_prepared

TEXTS = ["Über the hill,\nand down.", "", "a  b\n\nc", "The mill was still. " * 20, "</s> typed", "\u2028\x85"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers") / "made"
    folder.mkdir()
    save(train("wordpiece", lambda: TEXTS, vocab_size=80, lowercase=True), folder)
    return folder


def corpus(folder, kind="text", train_texts=None, valid_texts=("one",)):
    def record(i, text):
        return {"text": text} if kind == "text" else {"source": text, "target": f"{text[::-1]} {i}"}

    texts = [f"{text} {i}" for i in range(12) for text in TEXTS] if train_texts is None else train_texts
    splits = {"train": texts, "valid": valid_texts}
    write_prepared(folder, kind, {name: [record(i, t) for i, t in enumerate(some)] for name, some in splits.items()})
    return PreparedCorpus(folder)


def in_one_go(tmp_path, made, tokenizer, **options):
    folder = tmp_path / "one"
    folder.mkdir()
    records = {split: made.records(split) for split in sorted(made.manifest["splits"])}
    encode_corpus(folder, made.kind, records, load(tokenizer), "d" * 64, **options)
    return storage.sha256_folder(folder)


def in_pieces(tmp_path, made, tokenizer, executor, **options):
    folder, scratch = tmp_path / "pieces", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    encode_pieces(folder, made, tokenizer, "d" * 64, executor=executor, scratch=scratch, **options)
    assert not list(scratch.iterdir())
    return storage.sha256_folder(folder)


class Pieces(Here):
    alone = False

    def __init__(self, piece_bytes):
        self.piece_bytes = piece_bytes


@pytest.mark.parametrize("kind", ["text", "parallel"])
@pytest.mark.parametrize("piece_bytes", [77, 333, 1 << 20])
def test_the_cut_changes_no_byte(tmp_path, tokenizer, kind, piece_bytes):
    made = corpus(tmp_path / "made", kind)
    seen = []
    wanted = in_one_go(tmp_path, made, tokenizer, shard_bytes=100)
    assert in_pieces(tmp_path, made, tokenizer, Pieces(piece_bytes), shard_bytes=100, advance=seen.append) == wanted
    sides = ("text",) if kind == "text" else ("source", "target")
    characters = sum(len(r[side]) for split in ("train", "valid") for r in made.records(split) for side in sides)
    assert sum(seen) == characters


def test_blocks_read_back_change_no_byte(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setattr(encoding_pieces, "_BLOCK", 5)
    made = corpus(tmp_path / "made")
    assert in_pieces(tmp_path, made, tokenizer, Pieces(700)) == in_one_go(tmp_path, made, tokenizer)


def test_processes_give_the_same_bytes(tmp_path, tokenizer):
    made = corpus(tmp_path / "made", "parallel")
    with Processes(2, 600) as pool:
        assert in_pieces(tmp_path, made, tokenizer, pool) == in_one_go(tmp_path, made, tokenizer)


class Threads(Here):
    """As a worker of a Dask cluster may be."""

    piece_bytes = 300

    def map(self, work, common, items, advance):
        with ThreadPoolExecutor(4) as pool:
            yield from pool.map(lambda item: work({**common, **item}, advance), items)


def test_threads_of_one_worker_do_not_meet(tmp_path, tokenizer):
    made = corpus(tmp_path / "made", train_texts=[f"word{i} und {i * 7919:b}, {i:o}!" for i in range(2000)])
    assert in_pieces(tmp_path, made, tokenizer, Threads()) == in_one_go(tmp_path, made, tokenizer)


def test_an_empty_corpus_has_no_pieces(tmp_path, tokenizer):
    made = corpus(tmp_path / "made", train_texts=[], valid_texts=[])
    assert cut(made, "train", 100) == []
    assert in_pieces(tmp_path, made, tokenizer, Pieces(1)) == in_one_go(tmp_path, made, tokenizer)


def test_every_line_is_in_one_piece(tmp_path):
    made = corpus(tmp_path / "made")
    wanted = list(made.records("train"))
    for size in range(1, 400, 7):
        pieces = cut(made, "train", size)
        found = [r for p in pieces for r in encoding_pieces._records(made.folder / p["path"], p["begin"], p["end"])]
        assert found == wanted


@pytest.mark.parametrize("seen", [None, 0, 24, 40, 60, 79, 95])
def test_a_worker_that_sees_less_of_a_file_than_the_stage(tmp_path, seen):
    """It ends, and says so: `readline` gives no more at the end of a file, for ever."""
    path = tmp_path / "train-00000.jsonl"
    path.write_bytes(b'{"text": "one"}\n' * 4 + b'{"text": "one, two, and three"}\n')
    assert len(list(encoding_pieces._records(path, 40, 80))) == 2
    if seen is None:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:seen])
    with pytest.raises(RetryableError, match=r"jsonl: a worker on \S+ does not see the first (80|96) bytes"):
        list(encoding_pieces._records(path, 40, 80))


def test_the_errors_of_all_pieces_are_reported_with_their_lines(tmp_path, tokenizer):
    made = corpus(tmp_path / "made", train_texts=["fine"] * 30)
    path = made.folder / "train-00000.jsonl"
    lines = path.read_text().splitlines()
    for at in (3, 20):
        lines[at] = '{"id": "x", "group": "x", "text": "ab\\ud83d"}'
    path.write_text("".join(line + "\n" for line in lines))
    with Processes(2, 300) as pool, pytest.raises(UserErrors) as caught:
        in_pieces(tmp_path, made, tokenizer, pool)
    assert caught.value.errors == [
        f"{path}:{line}: the text is not Unicode: a lone surrogate '\\ud83d' at character 2 of 'text';"
        " prepare the corpus again"
        for line in (4, 21)
    ]


def test_a_file_that_is_not_what_the_worker_wrote_is_not_used(tmp_path, tokenizer, monkeypatch):
    """As on a folder that is not shared, or shows old contents."""
    monkeypatch.setattr(files, "SEEN_SECONDS", 0.0)

    class Losing(Here):
        def map(self, *given):
            for result in super().map(*given):
                for file in (tmp_path / "scratch").glob(f"{result['name']}*.ids"):
                    file.write_bytes(file.read_bytes()[:-1])
                yield result

    with pytest.raises(RetryableError, match="is the folder on shared storage"):
        in_pieces(tmp_path, corpus(tmp_path / "made"), tokenizer, Losing())


def test_a_piece_inside_a_huge_record_reads_no_more_than_itself(tmp_path):
    made = corpus(tmp_path / "made", train_texts=["first", "é" * (8 << 20), "last"])
    records = list(made.records("train"))
    pieces = cut(made, "train", 100_000)
    assert len(pieces) > 160
    found, peaks = [], []
    for piece in pieces[:1] + pieces[40:43] + pieces[-1:]:
        tracemalloc.start()
        found.append(list(encoding_pieces._records(made.folder / piece["path"], piece["begin"], piece["end"])))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert found == [records[:2], [], [], [], records[2:]]
    assert max(peaks[1:]) < 1 << 20


def test_one_huge_file_is_prepared_and_encoded_as_by_one_process(tmp_path, tokenizer):
    texts = [f"Ü{i % 90} {TEXTS[i % 4]}" * (i % 9) for i in range(400)]
    source = make_source(tmp_path / "source", {"all.jsonl": "\r\n".join(json.dumps({"t": text}) for text in texts)})
    choices = corpus_of("text", {"format": "jsonl", "text": "t"}, splits={"valid": 0.2, "test": 0})
    prepare("made", choices, source, tmp_path / "made")
    prepare("made", choices, source, tmp_path / "same", Pieces(1000))
    assert storage.sha256_folder(tmp_path / "made") == storage.sha256_folder(tmp_path / "same")
    wanted = in_one_go(tmp_path, PreparedCorpus(tmp_path / "made"), tokenizer)
    assert in_pieces(tmp_path, PreparedCorpus(tmp_path / "same"), tokenizer, Pieces(1000)) == wanted
