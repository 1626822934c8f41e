"""Each reader: what becomes a record, and what is reported about a wrong file."""

import gzip
import json

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from lexmill.corpora.preparing.source_files import SourceFiles, names, natural_key
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all


def rows(corpus, folder):
    records, errors = read_all(corpus, folder)
    assert not errors, error_texts(errors)
    return [(r.id, r.group, *r.sides, *([r.label] if r.label is not None else [])) for r in records]


def errors_of(corpus, folder):
    return error_texts(read_all(corpus, folder)[1])


# ---------------------------------------------------------------- files


def test_numbers_sort_as_numbers():
    names = ["b1", "part10", "part2", "part1", "part02", "a"]
    assert sorted(names, key=natural_key) == ["a", "b1", "part1", "part02", "part2", "part10"]


def test_files_are_named_by_their_stem_or_where_it_is_shared_by_their_path():
    paths = ["x/hamlet.txt.gz", "x/lear.txt", "y/lear.txt", "z/john.md", "z/john.txt", "z/john.txt.gz"]
    wanted = ["hamlet", "x/lear", "y/lear", "z/john.md", "z/john.txt", "z/john.txt.gz"]
    assert names(paths) == dict(zip(paths, wanted, strict=True))


@pytest.mark.parametrize(
    "wanted",
    [
        {"b.csv": "b.csv", "b.txt": "b.txt", "b.txt.md": "b.txt.md"},
        {"b.txt": "b", "b.txt.md": "b.txt"},  # all have their stems
        {"b.csv": "b.csv", "b.txt": "b.txt", "d/b.txt.md": "d/b.txt.md"},
        {"b.txt.gz": "b.txt.gz", "b.txt.zst": "b.txt.zst", "d/b.txt.md": "b.txt"},
        {"b.csv": "b.csv", "b.txt.gz": "b.txt.gz", "b.txt.md": "b.txt.md", "b.txt.md.c": "b.txt.md.c"},
    ],
)
def test_files_whose_names_would_meet_are_named_by_their_path(wanted):
    assert names(wanted) == wanted


@given(st.sets(st.from_regex(r"(d/)?[bc](\.t|\.m|\.gz){0,4}", fullmatch=True), max_size=20))
def test_every_file_has_a_name_of_its_own(paths):
    named = names(sorted(paths))
    assert named.keys() == paths
    assert len(set(named.values())) == len(paths)


def test_a_folder_that_was_not_fetched(tmp_path):
    with pytest.raises(UserError, match="fetch the corpus first"):
        SourceFiles(tmp_path)
    with pytest.raises(UserError, match="has no files"):
        SourceFiles(make_source(tmp_path, {}))


# ---------------------------------------------------------------- text

TEXT = "Act one\nline\n\n \nAct two\n"


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ("file", [("play", "play", TEXT)]),
        ("paragraph", [("play:1", None, "Act one\nline"), ("play:5", None, "Act two")]),
        (
            "line",
            [(f"play:{i}", None, line) for i, line in enumerate(["Act one", "line", "", " ", "Act two"], 1)],
        ),
    ],
)
def test_text_documents(tmp_path, document, wanted):
    make_source(tmp_path, {"play.txt": TEXT})
    assert rows(corpus_of("text", {"format": "text", "document": document}), tmp_path) == wanted


def test_text_errors_of_all_files_are_reported(tmp_path):
    make_source(tmp_path, {"1.txt": b"\xff", "2.txt": "fine", "3.txt": b"a\n\0"})
    records, errors = read_all(corpus_of("text", {"format": "text"}), tmp_path)
    assert [r.text for r in records] == ["fine"]
    first, second = error_texts(errors)
    assert "1.txt:1: not UTF-8" in first
    assert "3.txt:2: a NUL byte" in second


# ---------------------------------------------------------------- tables


def table(form="csv", **columns):
    return {"format": form, **columns}


def test_csv_with_quotes_newlines_and_commas(tmp_path):
    make_source(tmp_path, {"t.csv": '\ufefftext,label\r\n"one, ""two""\r\nthree",a\r\n\r\n four\u2028,b\r\n'})
    corpus = corpus_of("labelled", table(text="text", label="label"))
    assert rows(corpus, tmp_path) == [
        ("t:2", None, 'one, "two"\nthree', "a"),
        ("t:5", None, " four\u2028", "b"),
    ]


def test_tsv_without_header_and_quotes(tmp_path):
    make_source(tmp_path, {"t.tsv": '1\t0.5\t"Not closed\n2\t-.5\tb\x85"\n3\t0.1\tc\n'})
    reader = table("tsv", text="2", label="1", header=False, quoting=False, positive_from=0.5, negative_to=-0.5)
    records, errors = read_all(corpus_of("labelled", reader), tmp_path)
    assert not errors
    assert [(r.text, r.label) for r in records] == [
        ('"Not closed', "positive"),
        ('b\x85"', "negative"),
        ("c", None),
    ]


def test_groups_come_from_their_column_and_an_empty_one_is_the_text_itself(tmp_path):
    make_source(tmp_path, {"t.csv": "id,body\n7,one\n,two\n"})
    corpus = corpus_of("text", table(text="body", group="id"))
    assert rows(corpus, tmp_path) == [("t:2", "7", "one"), ("t:3", None, "two")]


def test_csv_errors_have_lines_and_reading_goes_on(tmp_path):
    make_source(tmp_path, {"t.csv": 'text,label\na,b,c\n"x"y,l\nlast,\nok,l\n"never closed,l\n'})
    wrong = errors_of(corpus_of("labelled", table(text="text", label="label")), tmp_path)
    assert "t.csv:2: 3 fields where 2 were expected" in wrong[0]
    assert "t.csv:3: wrong quoting" in wrong[1]
    assert "t.csv:4: the label in 'label' is empty" in wrong[2]
    assert "t.csv:6: wrong quoting" in wrong[3]
    assert "reader.quoting: false" in wrong[3]
    assert len(wrong) == 4


def test_missing_columns_are_all_reported_with_the_nearest(tmp_path):
    make_source(tmp_path, {"t.csv": "body,queue\na,b\n", "u.csv": "body,body\n"})
    first, second = errors_of(corpus_of("labelled", table(text="bodi", label="xyz")), tmp_path)
    assert "t.csv:1: there is no column 'bodi', did you mean 'body'?" in first
    assert "no column 'xyz'; columns: body, queue" in first
    assert "u.csv:1" in second
    (twice,) = errors_of(corpus_of("text", table(text="body")), make_source(tmp_path / "2", {"t.csv": "body,body\n"}))
    assert "two columns are named 'body'" in twice


def test_a_rating_must_be_a_number(tmp_path):
    make_source(tmp_path, {"t.csv": "text,r\na,good\nb,nan\nc,1e0\n"})
    reader = table(text="text", label="r", positive_from=0.5, negative_to=-0.5)
    first, second = errors_of(corpus_of("labelled", reader), tmp_path)
    assert "t.csv:2: the rating in 'r' is 'good', not a number" in first
    assert "t.csv:3" in second


def test_jsonl(tmp_path):
    lines = [{"s": "a\nb", "t": "ä", "extra": [1]}, {"s": "", "t": "\u2028"}]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    make_source(tmp_path, {"t.jsonl.gz": gzip.compress(f"{text}\n".encode())})
    corpus = corpus_of("parallel", table("jsonl", source="s", target="t"))
    assert rows(corpus, tmp_path) == [("t:1", None, "a\nb", "ä"), ("t:2", None, "", "\u2028")]


def test_jsonl_labels_may_be_numbers(tmp_path):
    make_source(tmp_path, {"t.jsonl": '{"x": "a", "y": 0}\n{"x": "b", "y": true}\n'})
    corpus = corpus_of("labelled", table("jsonl", text="x", label="y"))
    assert [row[-1] for row in rows(corpus, tmp_path)] == ["0", "true"]


def test_jsonl_errors(tmp_path):
    bad = ['{"x": "fine"}', '{"x": ', "[1]", '{"y": "a"}', '{"x": 3}', '{"x": null}', '{"x": "\\ud800"}', "[" * 99999]
    make_source(tmp_path, {"t.jsonl": "\n".join(bad)})
    wrong = errors_of(corpus_of("text", table("jsonl", text="x")), tmp_path)
    said = [
        "not valid JSON",
        "expected a JSON object, got [1]",
        "there is no column 'x'; columns: y",
        "'x' holds 3, not text",
        "'x' holds nothing, not text",
        "half a character (U+D800)",
        "nested too deep",
    ]
    assert len(wrong) == len(said)
    for line, (error, words) in enumerate(zip(wrong, said, strict=True), 2):
        assert f"t.jsonl:{line}: " in error
        assert words in error


def test_parquet(tmp_path):
    path = tmp_path / "made.parquet"
    values = {"t": ["one", "two\u2028"] * 1500, "n": [1, 2] * 1500, "other": [None] * 3000}
    pyarrow.parquet.write_table(pyarrow.table(values), path)
    make_source(tmp_path / "s", {"p.parquet": path.read_bytes()})
    corpus = corpus_of("labelled", table("parquet", text="t", label="n"))
    found = rows(corpus, tmp_path / "s")
    assert len(found) == 3000
    assert found[1] == ("p:2", None, "two\u2028", "2")
    (missing,) = errors_of(corpus_of("text", table("parquet", text="T")), tmp_path / "s")
    assert "there is no column 'T'" in missing
    wrong = errors_of(corpus_of("text", table("parquet", text="other")), tmp_path / "s")
    assert "p.parquet: row 1: 'other' holds nothing, not text" in wrong[0]
    (damaged,) = errors_of(corpus, make_source(tmp_path / "d", {"p.parquet": b"PAR1 no PAR1"}))
    assert "not a readable parquet file" in damaged


# ---------------------------------------------------------------- parallel text

PARALLEL = {"format": "parallel_text", "source": ["*.en"], "target": ["*.de"]}


def test_chunks_are_paired_in_natural_order_and_empty_lines_are_kept(tmp_path):
    files = {}
    for chunk in (1, 2, 10):
        files[f"c{chunk}.en"] = f"\ufeff{chunk} a\x85\r\n\n{chunk} c\n"
        files[f"c{chunk}.de"] = f"{chunk} A\n{chunk} B\u2028\n{chunk} C"
    make_source(tmp_path, files)
    assert rows(corpus_of("parallel", PARALLEL), tmp_path) == [
        row
        for n in (1, 2, 10)
        for row in (
            (f"c{n}:1", None, f"{n} a\x85", f"{n} A"),
            (f"c{n}:2", None, "", f"{n} B\u2028"),
            (f"c{n}:3", None, f"{n} c", f"{n} C"),
        )
    ]


def test_patterns_may_leave_out_compression(tmp_path):
    make_source(tmp_path, {"d/a.en.gz": gzip.compress(b"x\n"), "d/a.de": "y\n"})
    corpus = corpus_of("parallel", {**PARALLEL, "source": ["d/a.en"], "target": ["d/*.de"]})
    assert rows(corpus, tmp_path) == [("a:1", None, "x", "y")]


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 1)])
def test_unequal_lengths_say_both_counts_and_the_first_line_alone(tmp_path, left, right):
    make_source(tmp_path, {"a.en": "x\n" * left, "a.de": "y\n" * right})
    (error,) = errors_of(corpus_of("parallel", PARALLEL), tmp_path)
    assert f"a.en has {left} lines but a.de has {right}" in error
    assert f"{'a.en' if left > right else 'a.de'}:{min(left, right) + 1}: " in error


def test_the_errors_of_both_sides_are_reported(tmp_path):
    make_source(tmp_path, {"a.en": b"x\n\xff\n", "a.de": b"x\ny\nz\0\n"})
    first, second = errors_of(corpus_of("parallel", PARALLEL), tmp_path)
    assert "a.en:2: not UTF-8" in first
    assert "a.de:3: a NUL byte" in second


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (["a.en"], r"reader.target: no file matches *.de; there are: a.en"),
        (["a.en", "b.en", "a.de"], "2 source files but 1 target files"),
    ],
)
def test_files_without_their_partner(tmp_path, files, said):
    make_source(tmp_path, dict.fromkeys(files, "x\n"))
    (error,) = errors_of(corpus_of("parallel", PARALLEL), tmp_path)
    assert said in error


def test_one_file_cannot_be_both_sides(tmp_path):
    make_source(tmp_path, {"a.en": "x\n"})
    (error,) = errors_of(corpus_of("parallel", {**PARALLEL, "target": ["a.*"]}), tmp_path)
    assert "one file cannot be both: a.en" in error


# ---------------------------------------------------------------- translation trees

TREE = {"format": "translation_tree", "source": "c/{group}/en.json", "target": "c/{group}/de.json"}


def test_trees_are_joined_on_component_and_key(tmp_path):
    en = {"title": "Door", "state": {"on": "Open", "off": "Closed", "list": ["no"]}, "only": "here"}
    de = {"state": {"off": "Zu", "on": "Offen", "list": "no"}, "title": "Tür", "other": "dort"}
    make_source(
        tmp_path,
        {
            "top/c/door/en.json": json.dumps(en),
            "top/c/door/de.json": json.dumps(de),
            "top/c/alone/en.json": json.dumps(en),
        },
    )
    assert rows(corpus_of("parallel", TREE), tmp_path) == [
        ("door:title", "door", "Door", "Tür"),
        ("door:state.on", "door", "Open", "Offen"),
        ("door:state.off", "door", "Closed", "Zu"),
    ]


def test_tree_errors(tmp_path):
    deep = '{"a":' * 900 + "1" + "}" * 900
    files = {"a/en": '{"x":\n oops}', "a/de": "[]", "b/en": "{}", "c/en": '{"k": "\\ud800"}', "c/de": deep + "x"}
    make_source(tmp_path, {f"c/{path}.json": text for path, text in files.items()})
    first, second, third, fourth = errors_of(corpus_of("parallel", TREE), tmp_path)
    assert "c/c/en.json: the message 'k' holds half a character (U+D800)" in third
    assert "c/c/de.json" in fourth
    assert "c/a/en.json:2: not valid JSON" in first
    assert "c/a/de.json:1: expected a JSON object" in second


@pytest.mark.parametrize(
    ("reader", "said"),
    [
        ({**TREE, "source": "c/en.json"}, "must hold {group} once"),
        ({**TREE, "source": "d/{group}/en.json"}, "no file matches 'd/{group}/en.json'; there are: c/a/de.json"),
    ],
)
def test_patterns_are_checked(tmp_path, reader, said):
    make_source(tmp_path, {"c/a/en.json": "{}", "c/a/de.json": "{}"})
    (error,) = errors_of(corpus_of("parallel", reader), tmp_path)
    assert said in error


def test_no_component_with_both_languages(tmp_path):
    make_source(tmp_path, {"c/a/en.json": "{}", "c/b/de.json": "{}"})
    (error,) = errors_of(corpus_of("parallel", TREE), tmp_path)
    assert "none with both" in error
