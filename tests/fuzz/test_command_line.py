"""Any arguments to the commands that need no server: success, or exit code 2 and a sentence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lexmill import cli
from lexmill.base.errors import machine_error
from tests.fuzz.budget import fuzzed
from tests.fuzz.nasty import within_budget

ROOT = Path(__file__).resolve().parents[2]
ODD = (
    *(
        "",
        " ",
        "-",
        "--",
        "-1",
        "0",
        "1",
        "0.5",
        "nan",
        "inf",
        "-inf",
        "1e300",
        "1e-300",
        "1e400",
        "9" * 30,
        "9" * 5000,
    ),
    *("x" * 300, "x" * 5000, "a\x1b[2Jb", "\u202egnp", "\udcff", "a b", "a/b", "../x", "/", "/dev/null", "/dev/null/x"),
    *(
        "params.yaml",
        "params.yaml/x",
        "conf",
        ".",
        "..",
        "~",
        "*",
        "[",
        "{",
        "gpt",
        "lstm",
        "shakespeare",
        "H100",
        "en-de",
    ),
    *(
        "é",
        "\n",
        "text.txt",
        "table.csv",
        "label.csv",
        "a\x1b[2Jb.txt",
        f"{'x' * 200}.txt",
        "*.txt",
        "utf-8",
        "hex",
        "utf-8\u00e9",
    ),
)
COMMANDS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("plan",): ("--devices", "--device-name", "--tflops", "--utilisation", "--micro-batch", "--vocab-size", "--json"),
    ("generate",): (
        "--temperature",
        "--seed",
        "--max-tokens",
        "--top-k",
        "--top-p",
        "--stop",
        "--model",
        "--precision",
    ),
    ("classify",): ("--model", "-m"),
    ("translate",): ("--model",),
    ("export",): (),
    ("params",): ("--execution",),
    ("results",): ("--json",),
    ("compose",): ("--keep",),
    ("champions",): (),
    ("init", "lm"): ("--text", "--group", "--name", "--force", "--encoding", "--quoting", "--language"),
    ("init", "classify"): (
        "--text",
        "--label",
        "--group",
        "--name",
        "--force",
        "--encoding",
        "--no-quoting",
        "--language",
    ),
    ("init", "translate"): ("--source", "--target", "--languages", "--name", "--force", "--encoding"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    shutil.copytree(ROOT / "conf", root / "conf")
    for name in ("params.yaml", "dvc.yaml", "sources.lock.yaml"):
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, root / name)
    (root / "text.txt").write_text("".join(f"line {i}\n\n" for i in range(60)))
    (root / "a\x1b[2Jb.txt").write_text("".join(f"line {i}\n" for i in range(60)))
    (root / f"{'x' * 200}.txt").write_text("".join(f"line {i}\n" for i in range(60)))
    (root / "label.csv").write_text("text,label\n" + "".join(f"text {i},\x1b]{'ab'[i % 2]}\n" for i in range(60)))
    (root / "table.csv").write_text("text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(60)))
    return root


def _lines() -> st.SearchStrategy[list[str]]:
    value = st.one_of(st.sampled_from(ODD), st.text(max_size=8))

    def with_options(command: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
        word = st.one_of(value, value, st.sampled_from(COMMANDS[command] or ("-x",)))
        option = st.tuples(st.sampled_from(COMMANDS[command] or ("-x",)), value).map(list)
        words = st.lists(st.one_of(option, word.map(lambda one: [one])), max_size=4)
        return words.map(lambda found: [*command, *(one for pair in found for one in pair)])

    return st.sampled_from(sorted(COMMANDS)).flatmap(with_options)


@fuzzed(60)
@given(arguments=_lines())
def test_arguments(arguments: list[str], project: Path) -> None:
    if any("\0" in one for one in arguments):
        return  # the system passes none
    before = Path.cwd()
    os.chdir(project)
    try:

        def call() -> None:
            done = CliRunner().invoke(cli.app, arguments, input="")
            known = machine_error(done.exception) if isinstance(done.exception, OSError) else None  # as in `cli.main`
            if done.exception is not None and not isinstance(done.exception, SystemExit):
                raise known or done.exception
            assert done.exit_code in (0, 2), done.output
            assert not {"\x1b", "\x9b", "\u202e"} & set(done.output)

        within_budget(call)
    finally:
        os.chdir(before)
