"""Train, valid and test as the data's owners made them: by files or by a column; whole, whatever train holds."""

import json

import pytest

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import build
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.splits import given_by_column, split_of
from lexmill.params.corpora import Corpus, Splits
from tests.corpora.made_sources import corpus_of, make_source

TABLE = {"format": "tsv", "text": "text", "label": "label"}
PAIRS = {"format": "parallel_text", "source": ["*.de"], "target": ["*.en"]}


def table(*rows):
    return "".join(f"{label}\t{text}\n" for label, text in (("label", "text"), *rows))


def run(folder, corpus, files):
    report = prepare("made", corpus, make_source(folder / "source", files), folder / "made")
    made = PreparedCorpus(folder / "made")
    return report.metrics, {split: [one["text"] for one in made.records(split)] for split in made.manifest["splits"]}


def numbered(word, count):
    return [("ab"[i % 2], f"{word} {i}") for i in range(count)]


@pytest.fixture
def published(tmp_path):
    """Files of which the train file repeats two texts of test, one of dev; test repeats one of its own."""
    files = {
        "train.tsv": table(*numbered("train", 40), ("a", "test 3"), ("b", "test 7"), ("a", "dev 1"), ("a", "train 0")),
        "dev.tsv": table(*numbered("dev", 10)),
        "test.tsv": table(*numbered("test", 20), ("a", "test 0"), ("b", "")),
    }
    splits = {"files": {"train": ["train.tsv"], "valid": ["dev.tsv"], "test": ["test.tsv"]}}
    return tmp_path, files, splits


def test_given_sets_stay_whole_and_train_gives_way(published):
    folder, files, splits = published
    metrics, texts = run(folder, corpus_of("labelled", TABLE, splits=splits), files)
    assert texts["test"] == [f"test {i}" for i in range(20)] + ["test 0", ""]
    assert texts["valid"] == [f"dev {i}" for i in range(10)]
    assert texts["train"] == [f"train {i}" for i in range(40)]
    assert metrics["removed"]["also_in_valid_or_test"] == 3
    assert metrics["removed"]["exact_duplicates"] == 1
    assert metrics["gave_way"] == {"valid": 1, "test": 2}
    assert metrics["overlap"] == {"train_in_valid_or_test": 0, "valid_in_test": 0}
    assert metrics["raw"] == metrics["used"] + sum(metrics["removed"].values())


def test_train_keeps_the_texts_of_given_sets_if_asked_to(published):
    folder, files, splits = published
    corpus = corpus_of("labelled", TABLE, splits={**splits, "keep_together": False})
    metrics, texts = run(folder, corpus, files)
    assert texts["train"][-3:] == ["test 3", "test 7", "dev 1"]
    assert metrics["overlap"]["train_in_valid_or_test"] == 3
    assert metrics["gave_way"] == {"valid": 1, "test": 2}


def test_a_valid_that_is_missing_is_cut_from_train_by_the_hash(tmp_path):
    files = {"train.tsv": table(*numbered("train", 200), ("a", "test 5")), "test.tsv": table(*numbered("test", 10))}
    corpus = corpus_of("labelled", TABLE, splits={"valid": 0.2, "test": 0.3, "files": {"test": ["test.tsv"]}})
    metrics, texts = run(tmp_path, corpus, files)
    assert texts["test"] == [f"test {i}" for i in range(10)]
    assert len(texts["train"]) + len(texts["valid"]) == 200
    assert 20 < len(texts["valid"]) < 60
    # The hash puts the same groups into valid as without given files; its share of test stays in train.
    alone, without = tmp_path / "alone", corpus_of("labelled", TABLE, splits={"valid": 0.2, "test": 0.3})
    _, before = run(alone, without, {"train.tsv": table(*numbered("train", 200))})
    assert texts["valid"] == before["valid"]
    assert metrics["gave_way"] == {"test": 1}


def test_a_cut_valid_gives_way_to_a_given_test_as_well(tmp_path):
    rows = numbered("text", 300)
    files = {"train.tsv": table(*rows), "z_test.tsv": table(*rows[::3])}
    corpus = corpus_of("labelled", TABLE, splits={"valid": 0.3, "files": {"test": ["z_test.tsv"]}})
    metrics, texts = run(tmp_path, corpus, files)
    assert texts["test"] == [text for _, text in rows[::3]]
    assert not set(texts["test"]) & (set(texts["train"]) | set(texts["valid"]))
    assert metrics["gave_way"] == {"test": 100}
    assert metrics["removed"]["also_in_valid_or_test"] == 100


def test_further_test_sets(tmp_path):
    files = {
        "train.tsv": table(*numbered("train", 60), ("a", "new 2")),
        "test_2016.tsv": table(*numbered("old", 8)),
        "test_2017.tsv": table(*numbered("new", 6), ("a", "old 1")),
    }
    splits = {"valid": 0.2, "files": {"test": ["test_2016.tsv"], "test_2017": ["test_2017.tsv"]}}
    metrics, texts = run(tmp_path, corpus_of("labelled", TABLE, splits=splits), files)
    assert texts["test_2017"] == [f"new {i}" for i in range(6)] + ["old 1"]
    assert "new 2" not in texts["train"] + texts["valid"]
    assert metrics["overlap"]["test_in_test_2017"] == 1
    assert metrics["records"]["test_2017"] == 7
    assert PreparedCorpus(tmp_path / "made").further_tests == ("test_2017",)


def test_pairs_by_files(tmp_path):
    def side(word, count):
        return "".join(f"{word} {i}\n" for i in range(count))

    names = {"train": 30, "val": 5, "test_2016": 6}
    files = {f"{name}.{tongue}": side(name, count) for name, count in names.items() for tongue in ("de", "en")}
    files["test_2016.de"] = "train 3\n\n" + side("test", 4)  # a source of train, and an empty line
    corpus = corpus_of("parallel", PAIRS, splits={"files": {"valid": ["val.*"], "test": ["test_2016.*"]}})
    source = make_source(tmp_path / "source", files)
    metrics = prepare("made", corpus, source, tmp_path / "made").metrics
    assert metrics["records"] == {"train": 29, "valid": 5, "test": 6}
    assert metrics["gave_way"] == {"valid": 0, "test": 1}


def test_a_glob_with_a_folder_is_of_the_whole_path(tmp_path):
    files = {"a.tsv": table(*numbered("one", 30)), "old/a.tsv": table(*numbered("two", 20))}
    corpus = corpus_of("labelled", TABLE, splits={"valid": 0.3, "files": {"test": ["./a.tsv"]}})
    metrics, texts = run(tmp_path, corpus, files)
    assert texts["test"] == [f"one {i}" for i in range(30)]
    assert metrics["records"]["train"] + metrics["records"]["valid"] == 20


@pytest.mark.parametrize("near", [False, True])
def test_by_a_column(tmp_path, near):
    rows = [{"text": f"the text number {i} is one of many texts here, {i}", "label": "ab"[i % 2]} for i in range(60)]
    rows = [{**row, "set": ["train", "dev", "test", "test-B"][i % 4]} for i, row in enumerate(rows)]
    rows += [{"text": rows[2]["text"], "label": "a", "set": "Train"}]
    corpus = corpus_of(
        "labelled",
        {"format": "jsonl", "text": "text", "label": "label"},
        splits={"column": "set"},
        deduplicate={"near": near, "threshold": 0.99},
    )
    metrics, texts = run(tmp_path, corpus, {"all.jsonl": "".join(json.dumps(row) + "\n" for row in rows)})
    assert texts["test"] == [row["text"] for row in rows if row["set"] == "test"]
    assert texts["valid"] == [row["text"] for row in rows if row["set"] == "dev"]
    assert texts["test_b"] == [row["text"] for row in rows if row["set"] == "test-B"]
    assert texts["train"] == [row["text"] for row in rows if row["set"] == "train"]
    reason = "near_duplicates" if near else "also_in_valid_or_test"
    assert metrics["removed"][reason] == 1


def test_filters_leave_given_sets_alone_but_not_personal_data_or_neutral_ratings(tmp_path):
    reader = {**TABLE, "positive_from": 3, "negative_to": 2}
    train = [(str(1 + i % 5), f"some words of the text {i}") for i in range(60)]
    test = [("1", "short"), ("2.5", "neutral"), ("5", "write to me@example.com"), ("5", "http://x.org good one")]
    corpus = corpus_of(
        "labelled",
        reader,
        filters={"min_words": 3, "drop_urls": True, "personal_data": "drop"},
        splits={"valid": 0.2, "files": {"test": ["test.tsv"]}},
    )
    metrics, texts = run(tmp_path, corpus, {"train.tsv": table(*train), "test.tsv": table(*test)})
    assert texts["test"] == ["short", "http://x.org good one"]
    assert metrics["removed"]["personal_email"] == 1
    assert metrics["removed"]["min_words"] == 0


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (
            {"valid": ["nothing.tsv"]},
            "splits.files.valid: no file matches 'nothing.tsv'; there are: dev.tsv, test.tsv, ",
        ),
        ({"train": ["train.tsv"], "test": ["test.tsv"]}, "dev.tsv: is in no split; name it in splits.files"),
        ({"valid": ["*.tsv"], "test": ["test.tsv"]}, "test.tsv: matches splits.files.valid and splits.files.test"),
    ],
)
def test_files_that_do_not_fit_are_named(published, files, sentence):
    folder, made, _ = published
    with pytest.raises(UserError, match="splits") as raised:
        run(folder, corpus_of("labelled", TABLE, splits={"files": files}), made)
    assert sentence in str(raised.value)


def test_a_given_set_without_a_record_is_an_error(published):
    folder, files, splits = published
    with pytest.raises(UserErrors, match=r"splits\.files\.valid: its files hold no record"):
        run(folder, corpus_of("labelled", TABLE, splits=splits), {**files, "dev.tsv": "label\ttext\n"})


def test_a_value_that_names_no_split_has_its_line(tmp_path):
    reader = {"format": "csv", "text": "text", "label": "label"}
    corpus = corpus_of("labelled", reader, splits={"column": "set"})
    with pytest.raises(UserErrors, match=r"a.csv:3: 'set': the split 'unsup' is none of: train, valid"):
        run(tmp_path, corpus, {"a.csv": "text,label,set\nx,a,train\ny,b,unsup\n"})


@pytest.mark.parametrize(
    ("value", "name"),
    [("TRAIN", None), ("Validation", "valid"), ("dev", "valid"), ("val", "valid"), ("test", "test"),
     ("Test 2017", "test_2017"), ("test-flickr.2016", "test_flickr_2016")],
)  # fmt: skip
def test_the_names_that_people_give_splits(value, name):
    assert given_by_column(value) == name


@pytest.mark.parametrize(
    ("splits", "sentence"),
    [
        ({"files": {"Test Set": ["a"]}}, "files.Test Set: name a split with small letters"),
        ({"files": {"test": []}}, "files.test: empty"),
        ({"files": {"test": ["../a"]}}, "leads out of the source's files"),
        ({"files": {"test": ["a"]}, "column": "c"}, "column: `files` gives the splits already"),
        ({"files": {"test": ["a"]}, "pinned": {"x": "test"}}, "pinned.x: test is given by `files`"),
    ],
)
def test_splits_that_contradict_themselves(splits, sentence):
    errors = []
    build(Splits, splits, errors)
    assert sentence in "\n".join(errors)


def test_a_column_needs_a_table():
    errors = []
    build(Corpus, {"kind": "text", "source": {"kind": "file", "paths": ["a"]}, "reader": {"format": "text"},
                   "splits": {"column": "set"}}, errors)  # fmt: skip
    assert errors == ["splits.column: 'text' files have no columns; name the files in splits.files"]


def test_shares_of_the_hash_are_disjoint():
    """A cut split whose set is given falls back to train, as if its share were nothing."""
    splits = Splits(valid=0.3, test=0.4)
    for i in range(200):
        natural = split_of(f"g{i}", splits)
        assert (natural == "valid") == (split_of(f"g{i}", Splits(valid=0.3, test=0.0)) == "valid")
