"""The command line: quick help, errors as sentences with their exit code, lines in and lines out."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from lexmill import cli, params
from lexmill.base.errors import UserError, UserErrors
from lexmill.commands import check, describe, use
from lexmill.commands.init import initialize
from lexmill.commands.init.entry import corpus_entry
from lexmill.commands.init.reading import Reading
from lexmill.commands.init.starting_sizes import FORMS
from lexmill.compute.execution import Execution
from lexmill.kinds.verbs import one_line
from lexmill.params.corpora import FileSource
from lexmill.params.readers import ParallelTextReader, RecordsReader, TextReader

PROJECT = Path(__file__).resolve().parents[1]
COMMANDS = {
    "answer",
    "init",
    "evaluate",
    "run",
    "check",
    "compose",
    "params",
    "plan",
    "compare",
    "results",
    "publish",
    "refresh",
    "nightly",
    "doctor",
    "search",
    "seeds",
    "generate",
    "classify",
    "label",
    "label-errors",
    "label-next",
    "rate",
    "similar",
    "tag",
    "fill",
    "minimal-pairs",
    "last-words",
    "chat",
    "reward",
    "neighbours",
    "translate",
    "export",
    "schedule",
    "sync",
    "promote",
    "rollback",
    "champions",
    "serve",
    "ui",
}


def lexmill(*arguments: str, cwd: Path, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lexmill.cli", *arguments]
    done = subprocess.run(command, cwd=cwd, input=stdin, capture_output=True, check=False)
    return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_the_commands_are_these() -> None:
    app = cli.app
    group = typer.main.get_command(app)
    assert set(vars(group)["commands"]) == COMMANDS
    for name in sorted(COMMANDS):
        done = CliRunner().invoke(app, [name, "--help"])
        assert done.exit_code == 0, done.output


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from lexmill import cli; sys.argv = ['lexmill', '--help']\n"
        "try: cli.main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'dvc', 'prefect', 'mlflow', 'hydra', 'transformers', 'yaml', 'numpy'} & set(sys.modules)\n"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "params.yaml"),
        (["run", "--why"], "params.yaml"),
        (["check"], "params.yaml"),
        (["results"], "params.yaml"),
        (["compose"], "conf/config.yaml"),
        (["publish"], "params.yaml"),
        (["generate", "x"], "params.yaml"),
        (["init", "lm", "x.txt"], "conf/config.yaml"),
        (["schedule", "--cron", "0 2 * * *"], "flows/"),
        (["ui"], "conf/execution/local.yaml"),
        (["nonsense"], "No such command"),
        (["run", "--jobs", "0"], "jobs"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_outside_a_project_each_command_says_what_is_missing(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = lexmill(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_all_errors_at_once(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("experiment: x\ndata_sead: 1\ntraining_seed: -1\n")
    (tmp_path / "conf" / "execution").mkdir(parents=True)
    (tmp_path / "conf" / "execution" / "local.yaml").write_text("devices: two\n")
    done = lexmill("check", cwd=tmp_path)
    assert done.returncode == 2
    for message in (
        "data_sead: unknown key",
        "data_seed: missing",
        "training_seed: -1 is too small",
        "devices: expected",
    ):
        assert message in done.stderr
    assert len(done.stderr.strip().split("\n")) == len(set(done.stderr.strip().split("\n")))


def test_check_gathers_each_error_once() -> None:
    def two() -> None:
        raise UserErrors(["a", "b"])

    def one() -> None:
        raise UserError("b")

    assert check.gather([two, one]) == ["a", "b"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("tracking_uri: ftp://x", "tracking_uri: 'ftp://x' is not a store that MLflow knows ('ftp')"),
        ("tracking_uri: mlruns", "tracking_uri: 'mlruns' is a folder"),
        ("accelerator: cuda", "torch finds no 'cuda' on this machine"),
    ],
)
def test_check_looks_at_the_machine_and_the_store_before_anything_runs(
    setting: str, message: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(project)
    monkeypatch.delenv("LEXMILL_EXECUTION", raising=False)
    (project / "conf/execution/local.yaml").write_text(f"{setting}\n")
    with pytest.raises(UserErrors, match=re.escape(message)):
        check.check()


def test_a_device_is_looked_for_only_where_a_stage_runs_here(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(project)
    monkeypatch.setenv("LEXMILL_EXECUTION", "away.yaml")
    away = "accelerator: cuda\nstages:\n" + "".join(f"  {group}: {{launcher: slurm}}\n" for group in check.ON_DEVICE)
    error = "torch finds no 'cuda'"
    for settings, message in ((away, False), (f"{away}  train@gpt: {{launcher: local}}\n", True)):
        Path("away.yaml").write_text(settings)
        with pytest.raises(UserErrors) as found:  # the folder is no DVC project
            check.check()
        assert (error in str(found.value)) == message


def test_a_schedule_ends_when_it_alone_is_signalled(project: Path) -> None:
    (project / "flows").mkdir()
    (project / "flows/__init__.py").write_text("")
    child = "import sys, time\ntry: print('up', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: sys.exit(130)\n"
    (project / "flows/__main__.py").write_text(child)
    command = [sys.executable, "-m", "lexmill.cli", "schedule", "--cron", "0 2 * * *"]
    path = {**os.environ, "PYTHONPATH": str(project)}
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, env=path, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_params_documents_every_key() -> None:
    text = describe.describe(execution=False)
    lines = {line.split(" ")[0] for line in text.split("\n")}
    assert {"models.NAME.shape.d_model", "corpora.NAME.source.urls", "evaluation.confidence"} <= lines
    assert "models.NAME.recipe.length (length): how long it trains: '700 steps', '1.5e6 tokens', '3 epochs'" in text
    assert "micro_batch (micro batch): " in describe.describe(execution=True)
    heads = [line.split(" ")[0] for line in describe.describe(execution=True).split("\n")]
    assert [head for head in heads if "." not in head] == list(Execution.__dataclass_fields__)
    assert {"stages.NAME.launcher", "slurm.partition"} <= set(heads)


def test_lines_are_split_at_newlines_only_and_empty_ones_are_kept() -> None:
    stream = ["\ufeffone\r\n".encode(), b"\n", "two\u2028still\x0ctwo\n".encode(), b"last"]
    assert list(use.read_lines(stream)) == ["one", "", "two\u2028still\x0ctwo", "last"]
    with pytest.raises(UserError, match="standard input:2: not UTF-8"):
        list(use.read_lines([b"a\n", b"\xff\n"]))


def test_a_text_on_one_line_loses_nothing() -> None:
    text = "a\\n\nb\r"
    line = one_line(text)
    assert "\n" not in line
    assert line.encode().decode("unicode_escape") == text


# ------------------------------------------------------------------------------------------------ init


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the project's own conf/."""
    root = tmp_path / "my project"
    (root).mkdir()
    for path in (PROJECT / "conf").rglob("*.yaml"):
        target = root / path.relative_to(PROJECT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    # The checkout may itself hold an init's config; a test starts from a plain one.
    config = root / "conf" / "config.yaml"
    config.write_text(config.read_text().replace(initialize.MARK, "#"))
    return root


def test_init_classify(project: Path) -> None:
    rows = "".join(f'"text, {i}","{("it", "hr")[i % 2]}"\n' for i in range(60))
    (project / "tickets.csv").write_text(f"body,queue\n{rows}")
    done = lexmill("init", "classify", "tickets.csv", "--text", "body", "--label", "queue", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "60 records" in done.stderr
    assert "hr 30, it 30" in done.stderr or "it 30, hr 30" in done.stderr
    made = params.load(project / "params.yaml")
    assert list(made.corpora) == ["tickets"]
    assert list(made.of_kind("classifier")) == list(made.models) == ["tickets"]
    assert made.models["tickets"].data.corpus == "tickets"
    assert [(one.kind, one.corpus) for one in made.baselines.values()] == [("classifier", "tickets")]
    assert (project / "conf" / "config.yaml.bak-1").is_file()

    again = lexmill("init", "classify", "tickets.csv", "--text", "body", "--label", "queue", cwd=project)
    assert again.returncode == 2
    assert "--force" in again.stderr
    (project / "tickets.csv").write_text(f"body,queue\n{rows}{rows.replace('text', 'more')}")
    forced = lexmill("init", "classify", "tickets.csv", "--text", "body", "--label", "queue", "--force", cwd=project)
    assert forced.returncode == 0
    assert (project / "conf" / "config.yaml.bak-2").is_file()


@pytest.mark.parametrize("size", [2_000, 300_000, 3_000_000, 50_000_000])
@pytest.mark.parametrize(("kind", "labels"), [form for form in FORMS if form[0] != "questions"])
def test_sizes_follow_the_data_and_always_compose(kind: Any, labels: str, size: int, project: Path) -> None:
    counts = initialize.Counts(records=max(20, size // 100), characters=size, bytes=size)
    config = initialize.configuration(kind, "mine", counts, labels)
    entries = {
        "text": (["a.txt"], {"text": None}),
        "labelled": (["a.csv"], {"text": None, "label": None}),
        "tagged": (["a.conll"], {"words": None, "tags": None}),
        "parallel": (["a.en", "a.de"], {"source": None, "target": None}),
    }
    paths, columns = entries[kind]
    for path in paths:
        (project / path).touch()
    choices = {} if labels == "name" else {"label_form": {"kind": labels}}
    entry = corpus_entry(kind, paths, Reading(columns, choices=choices), None, project)
    (project / "conf" / "corpus" / "mine.yaml").write_text(yaml.safe_dump(entry))
    (project / "conf" / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    from lexmill.config.compose import compose

    made = params.parse(yaml.safe_load(compose((), project)))
    assert len(made.models) == len(made.corpora) == 1


def test_two_models_start_from_one_checkpoint(project: Path) -> None:
    from lexmill.config.compose import compose

    made = params.parse(yaml.safe_load(compose(["+model@models.second=minilm_probe"], project)))
    assert [made.models[name].data.tokenizer for name in ("sentiment", "second")] == ["minilm", "minilm"]
    assert list(made.checkpoints) == ["minilm"]


def test_init_translate_takes_two_text_files_and_their_languages(project: Path) -> None:
    for side in ("fr", "nl"):
        (project / f"news.{side}").write_text("".join(f"{side} {i}\n" for i in range(30)))
    initialize.initialize(
        "parallel", [project / "news.fr", project / "news.nl"], Reading({"source": None, "target": None}), root=project
    )
    corpus = params.load(project / "params.yaml").corpora["news"]
    assert corpus.languages == ("fr", "nl")
    assert isinstance(corpus.reader, ParallelTextReader)
    assert (corpus.reader.source, corpus.reader.target) == (("news.fr",), ("news.nl",))


def test_init_lm_splits_a_text_without_blank_lines_by_lines(project: Path) -> None:
    (project / "log.txt").write_text("".join(f"line {i}\n" for i in range(100)))
    initialize.initialize("text", [project / "log.txt"], Reading({"text": None}), root=project)
    reader = params.load(project / "params.yaml").corpora["log"].reader
    assert isinstance(reader, TextReader)
    assert reader.document == "line"


def test_init_lm_keeps_a_glob_and_takes_many_files_as_documents(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    (project / "notes").mkdir()
    for i in range(25):
        (project / "notes" / f"{i}.txt").write_text(f"note {i}\n\nmore\n")
    initialize.initialize("text", [Path("notes/*.txt")], Reading({"text": None}), name="notes")
    corpus = params.load().corpora["notes"]
    assert isinstance(corpus.source, FileSource)
    assert corpus.source.paths == ("notes/*.txt",)
    assert isinstance(corpus.reader, TextReader)
    assert corpus.reader.document == "file"


BAD: list[tuple[str, str, list[str], str]] = [
    ("a.csv", "text,label\n" + "x,y\n" * 30, ["classify"], "all records have the label 'y'"),
    ("a.csv", "text,label\n" + "".join(f"x{i},y{i}\n" for i in range(30)), ["classify"], "right column"),
    ("a.csv", "text,label\nx,y\n", ["classify"], "a.csv: 1 records; at least 20 are needed"),
    ("a.csv", "text,label\n" + "x,y\nx,z\n" * 30, ["classify"], "60 records, but only 1 different texts"),
    ("a.csv", "text,label\n" + "x,y\n" * 30, ["classify", "--text", "label"], "--text and --label name the column"),
    ("a.csv", "text;label\n" + "x;y\n" * 30, ["classify"], "; there is no column 'label'"),
    (
        "a.csv",
        "text;label\n" + "x;y\n" * 30,
        ["classify"],
        "by semicolons: set reader.delimiter: ';' (init: --",
    ),
    ("a.csv", "text\tlabel\n" + "x\ty\n" * 30, ["classify"], """by tabs: set reader.delimiter: "\\t" (init: --"""),
    ("a.txt", "\n" * 100, ["lm"], "100 records, but only 0 different texts"),
    ("a.csv", "text,label\n" + "x,y\n" * 30, ["classify", "--label", "lable"], "did you mean 'label'?"),
    ("a.txt", "x\n" * 30, ["classify"], "plain text has no labels"),
    ("a.txt", "x\n" * 30, ["lm", "--text", "body"], "--text: such files have no columns"),
    ("a.txt", "x\n" * 30, ["translate"], "two files, source and target"),
    ("a.pdf", "x\n" * 30, ["lm"], "the format '.pdf' is unknown"),
    ("a.txt", "", ["lm"], "a.txt: 0 records"),
    ("a.txt", "good\n\n" * 30 + "\udcff", ["lm", "--encoding", "utf-8"], "not UTF-8"),
    ("a\udcff.txt", "good\n\n" * 30, ["lm"], "a\\xff.txt is not UTF-8; rename the file"),
]


@pytest.mark.parametrize(("name", "text", "command", "message"), BAD, ids=[message for *_, message in BAD])
def test_init_refuses_and_writes_nothing(name: str, text: str, command: list[str], message: str, project: Path) -> None:
    (project / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    before = {path: path.read_bytes() for path in (project / "conf").rglob("*") if path.is_file()}
    done = lexmill("init", command[0], name, *command[1:], cwd=project)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert before == {path: path.read_bytes() for path in (project / "conf").rglob("*") if path.is_file()}
    assert not (project / "params.yaml").exists()


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_init_leaves_conf_as_it_was_when_it_ends_early(
    failure: BaseException, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "a.txt").write_text("".join(f"text {i}\n\n" for i in range(30)))
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}

    def fail(*_: Any) -> None:
        raise failure

    monkeypatch.setattr("lexmill.config.compose.write_params", fail)
    with pytest.raises(type(failure)):
        initialize.initialize("text", [project / "a.txt"], Reading({"text": None}), root=project)
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_init_reads_files_in_the_encoding_and_quoting_given(project: Path) -> None:
    rows = "".join(f'gr\N{LATIN SMALL LETTER O WITH DIAERESIS}\xdfer "{i},{("it", "hr")[i % 2]}\n' for i in range(60))
    (project / "t.csv").write_text(f"text,label\n{rows}", encoding="latin-1")
    refused = lexmill("init", "classify", "t.csv", "--encoding", "utf-8", cwd=project)
    assert refused.returncode == 2
    assert "--encoding latin-1" in refused.stderr
    found = lexmill("init", "classify", "t.csv", "--name", "found", cwd=project)
    assert (
        "t.csv is not UTF-8 and is read as cp1252 ('gr\N{LATIN SMALL LETTER O WITH DIAERESIS}"
        in found.stderr + found.stdout
    )
    (project / "conf" / "config.yaml").write_text("# mine\n" + (project / "conf" / "config.yaml").read_text())
    done = lexmill("init", "classify", "t.csv", "--encoding", "latin-1", "--no-quoting", cwd=project)
    assert done.returncode == 0, done.stderr
    reader = params.load(project / "params.yaml").corpora["t"].reader
    assert isinstance(reader, RecordsReader)
    assert (reader.encoding, reader.quoting) == ("latin-1", False)


def test_init_leaves_conf_as_it_was_when_it_does_not_compose(project: Path) -> None:
    (project / "a.txt").write_text("".join(f"text {i}\n\n" for i in range(30)))
    (project / "conf" / "model" / "gpt_tiny.yaml").write_text("family: gpd\n")
    before = (project / "conf" / "config.yaml").read_bytes()
    with pytest.raises(UserError):
        initialize.initialize("text", [project / "a.txt"], Reading({"text": None}), root=project)
    assert (project / "conf" / "config.yaml").read_bytes() == before
    assert not (project / "conf" / "corpus" / "a.yaml").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [("My Tickets-2024", "my_tickets_2024"), ("2024", "corpus_2024"), ("über Größe", "uber_gro_e"), ("", "corpus")],
)
def test_names_fit_params(text: str, name: str) -> None:
    assert initialize.corpus_name(text) == name


def test_a_closed_reader_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m lexmill.cli params | head -n 1"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("experiment")


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_standard_stream_is_no_error(project: Path, closed: int) -> None:
    command = f"'{sys.executable}' -m lexmill.cli params {closed}>&-; echo code $? >code"
    done = subprocess.run(["sh", "-c", command], cwd=project, capture_output=True, check=False)
    assert (project / "code").read_text() == "code 0\n", done.stderr
    assert b"Traceback" not in done.stderr


def test_arguments_beyond_ascii_arrive_in_any_locale(project: Path) -> None:
    (project / "größe.txt").write_text("ein Satz über Größe\n\n" * 5, encoding="utf-8")
    command = [sys.executable, "-m", "lexmill.cli", "init", "lm", "größe.txt"]
    old = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = subprocess.run(command, cwd=project, capture_output=True, check=False, env=old)
    assert done.stderr.decode("utf-8").startswith("größe.txt: 10 records"), done.stderr
    assert done.returncode == 2


def test_a_file_out_of_reach_is_a_sentence(project: Path) -> None:
    (project / "params.yaml").mkdir()
    for command in (("check",), ("compose",), ("results",), ("run", "--why")):
        done = lexmill(*command, cwd=project)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert "params.yaml: cannot be read" in done.stderr


def test_a_models_control_characters_reach_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    from lexmill.commands import use

    text = "a\x1b[2J\tb\u00a0c\n\u2028"
    assert use.harmless(text) == text  # a file or a pipe gets what the model wrote
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert use.harmless(text) == "a\\x1b[2J\tb\u00a0c\n\u2028"
