"""check, init, and a small training with its evaluation, in each of the surroundings that users have.

The same bytes come out of all of them, nothing is said that is not said elsewhere, and nothing is left in odd places.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.once import made_once
from tests.support.small_project import ROOT, SmallProject

NOBODY = 54321
SHADOWS = ("datasets", "json", "lightning_fabric", "numpy", "random", "signal", "tokenizers", "torch", "typing", "yaml")


@dataclass
class Place:
    """A workspace, and what is odd about the place it is in.

    Attributes:
        root: a folder with the workspace and what else a surrounding needs.
        environment: variables to set; None: to unset.
        before: the words before Python's.
        umask: -1: as it is.
    """

    root: Path
    environment: dict[str, str | None] = field(default_factory=dict)
    before: list[str] = field(default_factory=list)
    umask: int = -1

    @property
    def project(self) -> Path:
        return self.root / "a project"

    def put_on_path(self, name: str, code: str) -> None:
        """Make a module importable by every Python here."""
        folder = self.root / "modules"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
        self.environment["PYTHONPATH"] = f"{ROOT / 'pipeline'}{os.pathsep}{folder}"


def no_home(place: Place) -> None:
    place.environment["HOME"] = None


def home_that_is_not_there(place: Place) -> None:
    # As root, too, nobody can make a folder there.
    place.environment["HOME"] = "/proc/nowhere"


def home_that_is_read_only(place: Place) -> None:
    place.environment["HOME"] = "/proc"


def no_locale(place: Place) -> None:
    place.environment |= dict.fromkeys([name for name in os.environ if name.startswith(("LANG", "LC_"))])
    place.environment |= {"LC_ALL": "C", "LANG": None}


def temporary_folder_elsewhere(place: Place) -> None:
    folder = place.root / "a temporary folder"
    folder.mkdir()
    place.environment["TMPDIR"] = str(folder)


def strict_umask(place: Place) -> None:
    place.umask = 0o077


def python_path_with_this_folder(place: Place) -> None:
    place.environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "pipeline"), "", str(place.root)])


def python_optimised(place: Place) -> None:
    place.environment["PYTHONOPTIMIZE"] = "2"


def python_warnings_are_errors(place: Place) -> None:
    place.environment["PYTHONWARNINGS"] = "error"


def python_without_utf8(place: Place) -> None:
    place.environment |= {"PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"}


def python_writes_no_bytecode(place: Place) -> None:
    place.environment["PYTHONDONTWRITEBYTECODE"] = "1"


def python_hash_seed(place: Place) -> None:
    place.environment["PYTHONHASHSEED"] = "7"


def threads_of_others(place: Place) -> None:
    place.environment |= {"OMP_NUM_THREADS": "7", "OMP_PROC_BIND": "true", "OMP_DISPLAY_ENV": "FALSE"}
    place.environment |= {"MKL_NUM_THREADS": "5", "MKL_DYNAMIC": "FALSE", "OPENBLAS_NUM_THREADS": "3"}


def another_prefect_profile(place: Place) -> None:
    home = place.root / "prefect"
    home.mkdir()
    (home / "profiles.toml").write_text('active = "team"\n[profiles.team]\nPREFECT_LOGGING_LEVEL = "DEBUG"\n')
    place.environment |= {"PREFECT_HOME": str(home), "PREFECT_PROFILE": "team"}


def notebook(place: Place) -> None:
    place.environment["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"


def settings_of_matplotlib(place: Place) -> None:
    (place.project / "matplotlibrc").write_text("font.size: 20\naxes.facecolor: black\n", encoding="utf-8")


def files_named_as_libraries(place: Place) -> None:
    for name in SHADOWS:
        (place.project / f"{name}.py").write_text("raise SystemExit('the file of the project')\n", encoding="utf-8")


def user_without_a_name(place: Place) -> None:
    """Its answer of the system is imitated."""
    fails = "def _unknown(uid):\n    raise KeyError(f'getpwuid(): uid not found: {uid}')\n"
    place.put_on_path("sitecustomize", f"import pwd\n{fails}pwd.getpwuid = _unknown\n")
    place.environment |= dict.fromkeys(["LOGNAME", "USER", "LNAME", "USERNAME"])


def other_user_without_a_name(place: Place) -> None:
    """A real one, for root alone; it keeps root's right to read: where Python is, others may have no access."""
    user_without_a_name(place)
    if os.geteuid() == 0 and (setpriv := shutil.which("setpriv")):
        place.environment["PYTHONPATH"] = str(ROOT / "pipeline")
        rights = "+dac_override,+dac_read_search"
        ids = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        place.before = [setpriv, *ids, f"--inh-caps={rights}", f"--ambient-caps={rights}"]
        for path in (place.root, *place.root.rglob("*")):
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


Surrounding = Callable[[Place], None]
ALL: Sequence[Surrounding] = (
    no_home,
    home_that_is_not_there,
    home_that_is_read_only,
    no_locale,
    temporary_folder_elsewhere,
    strict_umask,
    python_path_with_this_folder,
    python_optimised,
    python_warnings_are_errors,
    python_without_utf8,
    python_writes_no_bytecode,
    python_hash_seed,
    threads_of_others,
    another_prefect_profile,
    notebook,
    settings_of_matplotlib,
    files_named_as_libraries,
    user_without_a_name,
    other_user_without_a_name,
)


@pytest.fixture(scope="session")
def encoded_with_conf(encoded: SmallProject, tmp_path_factory: pytest.TempPathFactory) -> SmallProject:
    """The workspace up to its token shards, with a stage that evaluates and a text for `init`."""

    def make(folder: Path) -> None:
        project = encoded.copy(folder / "a project")
        path = project.root / "dvc.yaml"
        made = yaml.safe_load(path.read_text(encoding="utf-8"))
        evaluate = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]["evaluate"]
        evaluate["do"]["params"] = ["models.${key}.evaluate", "data_seed"]
        made["stages"]["evaluate"] = evaluate
        path.write_text(yaml.safe_dump(made, sort_keys=False), encoding="utf-8")
        fresh = folder / "a project" / "fresh"
        shutil.copytree(ROOT / "conf", fresh / "conf")
        (fresh / "caf\u00e9.txt").write_text("".join(f"Une ligne \u00e9crite, {n}.\n" for n in range(50)), "utf-8")

    return SmallProject.found(made_once(tmp_path_factory, "encoded-with-conf", make) / "a project")


def used(
    base: SmallProject, root: Path, surroundings: Iterable[Surrounding], *, afresh: bool = False
) -> dict[str, Any]:
    """What check, init and a run of a copy leave and say in such surroundings; `afresh`: a run from the first stage."""
    root.mkdir()
    copy = base.copy(root / "a project")
    if afresh:
        (copy.root / "dvc.lock").unlink()
        for name in (".dvc/cache", "artifacts", "metrics", "reports"):
            shutil.rmtree(copy.root / name)
    place = Place(root)
    for one in surroundings:
        one(place)
    there = sorted(path.name for path in root.iterdir())
    environment = dict(copy.environment)
    for name, value in place.environment.items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value

    def lexmill(*words: str, folder: Path = copy.root) -> str:
        command = [*place.before, sys.executable, "-m", "lexmill.cli", *words]
        how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "timeout": 300}
        done = subprocess.run(command, cwd=folder, env=environment, umask=place.umask, check=False, **how)
        said = done.stdout.decode("utf-8")
        assert done.returncode == 0, said
        assert "Traceback" not in said
        assert "Warning" not in said
        return said.replace(str(root), "HERE")

    checked = lexmill("check").splitlines()
    fresh = copy.root / "fresh"
    init = lexmill("init", "lm", "caf\u00e9.txt", folder=fresh).splitlines()
    ran = lexmill("run", "evaluate").splitlines()
    assert sorted(path.name for path in root.iterdir()) == there
    ours = {*(f"{name}.py" for name in SHADOWS), "matplotlibrc", "__pycache__"}
    return {
        "check": [line for line in checked if "GFLOP/s" not in line],
        "init": init,
        "params": (fresh / "params.yaml").read_text(encoding="utf-8"),
        "run": [] if afresh else [line for line in ran if "tokens/s" not in line and "done in" not in line],
        "outputs": {stage: outs for stage, outs in copy.outputs().items() if stage != "code"},
        "folder": sorted({path.name for path in copy.root.iterdir()} - ours),
    }


@pytest.fixture(scope="session")
def plain(
    encoded_with_conf: SmallProject, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SmallProject, dict[str, Any]]:
    found = used(encoded_with_conf, tmp_path_factory.mktemp("plain") / "here", ())
    assert found["check"][0] == "params.yaml, execution settings, DAG, files and disk are in order"
    assert "stages: 2 ran, 4 unchanged" in found["run"]
    return encoded_with_conf, found


TOGETHER: dict[str, Sequence[Surrounding]] = {
    "a container": (no_home, user_without_a_name, no_locale, files_named_as_libraries, python_warnings_are_errors),
    "a cluster": (
        home_that_is_read_only,
        temporary_folder_elsewhere,
        strict_umask,
        python_optimised,
        python_without_utf8,
        python_hash_seed,
        threads_of_others,
        another_prefect_profile,
        notebook,
        settings_of_matplotlib,
    ),
}


@pytest.mark.e2e
@pytest.mark.parametrize("name", TOGETHER)
def test_many_surroundings_together(name: str, plain: tuple[SmallProject, dict[str, Any]], tmp_path: Path) -> None:
    project, wanted = plain
    assert used(project, tmp_path / "here", TOGETHER[name]) == wanted


@pytest.mark.torture
@pytest.mark.parametrize("surrounding", ALL, ids=lambda one: one.__name__)
def test_each_surrounding(
    surrounding: Surrounding,
    plain: tuple[SmallProject, dict[str, Any]],
    record_property: Callable[[str, object], None],
) -> None:
    """From the first stage. Its folder is not below pytest's, where another user may not look."""
    project, wanted = plain
    record_property("fault", f"surroundings, {surrounding.__name__.replace('_', ' ')}")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        found = used(project, Path(folder) / "here", [surrounding], afresh=True)
    assert found == wanted | {"run": []}
