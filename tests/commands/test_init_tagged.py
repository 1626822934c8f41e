"""`lexmill init tag` on files as their owners published them; then fetch and prepare without another line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lexmill import params
from lexmill.base.errors import UserError, UserErrors
from lexmill.params.readers import ConllReader, ConlluReader, TaggedRecordsReader
from tests.commands.test_init_given import counts, prepared

TAG: dict[str, str | None] = {"words": None, "tags": None}


def conllu(count: int, word: str = "w") -> str:
    lines = [
        f"# newdoc id = d{i}\n1\t{word}{i}\t_\tNOUN\tNN\t_\t0\troot\t_\tX=a\n2\tgoes\t_\tVERB\tVBZ\t_\t1\t_\t_\t_\n\n"
        for i in range(count)
    ]
    return "".join(lines)


def conll(count: int, tags: tuple[str, ...] = ("B-per", "I-per", "O")) -> str:
    return "".join("".join(f"w{i}x{j} {tag}\n" for j, tag in enumerate(tags)) + "\n" for i in range(count))


def test_parts_of_speech_of_a_treebank(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, number in (("train", 60), ("dev", 8), ("test", 9)):
        (project / f"x-ud-{name}.conllu").write_text(conllu(number, name))
    corpus, made = prepared(
        project, "tagged", ["x-ud-train.conllu"], TAG, valid=["x-ud-dev.conllu"], test=["x-ud-test.conllu"]
    )
    assert isinstance(corpus.reader, ConlluReader)
    assert (corpus.reader.tag, corpus.reader.scheme, corpus.unit) == ("upos", "none", "sentence")
    assert counts(made) == {"train": 60, "valid": 8, "test": 9}
    assert (made.labels, made.entities) == (("NOUN", "VERB"), False)
    assert "scheme: none" in capsys.readouterr().err
    (model,) = params.load(project / "params.yaml").models.values()
    assert (model.kind, model.data.corpus, model.data.tokenizer) == ("tagger", "mine", "minilm")
    assert list(params.load(project / "params.yaml").corpora) == ["mine"]


def test_other_tags_of_a_treebank_and_documents_as_groups(project: Path) -> None:
    (project / "a.conllu").write_text(conllu(40))
    corpus, made = prepared(project, "tagged", ["a.conllu"], {**TAG, "tags": "misc:X"}, group="document")
    assert isinstance(corpus.reader, ConlluReader)
    assert (corpus.reader.tag, corpus.reader.key, corpus.reader.group) == ("misc", "X", "document")
    assert made.labels == ("O", "a")
    assert next(made.records("train"))["group"].startswith("d")


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        (("B-per", "I-per", "O"), "iob2"),
        (("I-per", "B-per", "O"), "iob1"),
        (("B-per", "E-per", "S-per"), "bioes"),
        (("NN", "VB", "O"), "none"),
        (("B-per", "-", "O"), "none"),
    ],
)
def test_the_scheme_of_entities_is_found(project: Path, tags: tuple[str, ...], scheme: str) -> None:
    (project / "a.conll").write_text(conll(40, tags))
    corpus, made = prepared(project, "tagged", ["a.conll"], TAG)
    assert isinstance(corpus.reader, ConllReader)
    assert corpus.reader.scheme == scheme
    assert made.entities == (scheme != "none")


def test_a_file_of_another_name_and_other_columns(project: Path) -> None:
    text = "-DOCSTART- -X- O\n\n" + conll(40, ("NN B-x", "NN I-x", "X O"))
    (project / "eng.train").write_text(text)
    corpus, made = prepared(
        project, "tagged", ["eng.train"], {"words": "0", "tags": "1"}, file_format="conll", scheme="none"
    )
    assert isinstance(corpus.reader, ConllReader)
    assert (corpus.reader.word, corpus.reader.tag) == (0, 1)
    assert made.labels == ("NN", "X")


def test_records_of_lists(project: Path) -> None:
    rows = [{"tokens": [f"a{i}", "b"], "ner": ["B-x", "O"], "part": "test" if i % 4 else "train"} for i in range(80)]
    (project / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    corpus, made = prepared(project, "tagged", ["a.jsonl"], {"words": "tokens", "tags": "ner"}, split="part")
    assert isinstance(corpus.reader, TaggedRecordsReader)
    assert (corpus.reader.file_format, corpus.reader.scheme) == ("jsonl", "iob2")
    assert made.count("test") == 60


@pytest.mark.parametrize(
    ("text", "columns", "options", "message"),
    [
        (
            conll(30, ("O", "I-x", "B-y", "I-z")),
            TAG,
            {},
            r"a\.conll:2: 'I-x' cannot follow 'O' in the scheme iob2",
        ),
        (
            conll(30) + "a LOC\nb Z-per\n",
            TAG,
            {},
            r"a\.conll:121: 'LOC' .*is reader\.scheme right\? \(init: --scheme\)",
        ),
        (conll(30), {**TAG, "tags": "last"}, {}, "--tags: 'last' is no number of a column"),
        (conll(30), TAG, {"group": "author"}, "--group: 'author' is no column of such files; give document"),
        (conll(30), TAG, {"split": "part"}, "--split-column: such files have no columns for it"),
        (conll(30), TAG, {"file_format": "csv"}, "--format 'csv': it must be one of: conll, conllu, tagged_records"),
        (conll(30), TAG, {"delimiter": ";"}, "--delimiter: it means nothing for the format 'conll'"),
        (conll(30), TAG, {"scheme": "bio"}, "reader.scheme: 'bio' is none of"),
        (conll(10), TAG, {}, "10 records; at least 20 are needed"),
        (conll(30, ("X", "X")), TAG, {}, "all records have the label 'X'; two labels are needed"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    project: Path, text: str, columns: dict[str, str | None], options: dict[str, str], message: str
) -> None:
    (project / "a.conll").write_text(text)
    before = (project / "conf" / "config.yaml").read_bytes()
    with pytest.raises((UserError, UserErrors), match=message):
        prepared(project, "tagged", ["a.conll"], columns, **options)
    assert (project / "conf" / "config.yaml").read_bytes() == before


def test_a_name_that_says_no_format(project: Path) -> None:
    (project / "a.annotated").write_text(conll(30))
    with pytest.raises(UserError, match=r"the format '\.annotated' of tagged sentences is unknown; .* --format conll"):
        prepared(project, "tagged", ["a.annotated"], TAG)
