"""dvc.yaml against the code: a stage must depend on every module whose code can shape its result."""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml

from lexmill.params import LanguageModel, Translator

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "pipeline"
STAGES: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]

# Modules that cannot change a stage's result, each for a reason. All others must be declared.
EXEMPT = {
    "lexmill/__init__.py": "the version, which enters no output",
    "lexmill/base/checkout.py": "the commit, which enters no output",
    "lexmill/base/errors.py": "a failed stage has no result",
    "lexmill/compute/execution.py": "how and where a stage runs is not identity",
    "lexmill/base/layout.py": "the paths of dvc.yaml, where a change shows as a changed path",
    "lexmill/params/__init__.py": "reads values; the values are tracked key by key, and conf/ spells out all of them",
    "lexmill/params/corpora.py": "as above",
    "lexmill/params/models.py": "as above",
    "lexmill/params/references.py": "checks values",
    "lexmill/base/strict.py": "reads values",
    "lexmill/base/storage.py": "writes what it is given",
    "lexmill/base/progress.py": "speaks to people",
    "lexmill/base/quiet.py": "speaks to people",
    "lexmill/base/workspace.py": "guards the folder",
    "lexmill/tracking/live.py": "sends on what a training has written down; it gives nothing back",
    "lexmill/stages/entry.py": "how a stage starts and ends",
    "lexmill/compute/workers/choosing.py": "where the pieces of a corpus are worked on enters no result",
    "lexmill/compute/workers/cluster.py": "as above",
    "lexmill/compute/workers/executor.py": "as above",
    "lexmill/compute/workers/files.py": "waits for what a worker has written",
    "lexmill/compute/workers/identity.py": "refuses workers that could give another result",
    "lexmill/compute/workers/processes.py": "as above, where",
    "lexmill/compute/workers/settings.py": "as above, where",
}


def module_file(name: str) -> Path | None:
    """The file of a module of the package, or None for another package's or a name that is no module."""
    base = SOURCE / Path(*name.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def imports(path: Path) -> Iterator[Path]:
    """The package's own files that a file imports, at the top or late; a module brings its parents."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            if parts[0] != "lexmill":
                continue
            for end in range(1, len(parts) + 1):
                found = module_file(".".join(parts[:end]))
                if found is not None:
                    yield found


def says_nothing(path: Path) -> bool:
    """A package's face with no code in it: empty or a docstring."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return all(isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) for node in body)


def closure(path: Path) -> set[str]:
    """Every file of the package that importing `path` can reach, relative to the source root."""
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        here = waiting.pop()
        if here not in seen:
            seen.add(here)
            if here.relative_to(SOURCE).as_posix() not in EXEMPT:
                waiting.extend(imports(here))
    return {found.relative_to(SOURCE).as_posix() for found in seen if not says_nothing(found)}


def families(group: str) -> tuple[str, ...]:
    """The architectures that an entry of `group` can name."""
    entry = {"language_models": LanguageModel, "translators": Translator}[group]
    return get_args(get_type_hints(entry)["family"])


def declared(stage: str) -> list[str]:
    """The code that a stage declares, for every architecture, relative to the source root."""
    body = STAGES[stage].get("do", STAGES[stage])
    found: list[str] = []
    for path in (dep.removeprefix("pipeline/") for dep in body["deps"] if dep.startswith("pipeline/")):
        if "${item.family}" in path:
            group = STAGES[stage]["foreach"].strip("${}")
            found += [path.replace("${item.family}", family) for family in families(group)]
        else:
            found.append(path)
    return found


def covered(path: str, declarations: list[str]) -> bool:
    return any(path == known or path.startswith(f"{known}/") for known in declarations)


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_declares_all_the_code_it_imports(stage: str) -> None:
    reached = closure(SOURCE / "lexmill" / "stages" / f"{stage}.py")
    missing = [path for path in sorted(reached - EXEMPT.keys()) if not covered(path, declared(stage))]
    assert missing == []


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_declares_no_code_that_is_not_there(stage: str) -> None:
    for path in declared(stage):
        assert (SOURCE / path).exists(), path


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_runs_its_own_module(stage: str) -> None:
    body = STAGES[stage].get("do", STAGES[stage])
    assert body["cmd"].split()[:3] == ["python", "-m", f"lexmill.stages.{stage}"]


def test_every_exemption_is_a_file() -> None:
    for path, reason in EXEMPT.items():
        assert (SOURCE / path).is_file(), path
        assert reason


def test_the_closure_sees_late_imports(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text("def f():\n    from lexmill.params import corpora\n    import lexmill.base.strict\n")
    assert {path.relative_to(SOURCE).as_posix() for path in imports(module)} == {
        "lexmill/__init__.py",
        "lexmill/params/__init__.py",
        "lexmill/params/corpora.py",
        "lexmill/base/strict.py",
    }


def test_nothing_outside_its_room_imports_a_heavy_part() -> None:
    """Only runner imports DVC, only tracking and registry MLflow, only flows Prefect, only training Lightning."""
    rooms = {
        "dvc": ("runner",),
        "mlflow": ("tracking", "registry"),
        "prefect": (),
        "lightning": (),
        "lightning_fabric": ("training",),
    }
    for path in sorted((SOURCE / "lexmill").rglob("*.py")):
        room = path.relative_to(SOURCE / "lexmill").parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            for name in names:
                allowed = rooms.get(name.split(".")[0])
                assert allowed is None or room in allowed, f"{path}: {name}"


ORDER = ["stages", "training", "evaluation", "decoding", "data", "models"]
GROUND = ["corpora", "tokenizers"]


def test_rooms_import_one_way() -> None:
    """stages -> training -> evaluation -> decoding -> data -> models; the ground imports no room above it."""
    for path in sorted((SOURCE / "lexmill").rglob("*.py")):
        room = path.relative_to(SOURCE / "lexmill").parts[0]
        for found in imports(path):
            parts = found.relative_to(SOURCE / "lexmill").parts
            other = parts[0] if len(parts) > 1 else ""
            if room in ORDER and other in ORDER:
                assert ORDER.index(other) >= ORDER.index(room), f"{path} -> {found}"
            if room in GROUND:
                assert other not in ORDER, f"{path} -> {found}"
            if room in ("tracking", "registry"):
                assert other not in ("training", "stages", "runner"), f"{path} -> {found}"


def rooms() -> dict[str, set[str]]:
    """Each folder or file of the package, with the folders that it imports."""
    needs: dict[str, set[str]] = {}
    for path in sorted((SOURCE / "lexmill").rglob("*.py")):
        room = path.relative_to(SOURCE / "lexmill").parts[0]
        found = {imported.relative_to(SOURCE / "lexmill").parts for imported in imports(path)}
        needs.setdefault(room, set()).update(parts[0] for parts in found if len(parts) > 1 and parts[0] != room)
    return needs


def test_rooms_make_no_circle() -> None:
    """No room needs another that needs it; what `lexmill` does is the last: nothing in the package needs it."""
    needs = rooms()
    graphlib.TopologicalSorter(needs).prepare()  # raises, with the circle
    assert {room for room, others in needs.items() if "commands" in others} == {"cli.py"}


def test_the_page_of_the_design_shows_the_rooms_as_they_are() -> None:
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| .+ \| ([\w, ]*?) ?\|$", page, re.MULTILINE)
    shown = {room: set(filter(None, needed.split(", "))) for room, needed in rows}
    found = rooms()
    assert shown == {room: found.get(room, set()) for room in shown}
    assert shown.keys() == {path.parent.name for path in (SOURCE / "lexmill").glob("*/__init__.py")}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_reaches_all_the_code_it_declares(stage: str) -> None:
    """Code that a stage declares but cannot reach would re-run it for nothing."""
    reached = closure(SOURCE / "lexmill" / "stages" / f"{stage}.py")
    by_family = {
        f"lexmill/models/{family}" for group in ("language_models", "translators") for family in families(group)
    }
    for path in set(declared(stage)) - by_family - {"lexmill/models/bert"}:
        assert any(found == path or found.startswith(f"{path}/") for found in reached), path
