"""How to make a registered version again from its git commit: a script, and a section of its card.

A package holds no commit, for it is a function of its inputs alone; the run and the version hold it. What a run itself
writes into git (dvc.lock, code.json, metrics/, reports/) is no difference from the commit: it shapes no model. A
changed params.yaml or sources.lock.yaml (a nightly run moves it before it commits) is kept with the run, and the script
puts it in place. Other changes are named, with a hash, and then the script says that the commit alone may give another
model.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexmill.base import layout, storage
from lexmill.base.addresses import redact
from lexmill.base.checkout import git
from lexmill.base.cutting import cut
from lexmill.corpora.fetching import pins
from lexmill.registry.card import table
from lexmill.registry.package import DESCRIPTION

SCRIPT = "reproduce.sh"
KEPT = ("params.yaml", pins.FILE)
"""What is kept with the run: it shapes models, and the commit may have another one."""
_RESULTS = ("dvc.lock", "code.json", "metrics", "reports")
_SHOWN_CHANGES = 10
_LONGEST_DESCRIPTION = 5000  # of a version, in MLflow's databases


@dataclass(frozen=True)
class Recipe:
    """The steps from a commit to a package.

    Attributes:
        commit: empty outside of a git repository.
        changes: files of the work tree that differ from the commit and can shape a model, without those of `KEPT`.
        diff_sha256: a hash of those changes; empty without any.
        taken: those of `KEPT` that are not as the commit has them.
        script: the text of reproduce.sh.
        section: a section of the card.
    """

    commit: str
    changes: tuple[str, ...]
    diff_sha256: str
    taken: tuple[str, ...]
    script: str
    section: str

    def tags(self) -> dict[str, str]:
        """Return the tags of the run."""
        found = {"lexmill.git_diff_sha256": self.diff_sha256, "lexmill.reproduce": _one_line(self.script)}
        return {key: value for key, value in found.items() if value}

    def description(self, card: str) -> str:
        """Return the text of the version's page: how to make it again, then its card, cut to the allowed length."""
        text = f"{self.section}\n{card}"
        return cut(text, _LONGEST_DESCRIPTION, " ...")


def recipe(description: Mapping[str, Any], run_id: str, threads: int, root: Path) -> Recipe:
    """Return the recipe of a package made in this workspace.

    Args:
        description: its package.json.
        run_id: its MLflow run, which keeps params.yaml and sources.lock.yaml.
        threads: of the execution settings; 0: all cores.
    """
    commit = git(root, "rev-parse", "HEAD") or ""
    changes, diff_sha256 = _changes(root) if commit else ((), "")
    if commit:
        taken = tuple(name for name in KEPT if git(root, "status", "--porcelain", "--", name))
    else:
        taken = tuple(name for name in KEPT if name == "params.yaml" or (root / name).is_file())
    lines = _lines(description, run_id, commit, root, taken)
    warnings = _warnings(description, changes, diff_sha256)
    name, fingerprint = description["name"], description["fingerprint"]
    head = ["#!/bin/sh", f"# {name}, {fingerprint}", *(f"# {warning}" for warning in warnings), "set -eu"]
    return Recipe(
        commit=commit,
        changes=changes,
        diff_sha256=diff_sha256,
        taken=taken,
        script="\n".join([*head, *lines]) + "\n",
        section=_section(lines, warnings, threads),
    )


def _lines(description: Mapping[str, Any], run_id: str, commit: str, root: Path, taken: tuple[str, ...]) -> list[str]:
    name = description["name"]
    found = []
    if commit:
        folder = f"lexmill-{name}"
        source = _address(git(root, "remote", "get-url", "origin") or "") or "REPOSITORY"
        found += [f"git clone {shlex.quote(source)} {shlex.quote(folder)}", f"cd {shlex.quote(folder)}"]
        found.append(f"git checkout {commit}")
    found += ["make setup", ". .venv/bin/activate"]
    for kept in taken:
        found.append(f"mlflow artifacts download --run-id {run_id} --artifact-path {kept} --dst-path .")
    execution = os.environ.get("LEXMILL_EXECUTION", "")
    chosen = f"LEXMILL_EXECUTION={execution} " if re.fullmatch(r"[\w-]+", execution) else ""
    found.append(f"{chosen}dvc repro {shlex.quote(f'register@{name}')}")
    made = (layout.package(name) / DESCRIPTION).as_posix()
    found.append(f"grep -q {description['fingerprint']} {shlex.quote(made)} && echo 'the same model, to the bit'")
    return found


def _warnings(description: Mapping[str, Any], changes: tuple[str, ...], diff_sha256: str) -> list[str]:
    found = []
    if changes:
        shown = ", ".join(changes[:_SHOWN_CHANGES]) + (", ..." if len(changes) > _SHOWN_CHANGES else "")
        found.append(
            f"The work tree had changes that were not committed ({shown}; sha256 of the difference {diff_sha256}),"
            " so the commit alone may give another model."
        )
    source = table({"source": description["params"]["corpus"]["source"]})
    if source.get("source.kind") in ("file", "folder"):
        found.append(f"Its corpus is made of the user's own files ({source.get('source.paths')}), which must be there.")
    return found


def _section(lines: list[str], warnings: list[str], threads: int) -> str:
    cores = "all its cores" if threads == 0 else "one thread" if threads == 1 else f"{threads} threads"
    return "\n".join(
        [
            "## Make it again",
            "",
            "```",
            *lines,
            "```",
            "",
            f"To the bit on the same kind of machine, with {cores} and the lock file's packages; elsewhere to float"
            " precision.",
            *(f"\n{warning}" for warning in warnings),
            "",
        ]
    )


def _one_line(script: str) -> str:
    return " && ".join(line for line in script.splitlines() if line and not line.startswith(("#", "set ")))


def _address(remote: str) -> str:
    """Return a remote's address without a login."""
    if remote.startswith("ssh://"):  # there the name is part of the place
        return re.sub(r"^(ssh://[^/:]*):[^/]*@", r"\1@", remote)
    return redact(remote) if remote.startswith(("http://", "https://", "ftp://", "ftps://")) else remote


def _changes(root: Path) -> tuple[tuple[str, ...], str]:
    """Return changed files that can shape a model (tracked ones, and new ones among the code) and a hash of them."""
    but = [f":(exclude){name}" for name in (*_RESULTS, *KEPT)]
    changed = git(root, "diff", "--name-only", "-z", "HEAD", "--", ".", *but) or ""
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", "pipeline", "conf", "dvc.yaml") or ""
    names = sorted({*changed.split("\0"), *new.split("\0")} - {""})
    if not names:
        return (), ""
    contents = {name: storage.sha256_file(root / name) if (root / name).is_file() else "removed" for name in names}
    return tuple(names), storage.fingerprint(contents)
