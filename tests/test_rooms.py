"""What imports what: rooms one way and without circles, kinds and families by name alone, heavy parts late."""

import ast
import graphlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args

from lexmill import kinds
from lexmill.base import syntax
from lexmill.base.code import EXEMPT
from lexmill.models.declaration import Role
from tests.test_dag import ROOT, SOURCE

PACKAGE = SOURCE / "lexmill"
MODULES = sorted(PACKAGE.rglob("*.py"))


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


LATE = {  # the rooms that import a package, each in its functions; None: any
    "dvc": ("runner",),
    "mlflow": ("tracking", "registry"),
    "prefect": (),
    "lightning": (),
    "lightning_fabric": ("training",),
    **dict.fromkeys(("datasets", "transformers", "sklearn", "matplotlib", "sacrebleu", "hydra", "omegaconf", "optuna")),
}
TYPES = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def others(nodes: Iterable[ast.AST]) -> set[str]:
    """The packages that these nodes import."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


def at_once(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when a module is imported: no functions, no imports for type checkers."""
    for inside in ast.iter_child_nodes(node):
        if isinstance(inside, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(inside, ast.If) and ast.unparse(inside.test) in TYPES:
            continue
        yield inside
        yield from at_once(inside)


def test_nothing_outside_its_room_imports_a_heavy_part_and_none_early() -> None:
    """Only runner imports DVC, only tracking and registry MLflow, only flows Prefect, only training Lightning."""
    for path in MODULES:
        tree, room = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(PACKAGE).parts[0]
        for name in others(ast.walk(tree)) & LATE.keys():
            allowed = LATE[name]
            assert allowed is None or room in allowed, f"{path}: {name}"
        assert others(at_once(tree)) & LATE.keys() == set(), path
    early = "try:\n    import dvc.repo\nexcept ImportError:\n    from mlflow import x\ndef f():\n    import prefect"
    assert others(at_once(ast.parse(early))) == {"dvc", "mlflow"}


def test_the_package_imports_nothing_that_is_built_on_it() -> None:
    """Flows stand on it; dvc_plugins too, which DVC loads."""
    for path in MODULES:
        found = others(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        assert found & {"flows", "dvc_plugins", "hydra_plugins", "tests", "benchmarks"} == set(), path


LOADERS = {  # modules that load others by name
    "base/plugins.py",
    "compute/workers/remote.py",  # the work that it is sent
    "kinds/__init__.py",
    "models/__init__.py",
    "models/declaration.py",
    "models/pretrained.py",
    "params/derived.py",  # what a kind declares, as below
    "params/models.py",
}
WITHOUT = {"base/plugins.py", "compute/workers/remote.py", "kinds/__init__.py", "params/derived.py", "params/models.py"}


def loads_by_name(path: Path) -> bool:
    """Whether a module loads others by names that it makes."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    return any(
        re.search(r"(^|\.)(import_module|__import__|run_module|run_path)$|plugins\.load$", one) for one in called
    )


def test_what_is_loaded_by_name_is_loaded_by_these_alone_and_is_code_of_a_stage() -> None:
    """Any other way would hide code from `code.json`: `lexmill.base.code` sees imports and `LOADS`."""
    assert {path.relative_to(PACKAGE).as_posix() for path in MODULES if loads_by_name(path)} == LOADERS
    for name in LOADERS - WITHOUT:
        assert syntax.read((PACKAGE / name).read_text(encoding="utf-8"), name).loads, name


def test_a_module_of_a_kind_is_named_where_it_is_loaded() -> None:
    """As text, so that it can be compared with `LOADS`."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "module":
                of_torch = ast.unparse(node.func.value) == "self"
                assert of_torch or isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}"


NAMED = {"kinds/translator/task.py": "transformer"}  # for types alone


def test_families_and_kinds_import_no_other_and_nothing_imports_them() -> None:
    """They are found by name: one may be added or removed, and no other file is touched."""
    for path in [*MODULES, *(SOURCE / "dvc_plugins").rglob("*.py"), *(ROOT / "flows").glob("*.py")]:
        for found in imports(path):
            room, *below = found.relative_to(PACKAGE).parts
            if room not in ("kinds", "models") or len(below) < 2 or below[0] == "common":
                continue
            own = PACKAGE / room / below[0] in path.parents
            assert own or NAMED.get("/".join(path.parts[-3:])) == below[0], f"{path} -> {found}"


EXEMPT_ROOMS = {"base", "compute", "params", "tracking"}  # what reads, shows, bounds and sends
EXEMPT_OTHERS = {"__init__.py", "models/declaration.py", "stages/entry.py"}


def test_what_shapes_results_is_not_exempt() -> None:
    """Networks, training, data, metrics and pages are always code of their stages."""
    for place in EXEMPT:
        name = place.removeprefix("lexmill/")
        assert name.partition("/")[0] in EXEMPT_ROOMS or name in EXEMPT_OTHERS, place


ORDER = ["stages", "kinds", "training", "evaluation", "decoding", "data", "models"]
GROUND = ["corpora", "tokenizers"]


def test_rooms_import_one_way() -> None:
    """stages -> kinds -> training -> evaluation -> decoding -> data -> models; the ground imports no room above it."""
    for path in MODULES:
        room = path.relative_to(PACKAGE).parts[0]
        for found in imports(path):
            parts = found.relative_to(PACKAGE).parts
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
    for path in MODULES:
        room = path.relative_to(PACKAGE).parts[0]
        found = {imported.relative_to(PACKAGE).parts for imported in imports(path)}
        needs.setdefault(room, set()).update(parts[0] for parts in found if len(parts) > 1 and parts[0] != room)
    return needs


def test_modules_make_no_circle() -> None:
    """Late imports and those of types included: each file can be read after those that it needs."""
    needs = {path: {one for one in imports(path) if one.name != "__init__.py"} - {path} for path in MODULES}
    graphlib.TopologicalSorter(needs).prepare()  # raises, with the circle


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
    assert shown.keys() == {path.parent.name for path in PACKAGE.glob("*/__init__.py")}


NAMESAKE = "lexmill.evaluation.word_vectors"  # the words of any model, which the kind of that name is scored on


def test_no_module_outside_its_folder_names_a_kind() -> None:
    roles = set(get_args(Role))  # what a network computes: a kind may have such a name too
    names = "|".join(name for name in kinds.names() if name not in roles)
    word = re.compile(rf"(?<!\w)({names})s?(?!\w)")
    files = [path for room in (SOURCE, ROOT / "flows") for path in room.rglob("*") if path.suffix in (".py", ".j2")]
    outside = [path for path in files if (PACKAGE / "kinds") not in path.parents]
    # A family's names in transformers are not ours: a head's weight is called `classifier.weight` there.
    outside = [path for path in outside if not path.match("models/*/hugging_face.py")]
    texts = {path: path.read_text(encoding="utf-8").replace(NAMESAKE, "") for path in outside}
    assert [f"{path}: {found[0]}" for path, text in texts.items() if (found := word.search(text))] == []
    assert word.search("a translator of texts"), "the pattern finds what it looks for"


def test_a_model_file_is_short_enough_to_be_read_at_once() -> None:
    long = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.glob("models/*/model.py")}
    assert len(long) > 15
    assert {path for path, lines in long.items() if lines >= 150} == set()
