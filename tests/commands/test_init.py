"""`lexmill init`: what it writes is read as it was, names every choice, and its splits are never empty."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lexmill import params
from lexmill.base.errors import UserError, UserErrors
from lexmill.commands.check import _file_checks, gather
from lexmill.commands.init import app
from lexmill.commands.init.entry import located
from lexmill.commands.init.initialize import MARK, initialize
from lexmill.commands.init.reading import Reading
from lexmill.commands.init.shares import working
from lexmill.config.compose import compose, write_params
from lexmill.corpora.prepared import SPLITS, PreparedCorpus
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.small import check_small, linked
from lexmill.corpora.preparing.splits import split_of
from lexmill.params.corpora import Splits

ROOT = Path(__file__).parents[2]


def table(path: Path, rows: list[tuple[str, ...]], head: tuple[str, ...] = ("text", "label")) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in [head, *rows]), encoding="utf-8")
    return path


def classify(project: Path, path: Path, text: str = "text", label: str = "label", **how: Any) -> params.Params:
    reading = Reading({"text": text, "label": label}, **how)
    initialize("labelled", [path], reading, name="mine", root=project, force=True)
    return params.load(project / "params.yaml")


@pytest.mark.parametrize(
    ("command", "cell", "kind", "labels"),
    [
        (["rate"], lambda i: i / 2, "regressor", 30),
        (["label"], lambda i: ["a", "b"][: i % 3], "multilabel_classifier", 3),
        (
            ["label", "--between", "|", "--no-labels", "-"],
            lambda i: ("-", "a", "b | a")[i % 3],
            "multilabel_classifier",
            3,
        ),
    ],
)
def test_numbers_and_sets_have_a_command_each(
    *,
    command: list[str],
    cell: Callable[[int], Any],
    kind: str,
    labels: int,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(project)
    rows = [json.dumps({"text": f"text {i}", "label": cell(i % 30)}) for i in range(60)]
    Path("mine.jsonl").write_text("\n".join(rows))
    done = CliRunner().invoke(app, [*command, "mine.jsonl"], catch_exceptions=False)
    assert done.exit_code == 0
    made = params.load()
    assert [model.kind for model in made.models.values()] == [kind]
    assert list(made.corpora) == ["mine"]
    assert len(prepared(made, project).labels) == labels
    assert (project / "conf" / "config.yaml").read_text().startswith(f"{MARK} {command[0]} ")


def prepared(made: params.Params, project: Path) -> PreparedCorpus:
    corpus = made.corpora["mine"]
    with linked(located(corpus, project)) as source:
        prepare("mine", corpus, source, project / "corpus")
    return PreparedCorpus(project / "corpus")


def test_names_that_yaml_and_hydra_would_take_for_others(project: Path) -> None:
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(30)]
    path = table(project / "my ${data}" / "1e5.tsv", rows, ("1e5", "${x}"))
    made = classify(project, path, "1e5", "${x}").corpora["mine"]
    assert (made.reader.text, made.reader.label) == ("1e5", "${x}")  # type: ignore[union-attr]
    assert made.source.paths == ("my ${data}/1e5.tsv",)  # type: ignore[union-attr]


def test_every_choice_can_be_changed_by_its_name(project: Path) -> None:
    path = table(project / "a.tsv", [(f"text {i}", "ab"[i % 2]) for i in range(60)])
    classify(project, path)
    text = compose(["corpora.mine.deduplicate.exact=false", "corpora.mine.filters.max_words=9"], project)
    made = yaml.safe_load(text)["corpora"]["mine"]
    assert made["deduplicate"]["exact"] is False
    assert made["filters"]["max_words"] == 9


def test_a_key_that_conf_leaves_out_is_not_called_unknown(project: Path) -> None:
    path = table(project / "a.tsv", [(f"text {i}", "ab"[i % 2]) for i in range(60)])
    classify(project, path)
    corpus = project / "conf" / "corpus" / "mine.yaml"
    corpus.write_text(corpus.read_text().partition("deduplicate:")[0])
    write_params((), project)
    said = "conf/ leaves it at its default, so write .corpora.mine.deduplicate.exact=VALUE"
    with pytest.raises(UserError, match=said):
        compose(["corpora.mine.deduplicate.exact=false"], project)
    assert "exact: false" in compose(["+corpora.mine.deduplicate.exact=false"], project)


def test_twenty_texts_fill_each_split(project: Path) -> None:
    """Shares of 5 % and 10 % left a split empty for nearly half of such tables."""
    for number in range(12):
        rows = [(f"text {number} {i}", "ab"[i % 2]) for i in range(20)]
        made = classify(project, table(project / "a.tsv", rows))
        corpus = prepared(made, project)
        assert min(corpus.count(split) for split in SPLITS) >= 2
        assert corpus.labels == ("a", "b")


def test_large_corpora_keep_the_usual_shares(project: Path) -> None:
    rows = [(f"text {i}", "ab"[i % 2]) for i in range(1000)]
    splits = classify(project, table(project / "a.tsv", rows)).corpora["mine"].splits
    assert (splits.valid, splits.test, splits.salt) == (0.05, 0.1, "lexmill")


def test_three_authors_fill_each_split_and_two_cannot(project: Path) -> None:
    def by(authors: int) -> Path:
        rows = [(f"text {i}", "ab"[i % 2], f"author {i % authors}") for i in range(40)]
        return table(project / "a.tsv", rows, ("text", "label", "author"))

    corpus = prepared(classify(project, by(3), group="author"), project)
    assert [corpus.manifest["splits"][split]["groups"] for split in SPLITS] == [1, 1, 1]
    with pytest.raises(
        UserError, match=r"only 2 different groups .unit: group. are left to split into train, valid, test"
    ):
        classify(project, by(2), group="author")


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 10**6), min_size=3, max_size=60), st.integers(0, 3))
def test_any_few_groups_are_split(numbers: set[int], labels: int) -> None:
    assume(labels < 2 or len(numbers) > 7)
    groups = {f"group {n}": {str(i % labels)} if labels > 1 else set() for i, n in enumerate(sorted(numbers))}
    found = working(Splits(), groups, "group")
    split = {group: split_of(group, found) for group in groups}
    assert set(split.values()) == set(SPLITS)
    learned = set().union(*(groups[group] for group, name in split.items() if name == "train"))
    assert not labels > 1 or len(learned) > 1


def test_labels_that_no_split_leaves_to_train_on() -> None:
    groups = {"a": {"x"}, "b": {"x"}, "c": {"y"}}
    with pytest.raises(UserError, match="leaves two labels to train on"):
        working(Splits(), groups, "group")


def test_check_says_what_prepare_will_say_of_small_files(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = table(project / "a.tsv", [(f"text {i}", "ab"[i % 2]) for i in range(20)])
    made = classify(project, path)
    located = {"a.tsv": path}
    check_small("mine", made.corpora["mine"], located)
    monkeypatch.chdir(project)
    assert gather(_file_checks()) == []
    table(path, [(f"text {i}", "ab"[i % 2]) for i in range(2)])
    (error,) = gather(_file_checks())
    assert "corpora.mine.splits: nothing fell into" in error
    with pytest.raises(UserError, match=r"corpora\.mine\.splits: nothing fell into"):
        check_small("mine", made.corpora["mine"], located)
    path.write_text("text\tlabel\na\tb\tc\n", encoding="utf-8")
    with pytest.raises(UserErrors) as raised:
        check_small("mine", made.corpora["mine"], located)
    assert raised.value.errors == [f"{path}:2: 3 fields where 2 were expected"]


def test_what_the_demo_made_is_set_aside(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("dvc.yaml", "metrics", "reports/plots", "reports/curves"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (project / name).parent.mkdir(exist_ok=True)
        copy(ROOT / name, project / name)
    ours = project / "metrics" / "train" / "mine.json"
    ours.write_text("{}")
    curve = (project / "reports" / "curves" / "gpt.csv").read_bytes()
    classify(project, table(project / "a.tsv", [(f"text {i}", "ab"[i % 2]) for i in range(60)]))
    kept = {path.name for path in (project / "metrics").rglob("*.json")}
    assert kept == {"mine.json", "minilm.json"}  # the new model starts from the same encoder
    assert not (project / "reports").exists()
    assert not (project / "conf" / "search").exists()
    aside = project / ".lexmill" / "set-aside-1"
    assert (aside / "reports" / "curves" / "gpt.csv").read_bytes() == curve
    assert (aside / "conf" / "search" / "gpt.yaml").is_file()
    count = sum(path.is_file() for path in aside.rglob("*"))
    assert f"set aside: {count} files of models and corpora that are no more, in .lexmill/set-aside-1" in (
        capsys.readouterr().err
    )
    classify(project, project / "a.tsv")
    assert ours.is_file()
    assert not (project / ".lexmill" / "set-aside-2").exists()
