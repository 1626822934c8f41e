"""What a command settles before it imports a library; tests/faults/test_surroundings.py uses whole commands."""

from __future__ import annotations

import getpass
import os
import pwd
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from lexmill.base.surroundings import settle

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")


@pytest.fixture
def nameless(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in (*NAMES, "HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nameless")
def test_a_user_id_without_a_name_is_its_own_name() -> None:
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    settle()
    assert getpass.getuser() == str(os.getuid())
    assert Path.home() == Path("/")


@pytest.mark.usefixtures("nameless")
@pytest.mark.parametrize("name", NAMES)
def test_a_name_and_a_home_that_are_given_stay(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(name, "ada")
    monkeypatch.setenv("HOME", str(tmp_path))
    settle()
    assert getpass.getuser() == "ada"
    assert Path.home() == tmp_path


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("error", None),
        ("e::DeprecationWarning", None),
        ("error::UserWarning:torch,ignore::FutureWarning, err", "ignore::FutureWarning"),
        ("default", "default"),
        ("::UserWarning", "::UserWarning"),
    ],
)
def test_warnings_are_no_errors_for_our_children(given: str, kept: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", given)
    settle()
    assert os.environ.get("PYTHONWARNINGS") == kept


def test_warnings_are_no_errors_here_and_the_other_filters_stay() -> None:
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", FutureWarning)
        settle()
        with warnings.catch_warnings(record=True) as shown:
            warnings.warn("later", FutureWarning, stacklevel=1)
            warnings.warn("soon", DeprecationWarning, stacklevel=1)
    assert [str(one.message) for one in shown] == ["soon"]


def ran(folder: Path, *words: str, **environment: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "pipeline")} | environment
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_the_package_alone_settles_nothing(tmp_path: Path) -> None:
    """A notebook that imports it draws where it drew, and its folder stays the first."""
    tell = "import os, sys; before = sys.path[:]; import lexmill; print(os.environ['MPLBACKEND'], sys.path == before)"
    assert ran(tmp_path, "-c", tell, MPLBACKEND="module://inline") == "module://inline True\n"


def test_a_command_draws_into_files() -> None:
    tell = "import os, lexmill; print(os.environ['MPLBACKEND'])"
    assert (
        ran(ROOT, "-c", f"import sys; sys.orig_argv = ['python', 'bin/lexmill']; {tell}", MPLBACKEND="inline")
        == "agg\n"
    )


def test_our_children_find_flows_in_their_folder() -> None:
    start = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'flows', '--help'], check=True)"
    code = f"from lexmill.base.surroundings import settle; settle(); {start}"
    assert "flows" in ran(ROOT, "-c", code, PYTHONSAFEPATH="1")


@pytest.mark.parametrize("module", ["lexmill.cli", "flows"])
def test_a_file_of_the_folder_stands_for_no_library(module: str, tmp_path: Path) -> None:
    """`flows` lies in the folder itself, and is found there."""
    (tmp_path / "flows").symlink_to(ROOT / "flows")
    for name in ("argparse", "inspect", "psutil", "signal", "typer", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the file of the project')\n", encoding="utf-8")
    assert "run" in ran(tmp_path, "-m", module, "--help")
