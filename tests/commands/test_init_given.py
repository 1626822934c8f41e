"""`lexmill init` on data as its owners published it: their splits, no header, labels in lines or folders."""

import json
from pathlib import Path

import pytest

from lexmill import params
from lexmill.base.errors import UserError
from lexmill.commands.init import initialize as module
from lexmill.commands.init import reading_of
from lexmill.commands.init.entry import located
from lexmill.commands.init.initialize import initialize
from lexmill.commands.init.reading import Reading
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.small import linked
from lexmill.params.corpora import Corpus

ROOT = Path(__file__).resolve().parents[2]
CLASSIFY, TRANSLATE, LM = {"text": None, "label": None}, {"source": None, "target": None}, {"text": None}


def prepared(project: Path, kind: str, files: list[str], columns: dict, **options) -> tuple[Corpus, PreparedCorpus]:
    """What prepare makes of the corpus that init writes."""
    choices = {"group": None, "file_format": None, **options}
    languages = choices.pop("languages", None)
    sets = {split: [project / file for file in choices.pop(split, ())] for split in ("valid", "test")}
    reading = reading_of(columns, **sets, **choices)
    initialize(kind, [project / file for file in files], reading, name="mine", root=project, languages=languages)
    corpus = params.load(project / "params.yaml").corpora["mine"]
    with linked(located(corpus, project)) as source:
        prepare("mine", corpus, source, project / "corpus")
    return corpus, PreparedCorpus(project / "corpus")


def counts(made: PreparedCorpus) -> dict[str, int]:
    return {split: made.count(split) for split in made.manifest["splits"]}


def write(path: Path, text: str, encoding: str = "utf-8") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode(encoding))


def question(i: int, word: str) -> str:
    return f"{('DESC:manner', 'ENTY:cremat', 'NUM:date')[i % 3]} What is {word} number {i} , please ?\n"


def test_questions_like_trec(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines with their label first, latin-1, an own test set that train repeats in part."""
    write(
        project / "train.label", "".join(question(i, "caf\u00e9") for i in range(60)) + question(3, "test"), "latin-1"
    )
    write(project / "TREC_10.label", "".join(question(i, "test") for i in range(12)) * 2)
    _, made = prepared(
        project, "labelled", ["train.label"], CLASSIFY, test=["TREC_10.label"], file_format="labelled_lines"
    )
    assert made.count("test") == 24
    assert made.count("train") + made.count("valid") == 60
    assert made.labels == ("DESC:manner", "ENTY:cremat", "NUM:date")
    first = next(iter(made.records("train")))
    assert first["text"].startswith("What is caf\u00e9 number")
    said = "".join(capsys.readouterr())
    assert "as given: test 24" in said
    assert "train.label is not UTF-8 and is read as cp1252 ('" in said


def test_captions_like_multi30k(project: Path) -> None:
    for name, count in {
        "train": 60,
        "val": 10,
        "test_2016_flickr": 12,
        "test_2017_flickr": 9,
        "test_2017_mscoco": 5,
    }.items():
        for tongue in ("de", "en"):
            write(project / f"{name}.{tongue}", "".join(f"{tongue} {name} {i}\n" for i in range(count)))
    corpus, made = prepared(
        project,
        "parallel",
        ["train.de", "train.en"],
        TRANSLATE,
        valid=["val.de", "val.en"],
        test=[
            f"test_{part}.{tongue}" for part in ("2016_flickr", "2017_flickr", "2017_mscoco") for tongue in ("de", "en")
        ],
    )
    assert counts(made) == {"train": 60, "valid": 10, "test": 12, "test_2017_flickr": 9, "test_2017_mscoco": 5}
    assert corpus.languages == ("de", "en")
    assert [one["source"] for one in made.records("test_2017_mscoco")] == [f"de test_2017_mscoco {i}" for i in range(5)]
    assert next(one["target"] for one in made.records("test")) == "en test_2016_flickr 0"


def test_tokenised_pairs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tongue in ("en", "de"):
        write(project / f"train.{tongue}", "".join(f"{tongue} num@@ ber {i} .\n" for i in range(60)))
    _, made = prepared(project, "parallel", ["train.en", "train.de"], TRANSLATE)
    assert made.tokenized
    assert "tokenized: true, as subwords end in @@" in "".join(capsys.readouterr())
    chosen = params.load(project / "params.yaml")
    assert [(name, one.kind) for name, one in chosen.tokenizers.items()] == [("mine_tokens", "blanks")]


def test_a_table_without_a_header_and_with_another_delimiter(project: Path) -> None:
    for name, count in {"train.dat": 60, "dev.dat": 8, "test.dat": 9}.items():
        write(project / name, "".join(f"{i};{'ab'[i % 2]};the {name} text, number {i}\n" for i in range(count)))
    columns = {"text": "2", "label": "1"}
    _, made = prepared(
        project, "labelled", ["train.dat"], columns, valid=["dev.dat"], test=["test.dat"],
        file_format="csv", header=False, delimiter=";",
    )  # fmt: skip
    assert counts(made) == {"train": 60, "valid": 8, "test": 9}
    assert [one["text"] for one in made.records("valid")][1] == "the dev.dat text, number 1"


def test_a_folder_for_each_label(project: Path) -> None:
    """As reviews are published: train/pos/1_7.txt, test/neg/3_2.txt; both folders have files of the same names."""
    for split, count in {"train": 40, "test": 6}.items():
        for label in ("pos", "neg"):
            for i in range(count):
                write(project / "reviews" / split / label / f"{i}_7.txt", f"{split} {label}\n\nreview {i}\n")
        write(project / "reviews" / split / "urls_pos.txt", "no review\n")
    corpus, made = prepared(project, "labelled", ["reviews/train"], CLASSIFY, test=["reviews/test"])
    assert corpus.splits.files == {"test": ("test/*/*",)}  # not a line for each of 25,000 files
    assert made.labels == ("neg", "pos")
    assert made.count("test") == 12
    assert made.count("train") + made.count("valid") == 80
    assert {one["text"].split()[1] for one in made.records("test") if one["label"] == "pos"} == {"pos"}


def test_folders_of_labels_and_a_glob(project: Path) -> None:
    for label in ("pos", "neg"):
        for i in range(30):
            write(project / label / f"{i}.txt", f"{label} review {i}\n")
            write(project / "new" / label / f"{i}.txt", f"{label} new {i}\n")
            write(project / "new" / "more" / label / f"{i}.txt", f"{label} more {i}\n")
    _, made = prepared(project, "labelled", ["pos", "neg"], CLASSIFY)
    assert sum(counts(made).values()) == 60
    assert made.labels == ("neg", "pos")
    (project / "conf" / "corpus" / "mine.yaml").unlink()
    (project / "conf" / "config.yaml").write_text((ROOT / "conf" / "config.yaml").read_text())
    _, made = prepared(project, "labelled", ["new/*/*.txt"], CLASSIFY, file_format="text", test=["new/more"])
    assert made.count("test") == 60
    assert made.labels == ("neg", "pos")


TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header/><body>{}</body></tmx>
"""
UNIT = (
    '<tu><tuv xml:lang="en-US"><seg>the <hi>{0}</hi> text</seg></tuv>'
    '<tuv xml:lang="de"><seg>der {0} Text</seg></tuv></tu>'
)


def test_a_translation_memory(project: Path) -> None:
    write(project / "memory.tmx", TMX.format("\n".join(UNIT.format(i) for i in range(60))))
    corpus, made = prepared(project, "parallel", ["memory.tmx"], TRANSLATE, languages="de-en")
    assert sum(counts(made).values()) == 60
    first = next(iter(made.records("train")))
    assert (first["source"].split()[0], first["target"].split()[0]) == ("der", "the")
    assert corpus.languages == ("de", "en")


def test_gettexts_catalogues(project: Path) -> None:
    header = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n'
    messages = "".join(f'\nmsgid "the {i} text"\nmsgstr "der {i} Text"\n' for i in range(60))
    write(project / "de" / "all.po", header + messages)
    corpus, made = prepared(project, "parallel", ["de/*.po"], TRANSLATE, languages="de-en")
    assert corpus.reader.format == "gettext"
    assert sum(counts(made).values()) == 60
    first = next(iter(made.records("train")))
    assert (first["source"].split()[0], first["target"].split()[0]) == ("der", "the")


def test_several_labels_and_a_json_array(project: Path) -> None:
    rows = [{"text": f"text {i}", "queue": "ab"[i % 2], "level": "xy"[i % 3 == 0]} for i in range(60)]
    write(project / "all.json", json.dumps({"data": rows}))
    columns = {"text": None, "label": None}
    _, made = prepared(project, "labelled", ["all.json"], columns, labels=("queue", "level"))
    assert made.labels == ("a / x", "a / y", "b / x", "b / y")


def test_a_column_that_names_the_split(project: Path) -> None:
    rows = [f"text {i},{'ab'[i % 2]},{('train', 'train', 'train', 'dev', 'test')[i % 5]}\n" for i in range(100)]
    write(project / "all.csv", "text,label,part\n" + "".join(rows))
    _, made = prepared(project, "labelled", ["all.csv"], CLASSIFY, split="part")
    assert counts(made) == {"train": 60, "valid": 20, "test": 20}


@pytest.mark.parametrize(
    ("path", "name"), [("sms/train.tsv", "sms"), ("sms/spam.tsv", "spam"), ("m30k/Train.de.gz", "m30k")]
)
def test_a_corpus_is_not_called_train(path: str, name: str) -> None:
    assert module._usual_name(Path(path)) == name


def test_files_of_several_encodings(project: Path) -> None:
    for i in range(30):
        write(project / "notes" / f"{i}.txt", f"caf\u00e9 number {i} in town\n", "latin-1" if i % 10 == 0 else "utf-8")
    corpus, made = prepared(project, "text", ["notes/*.txt"], LM)
    assert set(corpus.reader.encodings) == {"0.txt", "10.txt", "20.txt"}
    assert all("caf\u00e9" in one["text"] for split in counts(made) for one in made.records(split))


def test_files_in_ascii_take_the_encoding_of_the_others(project: Path) -> None:
    for i in range(30):
        write(project / "notes" / f"{i}.txt", f"caf\u00e9 {i}\n" if i % 2 else f"plain {i}\n", "latin-1")
    corpus, _ = prepared(project, "text", ["notes/*.txt"], LM)
    assert (corpus.reader.encoding, corpus.reader.encodings) == ("cp1252", {})


def test_too_many_files_of_several_encodings_are_asked_for(project: Path) -> None:
    for i in range(90):
        write(project / "notes" / f"{i}.txt", f"caf\u00e9 number {i}\n", "latin-1" if i % 2 else "utf-8")
    with pytest.raises(UserError, match="45 of 90 files are not UTF-8 but seem to be cp1252; say --encoding"):
        prepared(project, "text", ["notes/*.txt"], LM)


def test_running_text_with_its_own_splits(project: Path) -> None:
    for name, count in {"wiki.train": 200, "wiki.valid": 20, "wiki.test": 25}.items():
        write(project / f"{name}.txt", "".join(f"paragraph {i} of {name}\n\n" for i in range(count)))
    _, made = prepared(project, "text", ["wiki.train.txt"], LM, valid=["wiki.valid.txt"], test=["wiki.test.txt"])
    assert counts(made) == {"train": 200, "valid": 20, "test": 25}


# ---------------------------------------------------------------- errors

TABLE = "text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(40))


@pytest.mark.parametrize(
    ("kind", "files", "options", "sentence"),
    [
        ("labelled", ["a.csv"], {"test": ["a.csv"]}, r"a\.csv is given twice; a file is in one split"),
        ("labelled", ["a.csv"], {"test": ["b.csv"], "valid": ["c.csv"]}, r"c\.csv matches no file"),
        ("labelled", ["a.csv"], {"header": False}, "--no-header: --text must be the number of a column"),
        ("labelled", ["a.csv"], {"separator": ":"}, "--separator: it means nothing for the format 'csv'"),
        ("labelled", ["a.txt"], {"file_format": "labelled_lines", "split": "c"}, "--split-column: such files have no"),
        ("labelled", ["a.txt"], {}, "plain text has no labels; give a .*, or --format labelled_lines"),
        ("parallel", ["a.de", "a.en"], {"test": ["b.de"]}, "--test: plain text pairs come as two files"),
        ("labelled", ["a.csv"], {"file_format": "tmx"}, "--format 'tmx': it must be one of: labelled_lines, text, csv"),
        ("parallel", ["a.tmx"], {}, "--languages: needed for tmx files"),
        ("text", ["a.txt"], {"file_format": "html"}, "--format 'html': it must be one of: text, csv"),
    ],
)
def test_options_that_do_not_fit(project: Path, kind: str, files: list[str], options: dict, sentence: str) -> None:
    for name in ("a.csv", "b.csv"):
        write(project / name, TABLE)
    for name in ("a.txt", "a.de", "a.en", "b.de", "a.tmx"):
        write(project / name, "a line\n" * 40)
    with pytest.raises(UserError, match=sentence):
        prepared(project, kind, files, {"text": LM, "labelled": CLASSIFY, "parallel": TRANSLATE}[kind], **options)
    assert not (project / "conf" / "corpus" / "mine.yaml").exists()


def test_marks_as_people_type_them() -> None:
    reading = reading_of({}, group=None, file_format=None, delimiter="\\t", separator="space", quoting=None)
    assert reading == Reading({}, choices={"delimiter": "\t", "separator": " "}, valid=[], test=[])
