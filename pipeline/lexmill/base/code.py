"""Digests of the code that each stage can reach, so that DVC re-runs a stage when its code changes.

A stage's code is its import closure, including late imports and modules loaded by name. A module that loads others by
name lists them in a constant, `LOADS = ("lexmill.models.{family}",)`; a stage that reaches it has one
digest for each family. `{kind}` works alike for the folders of `lexmill/kinds`. So `code.json`, which the stage
`code` writes, is

    {"prepare": "3f..", "train": {"<kind>": {"gpt": "9a..", "lstm": "07.."}}}

nested by kind first where a stage depends on both. A file that is not Python (a template) counts where a module of its
folder, or `LOADS`, names it. Stages, kinds and families are found as files and folders of the package. Modules that
cannot shape a result are in `EXEMPT`, each with its reason; the closure stops at them.

Cost: about two seconds for the whole package, nearly all for reading each file once; no module is imported.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

from lexmill.base import syntax
from lexmill.base.errors import UserError

Digests = dict[str, "str | Digests"]

EXEMPT: Mapping[str, str] = {
    "lexmill/__init__.py": "the version, which enters no output",
    "lexmill/base/addresses.py": "shows addresses, and refuses those with a secret",
    "lexmill/base/budgets.py": "what exceeds them is refused",
    "lexmill/base/checkout.py": "the commit, which enters no output",
    "lexmill/base/code.py": "computes these digests",
    "lexmill/base/code_history.py": "explains to people what changed",
    "lexmill/base/cutting.py": "shortens what is shown to people",
    "lexmill/base/encodings.py": "names encodings, or refuses them",
    "lexmill/base/errors.py": "a failed stage has no result",
    "lexmill/base/languages.py": "checks languages and names them to people; the values are tracked key by key",
    "lexmill/base/layout.py": "the paths of dvc.yaml, where a change shows as a changed path",
    "lexmill/base/outside.py": "reads values, or refuses them",
    "lexmill/base/plugins.py": "finds folders",
    "lexmill/base/progress.py": "shows people how far a stage is",
    "lexmill/base/quiet.py": "keeps libraries from printing",
    "lexmill/base/ranks.py": "which process this is; results do not depend on it",
    "lexmill/base/shells.py": "names programs",
    "lexmill/base/shown.py": "shows values to people",
    "lexmill/base/storage.py": "writes what it is given",
    "lexmill/base/strict.py": "reads values",
    "lexmill/base/surroundings.py": "lets libraries be imported",
    "lexmill/base/syntax.py": "computes these digests",
    "lexmill/base/workspace.py": "locks the folder",
    "lexmill/base/yaml_file.py": "reads values, or refuses them",
    "lexmill/compute/cores.py": "how many threads work is not identity",
    "lexmill/compute/execution.py": "how and where a stage runs is not identity",
    "lexmill/compute/load.py": "advises people",
    "lexmill/compute/workers/choosing.py": "where the pieces of a corpus are worked on enters no result",
    "lexmill/compute/workers/cluster.py": "where the pieces of a corpus are worked on enters no result",
    "lexmill/compute/workers/executor.py": "where the pieces of a corpus are worked on enters no result",
    "lexmill/compute/workers/files.py": "waits for what a worker has written",
    "lexmill/compute/workers/identity.py": "refuses workers that could give another result",
    "lexmill/compute/workers/processes.py": "where the pieces of a corpus are worked on enters no result",
    "lexmill/compute/workers/settings.py": "where the pieces of a corpus are worked on enters no result",
    "lexmill/models/declaration.py": "finds families and compares sizes; a network's own code reaches its sizes",
    "lexmill/params/__init__.py": "reads values; the values are tracked key by key, and conf/ spells out all of them",
    "lexmill/params/corpora.py": "reads values, which are tracked key by key",
    "lexmill/params/derived.py": "reads values, which are tracked key by key",
    "lexmill/params/models.py": "reads values, which are tracked key by key",
    "lexmill/params/optimizers.py": "reads values, which are tracked key by key",
    "lexmill/params/readers.py": "reads values, which are tracked key by key",
    "lexmill/params/recipe.py": "reads values, which are tracked key by key",
    "lexmill/params/references.py": "checks values",
    "lexmill/params/size.py": "checks values",
    "lexmill/stages/entry.py": "how a stage starts and ends",
    "lexmill/tracking/database.py": "makes MLflow's database ready",
    "lexmill/tracking/links.py": "addresses of MLflow's pages",
    "lexmill/tracking/live.py": "sends what a training has written down; it gives nothing back",
    "lexmill/tracking/reaching.py": "asks whether a server answers",
    "lexmill/tracking/store.py": "opens MLflow's store; a model that comes from it is pinned by its fingerprint",
}

# Placeholders of `LOADS`, and the packages whose folders they range over.
_CHOICES = {"kind": "lexmill.kinds", "family": "lexmill.models"}
_SHARED = "common"
_NOT_STAGES = ("__init__", "entry", "code")  # the last one writes the digests of the others
_PACKAGE = Path(__file__).parent.parent
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Closure:
    """The files that some modules can reach.

    Attributes:
        files: parsed files by path (`lexmill/data/shards.py`), sorted.
        choices: the placeholders of the modules loaded by name, in the order of `code.json`.
    """

    files: dict[str, syntax.Source]
    choices: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Return the sha256 over each path and the digest of its tree."""
        lines = (f"{path}\0{source.digest}\n" for path, source in self.files.items())
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    def parts(self) -> dict[str, dict[str, str]]:
        """Return, by file, a short digest of the whole (under "") and of each top-level definition."""
        return {path: {"": source.digest, **source.part_digests()} for path, source in self.files.items()}


@dataclass(frozen=True)
class _Module:
    """What is said by a module itself.

    Attributes:
        place: its path, as in `Closure.files`.
        files: itself, unless it says nothing, and the files that are not Python and that it names.
        reaches: the modules that it imports, and the packages it is in.
        loads: its patterns of `LOADS`.
    """

    place: str
    files: dict[str, syntax.Source]
    reaches: tuple[str, ...]
    loads: tuple[str, ...]


class Code:
    """The code in the folder `package` (default: the running package), read at the first call."""

    def __init__(self, package: str | Path = _PACKAGE) -> None:
        self._package = Path(package)
        self._known: dict[str, _Module] = {}
        self._options: dict[str, list[str]] = {}

    @cached_property
    def _modules(self) -> dict[str, Path]:
        """Return the file of each module of the package."""
        found = {}
        for path in self._package.rglob("*.py"):
            parts = path.relative_to(self._package.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return found

    @property
    def stages(self) -> list[str]:
        """Return the stages of `code.json`: the modules of `lexmill.stages`."""
        names = (path.stem for path in (self._package / "stages").glob("*.py"))
        return sorted(name for name in names if name not in _NOT_STAGES)

    def options(self, choice: str) -> list[str]:
        """Return the kinds (`kind`) or families (`family`): folders with an `__init__.py`."""
        if choice not in self._options:
            folder = self._package.joinpath(*_CHOICES[choice].split(".")[1:])
            names = (path.parent.name for path in folder.glob("*/__init__.py"))
            self._options[choice] = sorted(name for name in names if name != _SHARED)
        return self._options[choice]

    def closure(
        self, *modules: str, exempt: Collection[str] = EXEMPT.keys(), kind: str = "", family: str = ""
    ) -> Closure:
        """Return the files of the package that these modules can reach.

        Args:
            modules: dotted names, `lexmill.stages.train`.
            exempt: files at which the closure stops.
            kind, family: of the modules loaded by name; default all.

        Raises:
            ValueError: there is no such module, kind or family.
            UserError: a file is not Python.
        """
        chosen = {"kind": kind, "family": family}
        for choice, value in chosen.items():
            if value and value not in self.options(choice):
                raise ValueError(f"there is no {choice} {value}")
        found: dict[str, syntax.Source] = {}
        choices: set[str] = set()
        seen: set[str] = set()
        waiting = list(modules)
        for name in modules:
            if name not in self._modules:
                raise ValueError(f"there is no module {name}")
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if name not in self._modules:
                continue  # loaded by name, which need not exist
            module = self._module(name)
            if module.place in exempt:
                continue
            found |= module.files
            waiting += module.reaches
            for pattern in module.loads:
                choices.update(_PLACEHOLDER.findall(pattern))
                if "/" in pattern:
                    found |= self._files(self._filled(pattern, chosen))
                else:
                    waiting += self._filled(pattern, chosen)
        return Closure(dict(sorted(found.items())), tuple(name for name in _CHOICES if name in choices))

    def digest(self, *modules: str, kind: str = "", family: str = "") -> str:
        """Return the digest of the closure of these modules."""
        return self.closure(*modules, kind=kind, family=family).digest

    def stage(self, name: str, kind: str = "", family: str = "") -> Closure:
        """Return the closure of a stage; its digest is that of `code.json`."""
        return self.closure(f"lexmill.stages.{name}", kind=kind, family=family)

    def closures(self) -> dict[tuple[str, ...], Closure]:
        """Return all closures by key in `code.json`: (stage, kind, family), as far as the stage depends on them."""
        found = {}
        for name in self.stages:
            choices = self.stage(name).choices
            for values in product(*map(self.options, choices)):
                chosen = dict(zip(choices, values, strict=True))
                found[name, *values] = self.stage(name, chosen.get("kind", ""), chosen.get("family", ""))
        return found

    def _module(self, name: str) -> _Module:
        if name not in self._known:
            path = self._modules[name]
            try:
                source = syntax.read(path.read_text(encoding="utf-8"), name, path.name == "__init__.py")
            except SyntaxError as error:
                raise UserError(f"not Python: {error.msg}", path, error.lineno) from None
            place = path.relative_to(self._package.parent).as_posix()
            files = {place: source} if source.text else {}  # an empty file, or a docstring, says nothing
            # Names within a module are left out: the module that they are in is among the imports too.
            reaches = tuple(one for one in (*_parents(name), *source.imports) if one in self._modules)
            self._known[name] = _Module(place, files | self._beside(path, source), reaches, source.loads)
        return self._known[name]

    @cached_property
    def _data(self) -> dict[Path, list[Path]]:
        """Return the files of each folder that are not Python."""
        found: dict[Path, list[Path]] = {}
        for path in sorted(self._package.rglob("*.*")):
            if path.suffix not in (".py", ".pyc") and path.is_file():
                found.setdefault(path.parent, []).append(path)
        return found

    def _beside(self, module: Path, source: syntax.Source) -> dict[str, syntax.Source]:
        """Return the non-Python files of the module's folder that it names."""
        named = (path for path in self._data.get(module.parent, []) if ascii(path.name) in source.text)
        return self._files(path.relative_to(self._package.parent).as_posix() for path in named)

    def _files(self, places: Iterable[str]) -> dict[str, syntax.Source]:
        paths = {place: self._package.parent / place for place in places}
        return {place: syntax.data(path.read_bytes()) for place, path in paths.items() if path.is_file()}

    def _filled(self, pattern: str, chosen: Mapping[str, str]) -> list[str]:
        """Fill in the placeholders of a pattern of `LOADS`; the result need not exist (`hugging_face.py`)."""
        names = _PLACEHOLDER.findall(pattern)
        options = ([chosen[name]] if chosen.get(name) else self.options(name) for name in names)
        return [pattern.format(**dict(zip(names, values, strict=True))) for values in product(*options)]


def _parents(module: str) -> list[str]:
    """Return the parent packages of a module."""
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))] if parts[0] == "lexmill" else []


def digests(closures: Mapping[tuple[str, ...], Closure]) -> Digests:
    """Return the contents of `code.json`: the digest of each closure, in nested mappings."""
    found: Digests = {}
    for key, closure in closures.items():
        here = found
        for part in key[:-1]:
            inside = here.setdefault(part, {})
            assert isinstance(inside, dict)
            here = inside
        here[key[-1]] = closure.digest
    return found
