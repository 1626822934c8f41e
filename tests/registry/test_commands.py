"""`lexmill generate`, `classify`, `translate` as a person at a terminal, a pipe and a Ctrl-C meet them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from lexmill import cli
from lexmill.base.errors import UserError
from lexmill.commands import use as commands
from lexmill.compute import cores, load
from lexmill.decoding.predictor import Predictor
from lexmill.kinds.language_model import command as language_model
from lexmill.kinds.language_model.sentences import log_probabilities
from lexmill.registry import loader, use
from lexmill.registry.loader import Precision, load_package

from .plain import plain_params

COMMANDS = [("generate", "gpt"), ("classify", "tickets"), ("translate", "en_de")]


@pytest.fixture(scope="module")
def here(published: tuple[Path, list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published workspace with its params and execution settings; nothing in it is changed."""
    where = tmp_path_factory.mktemp("commands") / "copy"
    shutil.copytree(published[0], where)
    (where / "params.yaml").write_text(yaml.safe_dump(plain_params()))
    (where / "conf/execution").mkdir(parents=True)
    (where / "conf/execution/local.yaml").write_text("tracking_uri: sqlite:///mlflow.db\n")
    return where


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "lexmill.cli", *arguments]


def output(*arguments: str, stdin: str | None = None) -> str:
    done = CliRunner().invoke(cli.app, arguments, input=stdin)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(("verb", "name"), COMMANDS)
def test_a_command_reports_that_other_programs_hold_the_cores(
    here: Path, monkeypatch: pytest.MonkeyPatch, verb: str, name: str
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(cores, "set_torch_threads", lambda settings: 2)
    monkeypatch.setattr(load, "measured", lambda: load.Others(1.4, 2, (("cc1", 1.4),)))
    done = CliRunner().invoke(cli.app, [verb, "a word", "--model", name])
    assert done.exit_code == 0, done.output
    said = [line for line in done.stderr.splitlines() if "cores busy" in line]
    assert said == [
        "other programs keep 1.4 of 2 cores busy (cc1 1.4), which can make this many times slower; `threads: 1` in"
        " conf/execution/local.yaml leaves them their cores"
    ]


@pytest.mark.parametrize(("verb", "name"), COMMANDS)
def test_a_command_keeps_the_memory_that_it_frees(
    here: Path, monkeypatch: pytest.MonkeyPatch, verb: str, name: str
) -> None:
    monkeypatch.chdir(here)
    kept: list[bool] = []
    monkeypatch.setattr(loader, "keep_freed_memory", lambda: kept.append(True))
    assert CliRunner().invoke(cli.app, [verb, "a word", "--model", name]).exit_code == 0
    assert kept == [True]


GENERATE = ("generate", "--max-tokens", "40", "--temperature", "1.5", "--seed", "3")


def test_a_text_is_written_in_the_precision_that_is_asked_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    found: list[str] = []

    def load(folder: Path, precision: Precision) -> Predictor:
        model = load_package(folder, precision)
        found.append(str(next(model.module.parameters()).dtype))
        return model

    monkeypatch.setattr(use, "load_package", load)
    low = output(*GENERATE, "--precision", "bfloat16", "ROMEO")
    assert output(*GENERATE, "--precision", "bfloat16", "--stream", "ROMEO") == low
    output(*GENERATE, "ROMEO")
    assert found == ["torch.bfloat16", "torch.bfloat16", "torch.float32"]


def test_the_champion_of_a_language_model_orders_translations_anew(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    shown = [
        output("translate", "Good day", "--n-best", "2", "--beam-size", "2", *more)
        for more in ((), ("--rescore", "gpt", "--rescore-weight", "0.5"))
    ]
    plain, anew = (dict(line.split("\t") for line in text.strip().split("\n")) for text in shown)
    assert plain.keys() == anew.keys()
    nats = log_probabilities(load_package(here / "artifacts/packages/gpt"), list(plain))
    expected = {text: float(score) + 0.5 * one for (text, score), one in zip(plain.items(), nats, strict=True)}
    assert {text: float(score) for text, score in anew.items()} == pytest.approx(expected, rel=1e-4)
    assert list(anew) == sorted(anew, key=lambda text: -expected[text])


def test_a_stream_is_the_same_text(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    whole = output(*GENERATE, "--min-p", "0.001", "--repetition-penalty", "1.1", "ROMEO")
    assert whole.startswith("ROMEO")
    assert len(whole) > len("ROMEO\n")
    filters = ("--stream", "--min-p", "0.001", "--repetition-penalty", "1.1")
    assert output(*GENERATE, *filters, "ROMEO") == whole
    cut = whole[12:14]
    assert output(*GENERATE, *filters, "--stop", cut, "--stop", "never", "ROMEO") == whole[:12] + "\n"
    line = output(*GENERATE, stdin="ROMEO\n")
    assert line.count("\n") == 1
    assert output(*GENERATE, "--stream", stdin="ROMEO\n") == line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stream", "a", "b"], "--stream shows one text as it is written, but there are 2 prompts; give one"),
        (
            ["--min-p", "2", "--repetition-penalty", "0", "a"],
            "min_p: 2.0 is too large; at most 1\nrepetition_penalty: 0.0 is too small",
        ),
        (["--stream", "--stop", "", "a"], "stop: an empty text would end every continuation at once"),
    ],
)
def test_wrong_options_are_reported(
    arguments: list[str], message: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    done = CliRunner().invoke(cli.app, ["generate", *arguments])
    assert isinstance(done.exception, UserError)
    assert message in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize(("verb", "model"), COMMANDS)
def test_a_reader_who_has_enough_is_no_error(verb: str, model: str, here: Path) -> None:
    read, write = os.pipe()
    os.close(read)  # as `| head -1` does after its line
    arguments = [verb, "--model", model, "a", "b"] if verb != "generate" else ["generate", "--stream", "a"]
    try:
        done = subprocess.run(command(*arguments), cwd=here, stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert done.returncode == 0
    assert done.stderr == b""


def test_ctrl_c_ends_a_stream_with_130(here: Path) -> None:
    endless = command("generate", "--stream", "--max-tokens", "1000000", "--temperature", "0", "ROMEO")
    with subprocess.Popen(endless, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        begun = process.stdout.read(12)  # the prompt, and some of the text
        process.send_signal(signal.SIGINT)
        rest, message = process.communicate(timeout=60)
    assert process.returncode == 130
    assert begun.startswith(b"ROMEO")
    assert rest.endswith(b"\n")
    assert message == b""


def test_at_a_terminal_one_prompt_is_streamed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    class Model:
        def stream(self, *_: Any) -> Iterator[str]:
            for piece in ("un", "e\n"):
                seen.append(capsys.readouterr().out)
                yield piece

        def predict(self, texts: list[str], _: Any) -> list[str]:
            return ["whole"] * len(texts)

    monkeypatch.setattr(commands, "model", lambda *_: Model())
    app = typer.Typer()
    language_model.add(app, commands)
    generate: Any = app.registered_commands[0].callback
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    generate(["L"])
    assert [*seen, capsys.readouterr().out] == ["L", "un", "e\n\n"]
    generate(["L"], stream=False)
    generate(["L", "M"])
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    generate(["L"])
    assert capsys.readouterr().out == "Lwhole\nLwhole\nMwhole\nLwhole\n"
    with pytest.raises(UserError, match="there are 2 prompts"):
        generate(["L", "M"], stream=True)
