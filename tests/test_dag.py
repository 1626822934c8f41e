"""dvc.yaml against the code: each stage names its code and every param that shapes its result; rooms import one way."""

import ast
import dataclasses
import graphlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml

from lexmill.base import layout
from lexmill.base.code import EXEMPT, Code
from lexmill.config.mixtures import with_mixtures
from lexmill.params import Params

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "pipeline"
STAGES: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


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


def bodies() -> dict[str, Any]:
    """Each stage's body, those that `lexmill compose` writes included."""
    mixture = {"made": {"tokenizer": "bpe", "members": {"one": 1}}}
    written = yaml.safe_load(with_mixtures((ROOT / "dvc.yaml").read_text(encoding="utf-8"), mixture))["stages"]
    own = {name: body for name, body in written.items() if not name.startswith("mix-")}
    return {name: body.get("do", body) for name, body in own.items()} | {"mix": written["mix-made"]}


BODIES = bodies()
CODE_STAGE = "code"
OTHERS = sorted(BODIES.keys() - {CODE_STAGE})


def named(stage: str, file: str = "params.yaml") -> list[str]:
    """The keys of a params file that a stage names."""
    found: list[str] = []
    for entry in BODIES[stage].get("params", []):
        if isinstance(entry, dict):
            found += [key for name, keys in entry.items() if name == file for key in keys]
        elif file == "params.yaml":
            found.append(entry)
    return found


def test_the_stages_are_the_modules() -> None:
    """A new module of a stage belongs into dvc.yaml, with its key of code.json."""
    assert Code().stages == OTHERS


@pytest.mark.parametrize("stage", sorted(BODIES))
def test_a_stage_runs_its_own_module(stage: str) -> None:
    assert BODIES[stage]["cmd"].split()[:3] == ["python", "-m", f"lexmill.stages.{stage}"]


@pytest.mark.parametrize("stage", OTHERS)
def test_a_stage_names_its_code(stage: str) -> None:
    """By kind and family as far as it depends on them: those of its item, or ones that there are."""
    (key,) = named(stage, str(layout.CODE))
    name, *chosen = re.sub(r"\$\{item\.(\w+)\}", r"<\1>", key).split(".")
    choices = Code().stage(stage).choices
    assert name == stage
    assert len(chosen) in (0, len(choices)), f"{stage} depends on {choices}"
    for choice, value in zip(choices, chosen, strict=False):
        assert value == f"<{choice}>" or value in Code().options(choice), key
    if "${key}" in BODIES[stage]["cmd"]:
        assert len(chosen) == len(choices), f"{key} is the code of all items; name {choices}"


@pytest.mark.parametrize("stage", OTHERS)
def test_no_stage_depends_on_files_of_code(stage: str) -> None:
    assert [path for path in BODIES[stage].get("deps", []) if path.startswith("pipeline")] == []


def test_the_code_is_the_packages_folder_and_a_file_that_git_keeps() -> None:
    assert BODIES[CODE_STAGE]["deps"] == ["pipeline/lexmill"]
    assert BODIES[CODE_STAGE]["outs"] == [{str(layout.CODE): {"cache": False}}]
    assert {path.suffix for path in (SOURCE / "lexmill").rglob("*") if path.is_file()} <= {
        *(".py", ".pyc", ".typed", ".css", ".j2")
    }


def test_every_exemption_is_a_file() -> None:
    for path, reason in EXEMPT.items():
        assert (SOURCE / path).is_file(), path
        assert reason


def test_a_module_that_loads_others_by_name_says_which() -> None:
    """Else their code would be no input of the stages that run it."""
    reached = {path: source for name in Code().stages for path, source in Code().stage(name).files.items()}
    by_name = {path for path, source in reached.items() if "import_module" in source.text}
    assert by_name == {"lexmill/models/__init__.py", "lexmill/models/pretrained.py"}
    assert all(reached[path].loads for path in by_name)


def test_every_family_and_template_is_somebodys_code() -> None:
    reached = {path for name in Code().stages for path in Code().stage(name).files}
    models = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "lexmill" / "models").rglob("*.py")}
    assert models - reached <= {"lexmill/models/common/__init__.py"}  # a docstring alone
    data = {path for path in (SOURCE / "lexmill").rglob("*.*") if path.suffix not in (".py", ".pyc", ".typed")}
    assert {path.relative_to(SOURCE).as_posix() for path in data if path.is_file()} <= reached


# ---------------------------------------------------------------- params

NOT_SHAPING = {"experiment"}  # a name for people: where MLflow shows a run
ON_CARDS_ALONE = {"checkpoints": ("licence", "note")}  # of the models that start from them


def packs(stage: str) -> bool:
    """Whether a stage makes packages: it repeats what shaped a model, and shapes none."""
    return any(str(out).startswith("artifacts/packages/") for out in BODIES[stage].get("outs", []))


def entries_of(mapping: str) -> list[type]:
    """The dataclasses that an entry of a mapping of params.yaml (`floors.classifier`) can be."""
    found: Any = Params
    for part in mapping.split("."):
        found = get_type_hints(found)[part]
    value = get_args(found)[1]
    return list(get_args(value)) or [value]


def uncovered(entry: type, prefix: str, keys: set[str]) -> set[str]:
    """The fields of a dataclass, by their dotted keys, that no key names: itself, what holds it, or all its fields."""
    missing: set[str] = set()
    for name, hint in get_type_hints(entry).items():
        key = f"{prefix}.{name}"
        if key in keys:
            continue
        inside = [one for one in (hint, *get_args(hint)) if dataclasses.is_dataclass(one) and isinstance(one, type)]
        if any(known.startswith(f"{key}.") for known in keys) and inside:
            missing |= {field for one in inside for field in uncovered(one, key, keys)}
        else:
            missing.add(key)
    return missing


def mappings() -> dict[str, list[str]]:
    """The mappings of params.yaml whose entries are the items of stages -> those stages."""
    found: dict[str, list[str]] = {}
    for name, stage in STAGES.items():
        if "foreach" in stage:
            found.setdefault(stage["foreach"].strip("${}"), []).append(name)
    return found


@pytest.mark.parametrize("mapping", mappings())
def test_no_field_of_an_entry_is_forgotten(mapping: str) -> None:
    """Each is named by a stage; those that pack what others made do not count, nor the report."""
    keyed = [stage for stages in mappings().values() for stage in stages if not packs(stage)]
    keys = {re.sub(r"\$\{[\w.]+\}", "*", key) for stage in keyed for key in named(stage)}
    keys |= {f"{mapping}.*.{name}" for name in ON_CARDS_ALONE.get(mapping, ())}
    if not keys & {mapping, f"{mapping}.*"}:
        assert set().union(*(uncovered(entry, f"{mapping}.*", keys) for entry in entries_of(mapping))) == set()


@pytest.mark.parametrize("mapping", mappings())
def test_no_stage_names_a_field_that_is_not_there(mapping: str) -> None:
    whole = f"{mapping}.${{key}}."
    for stage in mappings()[mapping]:
        for key in named(stage):
            if key.startswith(whole):
                first = key.removeprefix(whole).partition(".")[0]
                assert any(first in get_type_hints(entry) for entry in entries_of(mapping)), key


@pytest.mark.parametrize("stage", OTHERS)
def test_a_stage_names_the_top_level_params_that_it_reads(stage: str) -> None:
    """`choices.data_seed` in its module is `data_seed` in its list, or a key inside of it."""
    tree = ast.parse((SOURCE / "lexmill" / "stages" / f"{stage}.py").read_text(encoding="utf-8"))
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "choices"
    }
    tops = {key.partition(".")[0] for key in named(stage)}
    tops |= {over.partition(".")[0] for over, stages in mappings().items() if stage in stages}  # see above
    assert (read & get_type_hints(Params).keys()) - NOT_SHAPING - tops == set()


def test_a_field_that_is_left_out_is_noticed() -> None:
    @dataclass(frozen=True)
    class Inner:
        first: int
        second: int

    @dataclass(frozen=True)
    class Entry:
        inner: Inner
        plain: int

    Entry.__annotations__ = {"inner": Inner, "plain": int}
    Inner.__annotations__ = {"first": int, "second": int}
    assert uncovered(Entry, "e", {"e.inner", "e.plain"}) == set()
    assert uncovered(Entry, "e", {"e.inner.first", "e.inner.second", "e.plain"}) == set()
    assert uncovered(Entry, "e", {"e.inner.first", "e.plain"}) == {"e.inner.second"}
    assert uncovered(Entry, "e", {"e.inner"}) == {"e.plain"}


# ---------------------------------------------------------------- rooms


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
