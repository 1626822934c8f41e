"""dvc.yaml against the code: each stage names its code and every param that shapes its result."""

import ast
import dataclasses
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import yaml

from lexmill import kinds
from lexmill.base import layout
from lexmill.base.code import EXEMPT, Code
from lexmill.config.mixtures import with_mixtures
from lexmill.params import Inputs, Params
from lexmill.params.models import Model

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "pipeline"
STAGES: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]


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
    for path, source in reached.items():
        for module in modules_of_kinds(SOURCE / path):
            assert f"lexmill.kinds.{{kind}}.{module}" in source.loads, path


def modules_of_kinds(path: Path) -> Iterator[str]:
    """The modules of a kind that a file loads: `task` of `kind.module("task")`."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")) if path.suffix == ".py" else ast.Module()):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "module":
            yield from (given.value for given in node.args if isinstance(given, ast.Constant))


def test_a_networks_and_a_kinds_own_code_is_that_of_its_training() -> None:
    """Above all its sizes, which are found by name: what finds them is exempt."""
    for kind, family in itertools.product(Code().options("kind"), Code().options("family")):
        files = Code().stage("train", kind=kind, family=family).files.keys()
        assert {f"lexmill/models/{family}/{name}.py" for name in ("shape", "model")} <= files
        assert f"lexmill/kinds/{kind}/task.py" in files
        others = [path for path in files if path.startswith(("lexmill/models/", "lexmill/kinds/"))]
        folders = {path.split("/")[2] for path in others if path.count("/") > 2}
        assert folders == {kind, family, "common"}


def test_every_family_and_template_is_somebodys_code() -> None:
    reached = {path for name in Code().stages for path in Code().stage(name).files}
    models = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "lexmill" / "models").rglob("*.py")}
    bare = {path for path in models if len(ast.parse((SOURCE / path).read_text()).body) == 1}  # a docstring alone
    assert models - reached - EXEMPT.keys() <= bare
    data = {path for path in (SOURCE / "lexmill").rglob("*.*") if path.suffix not in (".py", ".pyc", ".typed")}
    assert {path.relative_to(SOURCE).as_posix() for path in data if path.is_file()} <= reached


# ---------------------------------------------------------------- params

NOT_SHAPING = {"experiment"}  # a name for people: where MLflow shows a run
LEFT_OUT = {  # fields of its entry that a stage does not read
    "train": {"evaluate"},
    "checkpoint": {"licence", "note"},  # on the cards of the models that start from it
}
ALONE = {  # fields of its entry that a stage reads, and no others
    "fetch": {"source"},
    "evaluate": {"kind", "evaluate"},  # all else is in the model's folder, or a path that it depends on
}


def packs(stage: str) -> bool:
    """Whether a stage makes packages: it repeats what shaped a model, and shapes none."""
    return any(str(out).startswith("artifacts/packages/") for out in BODIES[stage].get("outs", []))


def over(stage: str) -> str:
    """The mapping of params.yaml whose entries a stage is for; `inputs` has what follows from `models`."""
    found: str = STAGES[stage]["foreach"].strip("${}")
    return {"inputs": "models", "translation_inputs": "translations"}.get(found, found)


def entries_of(mapping: str) -> list[type]:
    """The dataclasses that an entry of a mapping of params.yaml can be."""
    value = get_args(get_type_hints(Params)[mapping])[1]
    return [value, *(kind.entry for kind in kinds.every() if issubclass(kind.entry, value))]


def uncovered(entry: type, prefix: str, keys: set[str]) -> set[str]:
    """The fields of a dataclass, by their dotted keys, that no key names: itself, what holds it, or all its fields."""
    if prefix in keys:
        return set()
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


def forgotten(stage: str, keys: set[str]) -> set[str]:
    """The fields of its entries that a stage reads though none of these keys names them; `*` is its item's name."""
    found: set[str] = set()
    for entry in entries_of(over(stage)):
        left_out = get_type_hints(entry).keys() - ALONE[stage] if stage in ALONE else LEFT_OUT.get(stage, set())
        missing = uncovered(entry, f"{over(stage)}.*", keys)
        found |= missing - {f"{over(stage)}.*.{name}" for name in left_out}
    return found


def item_keys(stage: str) -> set[str]:
    return {key.replace("${key}", "*") for key in named(stage)}


FOR_ITEMS = sorted(name for name, stage in STAGES.items() if "foreach" in stage)
READING = [stage for stage in FOR_ITEMS if not packs(stage)]


@pytest.mark.parametrize("stage", READING)
def test_no_field_of_an_entry_is_forgotten(stage: str) -> None:
    """A new field of a dataclass is named in dvc.yaml, or said here to be none of the stage's."""
    assert forgotten(stage, item_keys(stage)) == set()


@pytest.mark.parametrize("stage", READING)
def test_each_field_is_missed_when_a_stage_no_longer_names_it(stage: str) -> None:
    keys = item_keys(stage)
    whole = f"{over(stage)}.*"
    own = {key for key in keys if key.startswith(whole)}
    assert own
    for key in own:
        missed = forgotten(stage, keys - {key})
        assert missed if key == whole else missed == {key}


def test_a_training_reads_all_of_a_models_entry_but_its_evaluation() -> None:
    fields = {field.name for field in dataclasses.fields(Model)}
    assert item_keys("train") >= {f"models.*.{name}" for name in fields - {"evaluate"}}
    assert "models.*.evaluate" not in item_keys("train")  # another beam re-trains nothing


def test_a_field_that_a_kind_adds_to_its_entry_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Tagger(Model):
        tags: str = ""

    added = dataclasses.replace(kinds.find("classifier"), name="tagger", entry=Tagger)
    monkeypatch.setattr(kinds, "every", lambda: [added])
    monkeypatch.setitem(globals(), "Tagger", Tagger)  # where its hints are looked up
    assert forgotten("train", item_keys("train")) == {"models.*.tags"}


@pytest.mark.parametrize("stage", FOR_ITEMS)
def test_no_stage_names_a_field_that_is_not_there(stage: str) -> None:
    whole = f"{over(stage)}.${{key}}."
    for key in named(stage):
        if key.startswith(whole):
            first = key.removeprefix(whole).partition(".")[0]
            assert any(first in get_type_hints(entry) for entry in entries_of(over(stage))), key


def test_what_is_derived_for_the_stages_of_a_model_is_in_their_templates() -> None:
    """Each path and name, so that another one is another stage."""
    text = str([BODIES[stage] for stage in FOR_ITEMS if over(stage) == "models"])
    used = set(re.findall(r"\$\{item\.(\w+)\}", text))
    assert used == {field.name for field in dataclasses.fields(Inputs)}


def readers(stage: str) -> Iterator[Path]:
    """The files in which a stage reads the choices: its module, those of the kinds that it loads, the package's."""
    own = SOURCE / "lexmill" / "stages" / f"{stage}.py"
    yield own
    for module in modules_of_kinds(own):
        yield from (SOURCE / "lexmill" / "kinds").glob(f"*/{module}.py")
    if packs(stage):
        yield SOURCE / "lexmill" / "registry" / "package.py"


FOR_OTHERS = {  # a file of a stage's code that reads params elsewhere
    ("checkpoint", "lexmill/corpora/fetching/pins.py"),  # as it completes the lock file
    ("checkpoint", "lexmill/registry/package.py"),  # as it writes a package
    ("fetch", "lexmill/corpora/fetching/pins.py"),
    ("report", "lexmill/report/page.py"),  # for reports/decisions.html; see tests/test_dag_paths.py
}


@pytest.mark.parametrize("stage", OTHERS)
def test_a_stage_names_the_top_level_params_that_it_reads(stage: str) -> None:
    """`choices.data_seed` in its code, however deep, is `data_seed` in its list, or a key inside of it."""
    code = [name for name in Code().stage(stage).files if name.endswith(".py") and (stage, name) not in FOR_OTHERS]
    paths = {*readers(stage), *(SOURCE / name for name in code)}
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    names = ("choices", "params")
    read = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names
    }
    tops = {key.partition(".")[0] for key in named(stage)}
    tops |= {over(stage)} if stage in FOR_ITEMS else set()  # see above
    tops |= {"inputs"} if stage in FOR_ITEMS and "inputs" in STAGES[stage]["foreach"] else set()  # in its template
    assert (read & get_type_hints(Params).keys()) - NOT_SHAPING - tops == set()


@pytest.mark.parametrize("stage", FOR_ITEMS)
def test_what_a_template_takes_of_its_item_is_in_the_mapping_that_it_is_over(stage: str) -> None:
    """Whatever entry that is: a field that only some have would stop DVC at the others."""
    taken = set(re.findall(r"\$\{item\.(\w+)", str(BODIES[stage])))
    mapping = STAGES[stage]["foreach"].strip("${}")
    for entry in entries_of(mapping):
        assert taken <= get_type_hints(entry).keys(), mapping


def test_what_shows_refuses_or_reports_values_is_no_input() -> None:
    """A new sentence of an error must re-train nothing: a module of `base` is exempt, or it shapes results."""
    code = Code()
    found = {path for name in code.stages for path in code.stage(name).files if path.startswith("lexmill/base/")}
    assert found == {f"lexmill/base/{name}.py" for name in ("language_identification", "tag_schemes", "weight_files")}


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
