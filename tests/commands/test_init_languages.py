"""`lexmill init` takes the languages from the option, else from names, says so, and never guesses them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from lexmill import params
from lexmill.base.errors import UserError
from lexmill.commands.init.initialize import initialize
from lexmill.commands.init.languages import choose, in_name
from lexmill.commands.init.reading import Kind, Reading
from lexmill.params.corpora import Corpus

ROOT = Path(__file__).parents[2]
COLUMNS: dict[str, dict[str, str | None]] = {
    "text": {"text": None},
    "labelled": {"text": "text", "label": "label"},
    "parallel": {"source": None, "target": None},
}


def made(project: Path, kind: Kind, *names: str, languages: str | None = None, **columns: str) -> Corpus:
    """The corpus of files with 30 lines each; a table has the given columns."""
    head = "\t".join(columns.values() if columns else COLUMNS[kind])
    for side, name in enumerate(names):
        rows = [f"text {i}\tside {i % 2}" if name.endswith(".tsv") else f"text {side} {i}" for i in range(30)]
        (project / name).write_text("\n".join([head, *rows] if name.endswith(".tsv") else rows) + "\n")
    paths = [project / name for name in names]
    initialize(kind, paths, Reading({**COLUMNS[kind], **columns}), name="mine", languages=languages, root=project)
    return params.load(project / "params.yaml").corpora["mine"]


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("train.en", "en"),
        ("train.zh_CN", "zh-CN"),
        ("data/train.de.gz", "de"),
        ("*.fr.zst", "fr"),
        ("corpus.en-de.de", "de"),
        ("train.en.txt", "en"),
        ("de.txt", "de"),
        ("train_zh_CN.txt", "zh-CN"),
        ("train.cmn", "zh"),
        ("translation.en", "en"),
        ("sentence_de", "de"),
        ("German", "de"),
        ("train.txt", None),
        ("train.src", None),
        ("tgt", None),
        ("source", None),
        ("0", None),
    ],
)
def test_the_language_that_a_name_ends_in(name: str, tag: str | None) -> None:
    assert in_name(name) == tag


def test_file_names(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(project, "parallel", "train.en", "train.cmn").languages == ("en", "zh")
    said = "languages: English (en) to Chinese (zh), from the files' names; --languages changes them"
    assert said in capsys.readouterr().err


def test_column_names(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(project, "parallel", "pairs.tsv", source="en", target="zh").languages == ("en", "zh")
    said = "languages: English (en) to Chinese (zh), from the columns' names; --languages changes them"
    assert said in capsys.readouterr().err


XLIFF = """<xliff version="1.2"><file source-language="en-US" target-language="{}"><body>
{}</body></file></xliff>"""


def xliff(path: Path, target: str, count: int = 30) -> Path:
    units = "".join(
        f"<trans-unit><source>text {i}</source><target>Text {i}</target></trans-unit>" for i in range(count)
    )
    path.write_text(XLIFF.format(target, units))
    return path


def test_the_files_of_xliff_say_theirs(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [xliff(project / f"{i}.xlf", "de") for i in range(2)]
    initialize("parallel", files, Reading(COLUMNS["parallel"]), name="mine", root=project)
    assert params.load(project / "params.yaml").corpora["mine"].languages == ("en-US", "de")
    assert "languages: English (en-US) to German (de), from the files; --languages" in capsys.readouterr().err
    files.append(xliff(project / "2.xlf", "fr"))
    with pytest.raises(UserError, match="--languages: the files say en-US to de, en-US to fr; say which to take"):
        initialize("parallel", files, Reading(COLUMNS["parallel"]), name="mine", root=project, force=True)
    with pytest.raises(UserError, match=r"--languages: the files say en-US to \?; say which to take"):
        choose("parallel", {"format": "xliff"}, None, [xliff(project / "3.xlf", "")])


def test_the_option_wins(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus = made(project, "parallel", "train.en", "train.de", languages="no-zh_CN")
    assert corpus.languages == ("no", "zh-CN")  # and not the `no` of YAML
    assert "languages: Norwegian (no) to Chinese (zh-CN), from --languages" in capsys.readouterr().err


@pytest.mark.parametrize("names", [("a.txt", "b.txt"), ("train.src", "train.tgt"), ("a.en", "b.en"), ("pairs.tsv",)])
def test_unknown_languages_are_asked_for(names: tuple[str, ...], project: Path) -> None:
    with pytest.raises(UserError, match=r"do not tell the languages; give them, as --languages en-de$"):
        made(project, "parallel", *names)
    assert not (project / "params.yaml").exists()
    assert made(project, "parallel", *names, languages="en-ja").languages == ("en", "ja")


def test_a_wrong_option_names_itself(project: Path) -> None:
    with pytest.raises(UserError, match=r"^--languages: 'jp' is no language's code or name; did you mean Japanese"):
        made(project, "parallel", "train.en", "train.ja", languages="en-jp")
    with pytest.raises(UserError, match=r"^--language: 'jp' is no language's code or name; did you mean Japanese"):
        made(project, "text", "book.txt", languages="jp")


@pytest.mark.parametrize(("kind", "name"), [("text", "book.txt"), ("labelled", "mails.tsv")])
def test_the_language_of_texts(kind: Kind, name: str, project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert made(project, kind, name).languages == ("en",)
    assert "language: English (en), unless --language says another" in capsys.readouterr().err
    shutil.rmtree(project)
    shutil.copytree(ROOT / "conf", project / "conf")
    assert made(project, kind, name, languages="jpn").languages == ("ja",)
    assert "language: Japanese (ja), from --language" in capsys.readouterr().err
    assert yaml.safe_load((project / "conf" / "corpus" / "mine.yaml").read_text())["languages"] == ["ja"]
