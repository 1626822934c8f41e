"""From files to a prepared corpus: counts add up, equal inputs give equal bytes, no text stands on two sides."""

import json
import random
import tracemalloc

import pytest

from lexmill.base import storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.corpora.prepared import SPLITS, PreparedCorpus
from lexmill.corpora.preparing import prepare as prepare_module
from lexmill.corpora.preparing import writing
from lexmill.corpora.preparing.disk_index import DiskSet, open_index
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.removals import Removals
from lexmill.corpora.preparing.splits import split_of
from lexmill.corpora.preparing.writing import Row, SplitWriter, json_line
from tests.corpora.made_sources import corpus_of, make_source

PAIRS = {"format": "jsonl", "source": "s", "target": "t", "group": "g"}
LINES = {"format": "text", "document": "line"}
HALVES = {"valid": 0.25, "test": 0.25}


def pair_file(count, seed=0):
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        words = " ".join(draw.choices(["one", "two", "three", "{x}", "ä", "http://x"], k=draw.randrange(6)))
        rows.append({"s": words, "t": words.upper().replace("{X}", "{x}"), "g": f"g{draw.randrange(40)}"})
    return "".join(json.dumps(row) + "\n" for row in rows)


def pair_corpus(**choices):
    filters = {"min_words": 2, "drop_urls": True, "same_placeholders": True, "max_length_ratio": 3}
    return corpus_of("parallel", PAIRS, filters=filters, splits=HALVES, **choices)


def run(folder, corpus, files):
    source = make_source(folder / "source", files)
    report = prepare("made", corpus, source, folder / "made")
    return report, PreparedCorpus(folder / "made")


def records_of(made):
    return {split: list(made.records(split)) for split in SPLITS}


# ---------------------------------------------------------------- what comes out


@pytest.mark.parametrize("near", [False, True])
def test_counts_add_up_from_raw_to_used(tmp_path, near):
    corpus = pair_corpus(deduplicate={"near": near, "shingle": 2})
    report, made = run(tmp_path, corpus, {"a.jsonl": pair_file(900)})
    metrics, samples = report.metrics, report.samples["filters"]
    records = records_of(made)
    assert metrics["raw"] == 900
    assert metrics["raw"] == metrics["used"] + sum(metrics["removed"].values())
    assert metrics["used"] == sum(len(rows) for rows in records.values())
    assert min(metrics["removed"][name] for name in ("min_words", "drop_urls", "exact_duplicates")) > 0
    assert {row["name"]: row["removed"] for row in samples} == metrics["removed"]
    assert all(0 < len(row["examples"]) <= 5 for row in samples if row["removed"])
    for split, rows in records.items():
        sides = [row[side] for row in rows for side in ("source", "target")]
        counted = made.manifest["splits"][split]
        assert counted["records"] == made.count(split) == len(rows)
        assert counted["groups"] == len({row["group"] for row in rows})
        assert counted["characters"] == sum(map(len, sides))
        assert counted["bytes"] == sum(len(side.encode()) for side in sides)
        assert counted["words"] == sum(len(side.split()) for side in sides)
        for shard in counted["shards"]:
            path = made.folder / shard["path"]
            assert (path.stat().st_size, storage.sha256_file(path)) == (shard["bytes"], shard["sha256"])


def test_the_slow_obvious_way_gives_the_same_records(tmp_path):
    """Everything in memory, in plain loops."""
    text = pair_file(900)
    corpus = pair_corpus()
    _, made = run(tmp_path, corpus, {"a.jsonl": text})
    seen, split_rows = set(), {split: [] for split in SPLITS}
    for number, line in enumerate(text.splitlines(), 1):
        row = json.loads(line)
        s, t = row["s"].strip(), row["t"].strip()
        if not s or not t or len(s.split()) < 2 or "http" in (s + t).lower() or (s, t) in seen:
            continue
        seen.add((s, t))
        stored = {"id": f"a:{number}", "group": row["g"], "source": s, "target": t}
        split_rows[split_of(row["g"], corpus.splits)].append(stored)
    held_out = {row["source"] for split in ("valid", "test") for row in split_rows[split]}
    split_rows["train"] = [row for row in split_rows["train"] if row["source"] not in held_out]
    assert records_of(made) == split_rows


def test_equal_inputs_give_equal_bytes(tmp_path):
    corpus = pair_corpus(deduplicate={"near": True})
    reports = []
    for name in ("one", "two"):
        report, _ = run(tmp_path / name, corpus, {"b.jsonl": pair_file(200, 1), "a.jsonl": pair_file(200, 2)})
        reports.append(report)
    assert reports[0] == reports[1]
    assert storage.sha256_folder(tmp_path / "one/made") == storage.sha256_folder(tmp_path / "two/made")


def test_no_text_of_valid_or_test_stays_in_train(tmp_path):
    rows = [{"s": f"same {i % 50 if i % 3 else i}", "t": f"other {i}", "g": f"g{i % 37}"} for i in range(1000)]
    files = {"a.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    splits = {"valid": 0, "test": 0, "pinned": {"g0": "valid", "g1": "test"}}
    report, made = run(tmp_path, corpus_of("parallel", PAIRS, splits=splits), files)
    records = records_of(made)
    held_out = {row["source"] for split in ("valid", "test") for row in records[split]}
    assert held_out
    assert held_out.isdisjoint(row["source"] for row in records["train"])
    removed = report.metrics["removed"]["also_in_valid_or_test"]
    assert removed > 0
    assert report.metrics["overlap"]["train_in_valid_or_test"] == 0
    apart = corpus_of("parallel", PAIRS, splits={**splits, "keep_together": False})
    kept, _ = run(tmp_path / "kept", apart, files)
    assert kept.metrics["overlap"]["train_in_valid_or_test"] == removed
    assert "also_in_valid_or_test" not in kept.metrics["removed"]
    shared = {row["source"] for row in records["valid"]} & {row["source"] for row in records["test"]}
    assert report.metrics["overlap"]["valid_in_test"] == len(shared)


def test_no_record_moves_when_the_corpus_grows(tmp_path):
    corpus = corpus_of("text", LINES, splits=HALVES)
    old = "".join(f"line {i}\n" for i in range(300))
    new = old + "".join(f"later {i}\n" for i in range(300))
    before = records_of(run(tmp_path / "1", corpus, {"a.txt": old})[1])
    after = records_of(run(tmp_path / "2", corpus, {"a.txt": new})[1])
    for split in SPLITS:
        assert before[split]
        assert {row["text"] for row in before[split]} <= {row["text"] for row in after[split]}


def test_labels_are_sorted_and_pins_are_met(tmp_path):
    reader = {"format": "csv", "text": "t", "label": "l", "group": "g"}
    splits = {"valid": 0.0, "test": 0.0, "pinned": {"e\u0301": "test"}}
    files = {"a.csv": "t,l,g\nx,zebra,1\ny,ant,é\n"}
    _, made = run(tmp_path, corpus_of("labelled", reader, splits=splits, unit="ticket", licence="MIT"), files)
    assert made.labels == ("ant", "zebra")
    assert (made.kind, made.unit, made.languages) == ("labelled", "ticket", ("en",))
    assert made.manifest["licence"] == "MIT"
    assert list(made.records("test")) == [{"id": "a:3", "group": "é", "text": "y", "label": "ant"}]
    assert list(made.records("valid")) == []


def test_odd_characters_come_back_from_the_shards(tmp_path):
    texts = ["a\x85b", "c\u2028d", "e\x0cf", 'quote "', "tab\t", "😀", "\ufeff mark"]
    corpus = corpus_of("text", LINES, splits={"valid": 0, "test": 0}, normalization="none")
    _, made = run(tmp_path, corpus, {"a.txt": "\n".join(["first", *texts])})
    assert [row["text"] for row in made.records("train")] == ["first", *texts]


def test_shards_are_closed_before_they_grow_over_the_limit(tmp_path):
    with open_index(tmp_path / "index") as index:
        writer = SplitWriter(tmp_path, "train", DiskSet(index, "groups"), shard_bytes=200)
        rows = [{"id": str(i), "group": "g", "text": "x" * (500 if i == 4 else 30)} for i in range(12)]
        for row in rows:
            line = json_line(row)
            writer.write(line, Row.of(row, 0, line))
        listed = writer.manifest()["shards"]
    assert [shard["path"] for shard in listed] == [f"train-{i:05d}.jsonl" for i in range(len(listed))]
    assert [shard["bytes"] for shard in listed if shard["bytes"] > 200] == [listed[2]["bytes"]]
    assert listed[2]["records"] == 1
    read = [json.loads(line) for s in listed for line in (tmp_path / s["path"]).read_text().splitlines()]
    assert read == rows


def test_examples_are_a_fixed_sample_of_what_was_removed():
    orders = []
    for seed in range(3):
        shown = [f"text {i}" for i in range(100)] * 2
        random.Random(seed).shuffle(shown)
        removals = Removals(["f", "none"])
        for text in shown:
            removals.add("f", text)
        orders.append(removals.samples())
    assert orders[0] == orders[1] == orders[2]
    first, second = orders[0]
    assert (first["removed"], len(set(first["examples"]))) == (200, 5)
    assert second == {"name": "none", "removed": 0, "examples": []}


def test_memory_does_not_grow_with_the_corpus(tmp_path):
    """Eight times the corpus, the same peak (SQLite's cache, bounded by a setting, is not Python's memory)."""
    peaks = []
    corpus = corpus_of("text", LINES, filters={"min_words": 2}, splits=HALVES)
    for count in (1_000, 8_000):
        text = "".join(f"{'short' if i % 3 else 'a longer line'} {i}\n" for i in range(count))
        source = make_source(tmp_path / f"s{count}", {"a.txt": text})
        del text
        tracemalloc.start()
        prepare("made", corpus, source, tmp_path / f"c{count}")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + (256 << 10), peaks


# ---------------------------------------------------------------- what is refused


def test_all_errors_of_all_files_are_reported_and_nothing_is_left(tmp_path):
    files = {"a.jsonl": '{"s": "x"}\nno json\n', "b.jsonl": b"\xff\n", "c.jsonl": '{"s": "x", "t": "y", "g": 1}\n'}
    with pytest.raises(UserErrors) as caught:
        run(tmp_path, pair_corpus(), files)
    assert len(caught.value.errors) == 3
    assert "a.jsonl:1: " in caught.value.errors[0]
    assert "b.jsonl:1: " in caught.value.errors[2]
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_errors_are_capped(tmp_path):
    with pytest.raises(UserErrors) as caught:
        run(tmp_path, pair_corpus(), {"a.jsonl": "".join(f'{{"s{i}": ""}}\n' for i in range(1500))})
    assert len(caught.value.errors) == 21
    assert caught.value.errors[-1] == "and 1,480 more"


def test_equal_errors_of_one_file_do_not_hide_those_of_another(tmp_path):
    files = {"a.jsonl": "wrong\n" * 1500, "b.jsonl": '{"s": "x"}\n' * 4}
    with pytest.raises(UserErrors) as caught:
        run(tmp_path, pair_corpus(), files)
    message = [error.removeprefix(f"{tmp_path}/source/") for error in caught.value.errors]
    assert [error.split(": ")[0] for error in message[:6]] == [
        *("a.jsonl:1", "a.jsonl:2", "a.jsonl:3"),
        *("b.jsonl:1", "b.jsonl:2", "b.jsonl:3"),
    ]
    assert message[6] == "a.jsonl: not valid JSON: Expecting value (column 1): the same in 1,497 more places"
    assert message[7].endswith("the same in 1 more places")
    assert len(message) == 8


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the corpus is empty"),
        ("\n\n", "nothing is left of 2 records; removed: min_characters 2"),
        ("one line\n", "nothing fell into"),
    ],
)
def test_what_gives_no_corpus(tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        run(tmp_path, corpus_of("text", LINES), {"a.txt": text})
    assert not (tmp_path / "made").exists()


def test_a_train_split_that_is_all_leakage(tmp_path):
    rows = [{"s": "same", "t": f"other {i}", "g": f"g{i}"} for i in range(9)]
    files = {"a.jsonl": "".join(json.dumps(row) + "\n" for row in rows)}
    splits = {"valid": 0, "test": 0, "pinned": {"g0": "test"}}
    with pytest.raises(UserError, match="all 8 training records have a text that is also in valid or test"):
        run(tmp_path, corpus_of("parallel", PAIRS, splits=splits), files)


def test_labels_must_be_labels(tmp_path, monkeypatch):
    reader = {"format": "tsv", "text": "0", "label": "1", "header": False}
    splits = {"valid": 0, "test": 0}
    corpus = corpus_of("labelled", reader, splits=splits)
    with pytest.raises(UserError, match="one label only, 'x'"):
        run(tmp_path, corpus, {"a.tsv": "a\tx\nb\tx\n"})
    monkeypatch.setattr(prepare_module, "MOST_LABELS", 3)
    with pytest.raises(UserError, match="more than 3 different labels"):
        run(tmp_path, corpus, {"a.tsv": "".join(f"{i}\t{i}\n" for i in range(9))})


def test_a_pinned_group_that_is_not_there(tmp_path):
    splits = {"valid": 0, "test": 0, "pinned": {"hamlett": "test"}}
    with pytest.raises(UserErrors, match="no group 'hamlett', did you mean 'hamlet'"):
        run(tmp_path, corpus_of("text", {"format": "text"}, splits=splits), {"hamlet.txt": "x"})


def test_what_a_killed_run_left_is_cleared_and_an_old_corpus_is_replaced(tmp_path):
    left = tmp_path / ".made.1.scratch.tmp"
    left.mkdir()
    (left / "train.jsonl").write_text("half")
    (tmp_path / "made").mkdir()
    (tmp_path / "made/old.jsonl").write_text("old")
    run(tmp_path, corpus_of("text", LINES, splits={"valid": 0, "test": 0}), {"a.txt": "x\n"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made", "source"]
    assert not (tmp_path / "made/old.jsonl").exists()


def test_reading_what_was_not_prepared(tmp_path):
    with pytest.raises(UserError, match="run the stage prepare first"):
        PreparedCorpus(tmp_path)
    assert writing.SHARD_BYTES == 64 << 20
