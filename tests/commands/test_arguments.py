"""Options, folders and addresses that cannot work: exit code 2 and one sentence, before anything is loaded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows import __main__ as flows
from lexmill import cli
from lexmill.base.addresses import invalid
from lexmill.base.errors import UserError, UserErrors
from lexmill.commands import check, deploy, schedule
from lexmill.compute.execution import load_execution

ODD = "http://me:hush@host\x1b[2J\u202e"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--vocab-size", "1" + "0" * 30], "vocab-size"),
        (["plan", "--devices", "9" * 5000], "devices"),
        (["plan", "--tflops", "nan"], "tflops"),
        (["plan", "--utilisation", "nan"], "utilisation"),
        (["plan", "--micro-batch", "1" + "0" * 20], "micro-batch"),
        (["schedule", "--approval-hours", "inf"], "approval-hours"),
        (["search", "gpt", "--trials", "1" + "0" * 20], "trials"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_numbers_have_bounds(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--temperature", "1e300", "temperature: 1e+300 is too large; at most 1000"),
        ("--temperature", "nan", "temperature: expected a finite number"),
        ("--seed", "9" * 30, "seed: 999999999999999999999999999999 is too large"),
        ("--max-tokens", "1" + "0" * 15, "max_tokens: 1000000000000000 is too large"),
        ("--repetition-penalty", "1e-300", "repetition_penalty: 1e-300 is too small"),
    ],
)
def test_settings_of_sampling_are_checked_before_the_model_is_loaded(option: str, value: str, message: str) -> None:
    done = CliRunner().invoke(cli.app, ["generate", "x", option, value])
    assert isinstance(done.exception, UserErrors)
    assert message in str(done.exception)


def test_an_interval_has_a_bound() -> None:
    with pytest.raises(UserError, match="at most 366 days"):
        schedule.seconds_of("9" * 400 + " days")


def test_export_names_what_is_in_the_way_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file" / "model", tmp_path / "file" / "a" / "model"):
        with pytest.raises(UserError, match="file' is a file; name a folder"):
            deploy.export_model("gpt", target, tmp_path)
    with pytest.raises(UserError, match="File name too long"):
        deploy.export_model("gpt", tmp_path / ("x" * 300) / "model", tmp_path)


def test_a_folder_that_does_not_exist_yet_is_usable(tmp_path: Path) -> None:
    assert check.unusable(tmp_path / "new" / "newer") == ""
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert "is a file" in check.unusable(tmp_path / "dangling" / "x")


def test_check_refuses_a_checkpoint_root_that_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/execution").mkdir(parents=True)
    (tmp_path / "conf/execution/local.yaml").write_text("checkpoint_root: taken/checkpoints\n")
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserErrors, match=r"checkpoint_root: '.*taken' is a file; name a folder"):
        check.check()


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("http://[::1", "it is no valid address"),
        ("http://a:99999", "it is no valid address"),
        ("http://a b", "it holds a space"),
        ("http://a\x1b", "it holds a space or a control character"),
        ("http://:5000", "it names no server after http://"),
        ("postgresql://", "nothing follows postgresql://"),
        ("sqlite:///", "nothing follows sqlite://"),
        ("sqlite:///my store/mlflow.db", ""),
        ("postgresql+psycopg2:///mlflow?host=/run", ""),
        ("http://[::1]:5000/mlflow", ""),
        ("databricks://profile", ""),
    ],
)
def test_the_address_of_a_store_is_checked_where_it_is_written(uri: str, why: str, tmp_path: Path) -> None:
    assert invalid(uri).startswith(why)
    assert bool(invalid(uri)) == bool(why)
    (tmp_path / "conf/execution").mkdir(parents=True)
    text = uri.replace("\x1b", "\\e")
    (tmp_path / "conf/execution/local.yaml").write_text(f'tracking_uri: "{text}"\n')
    if why:
        with pytest.raises(UserErrors, match="tracking_uri: "):
            load_execution(tmp_path)
    else:
        assert load_execution(tmp_path).tracking_uri == uri


def test_a_deleted_folder_and_an_escape_sequence_are_sentences(tmp_path: Path) -> None:
    def lexmill(*arguments: str, folder: Path, before: str = "pass") -> subprocess.CompletedProcess[str]:
        code = f"import os, sys; os.chdir({str(folder)!r}); {before}; from lexmill import cli; cli.main()"
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, capture_output=True, check=False, env={**os.environ}, cwd="/")
        return subprocess.CompletedProcess(command, done.returncode, done.stdout.decode(), done.stderr.decode())

    gone = tmp_path / "gone"
    gone.mkdir()
    done = lexmill("check", folder=gone, before=f"os.rmdir({str(gone)!r})")
    assert done.returncode == 2, done.stderr
    assert done.stderr == "the present folder cannot be used (No such file or directory); change to another one\n"

    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/config.yaml").write_text("a: 1\n")
    done = lexmill("init", "lm", "a\x1b[2J.pdf", folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "a\\x1b[2J.pdf" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", ODD],
        ["run", f"--{ODD}"],
        ["run", "--jobs", ODD],
        [ODD],
        ["init", ODD],
        ["generate", "--precision", ODD],
    ],
)
def test_a_wrong_argument_is_repeated_as_a_terminal_may_see_it(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["lexmill", *arguments])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    said = capsys.readouterr().err
    assert "\nError: " in said
    assert not {"\x1b", "\u202e"} & set(said)
    assert "hush" not in said


def test_so_does_the_flow(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        flows.main(["run", f"--{ODD}"])
    said = capsys.readouterr().err
    assert said.startswith("usage: python -m flows ")
    assert said.endswith("error: unrecognized arguments: --http://host\\x1b[2J\\u202e\n")
