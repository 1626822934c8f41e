"""Commit results to their own branch without touching the work tree, the index or HEAD.

A commit has the tree of HEAD with the result files of the work tree over it: params.yaml, sources.lock.yaml, dvc.lock
and the outputs that git tracks (metrics, reports). Its parents are the branch before and, where the branch lacks it,
HEAD. Other changes of the work tree are not committed but named.

It uses git's plumbing with its own index: read-tree, update-index, write-tree, commit-tree, update-ref. The last is
atomic, from the tip seen before, so a kill leaves the old branch or the new one.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lexmill.base.errors import RetryableError, UserError
from lexmill.base.strict import nearest
from lexmill.base.workspace import HOME
from lexmill.base.yaml_file import read_yaml
from lexmill.corpora.fetching import pins

TRAILER = "Lexmill-Night"
_ALWAYS = ("params.yaml", pins.FILE, "dvc.lock")
_NAME, _ADDRESS = "lexmill", "lexmill@localhost"


class NoRepository(UserError):
    """There is nothing to commit to."""


@dataclass(frozen=True)
class ResultBranch:
    """The branch `name` of the repository of the workspace `root`; the first commit creates it."""

    root: Path
    name: str

    def check(self) -> None:
        """Check that a commit can be made, before hours are spent.

        Raises:
            NoRepository: no git, no repository, or one without a commit.
            UserError: no name for a branch, one that is checked out, or one that holds commits of others.
        """
        try:
            self._git("rev-parse", "--show-toplevel")
        except _GitError as error:
            if "not a git repository" in error.said:
                raise NoRepository("there is no git repository here; `git init` makes one") from None
            raise UserError(f"git cannot be used here: {error}") from None
        except OSError as error:
            raise NoRepository(f"git cannot be run ({error.strerror}); install it") from None
        if self.head is None:
            raise NoRepository("the git repository has no commit yet; make the first one")
        try:
            self._git("check-ref-format", "--branch", self.name)
        except _GitError:
            raise UserError(f"--branch: '{self.name}' is no name for a branch") from None
        for line in self._git("worktree", "list", "--porcelain").split("\n"):
            if line == f"branch {self._ref}":
                raise UserError(
                    f"--branch: '{self.name}' is checked out, and a commit would pull it away from under its work tree;"
                    " check out another one, or give another --branch"
                )
        self._check_owners()

    def _check_owners(self) -> None:
        """Refuse a branch with commits of others: our tree would silently undo them."""
        if self.tip is None:
            return
        output = self._git(
            "log", "--no-merges", f"--format=%h %s%x00%(trailers:key={TRAILER})%x01", f"HEAD..{self.tip}"
        )
        for entry in filter(None, (one.strip("\n") for one in output.split("\x01"))):
            title, _, trailer = entry.partition("\x00")
            if not trailer.strip():
                raise UserError(
                    f"--branch: '{self.name}' has a commit that no night made and that is not in what is checked out"
                    f" ({title}); merge it, or give another --branch"
                )

    @property
    def head(self) -> str | None:
        """Return the commit that is checked out."""
        return self._commit_of("HEAD")

    @property
    def tip(self) -> str | None:
        """Return the branch's last commit; None where there is no such branch yet."""
        return self._commit_of(self._ref)

    @property
    def base(self) -> str:
        """Return the commit with the earlier results: the tip, or HEAD where that contains the tip."""
        head, tip = self._need_head(), self.tip
        return head if tip is None or self._is_ancestor(tip, head) else tip

    def file(self, name: str) -> str | None:
        """Return a file of the workspace as of `base`."""
        try:
            return self._git("show", f"{self.base}:./{name}")
        except _GitError:
            return None

    def uncommitted(self) -> list[str]:
        """Return the tracked files that differ from HEAD and are no results, so the commit lacks them."""
        output = self._git("status", "--porcelain", "-z", "--untracked-files=no", "--", ".")
        prefix = self._git("rev-parse", "--show-prefix").strip()
        results = {f"{prefix}{path}" for path in self._result_files(self._need_head())}
        found = []
        parts = iter(output.split("\0"))
        for part in filter(None, parts):
            if part[0] in "RC":
                next(parts)  # the name before
            if part[3:] not in results:
                found.append(part[3:].removeprefix(prefix))
        return found

    def commit(self, message: str) -> str | None:
        """Commit the results in the work tree; return None where HEAD or the branch has them already.

        Raises:
            RetryableError: the branch moved meanwhile.
        """
        head, tip = self._need_head(), self.tip
        tree = self._tree(head)
        if tree == self._tree_of(head) or (tip is not None and self._tree(tip) == self._tree_of(tip)):
            return None
        parents = [head] if tip is None else [tip, head]
        if tip is not None and self._is_ancestor(tip, head):
            parents = [head]
        elif tip is not None and self._is_ancestor(head, tip):
            parents = [tip]
        arguments = [word for parent in parents for word in ("-p", parent)]
        made = self._git("commit-tree", tree, *arguments, stdin=message, environment=self._identity()).strip()
        try:
            self._git("update-ref", "-m", "lexmill nightly", self._ref, made, tip or "0" * len(made))
        except _GitError as error:
            raise RetryableError(f"the branch '{self.name}' could not be moved: {error}; run it again") from None
        return made

    def check_remote(self, remote: str) -> None:
        """Raise `UserError` where the repository has no remote of that name."""
        known = self._git("remote").split()
        if remote not in known:
            raise UserError(f"--push: there is no git remote '{remote}'{nearest(remote, known)}")

    def pushed(self, remote: str) -> bool:
        """Return whether the remote, as last seen, has the branch's tip."""
        return self._commit_of(f"refs/remotes/{remote}/{self.name}") == self.tip

    def unpushed(self, remote: str) -> list[str]:
        """Return the nights' commits that the remote, as last seen, lacks, newest first; none where it has the tip."""
        if self.tip is None or self.pushed(remote):
            return []
        seen = self._commit_of(f"refs/remotes/{remote}/{self.name}")
        lacks = [self.tip, *([f"^{seen}"] if seen else [])]
        nights = self._git("rev-list", f"--grep=^{TRAILER}: ", *lacks).split()
        return nights if self.tip in nights else [self.tip, *nights]

    def push(self, remote: str) -> None:
        """Push the branch.

        Raises:
            UserError: its branch has commits that ours lacks.
            RetryableError: it cannot be reached.
        """
        try:
            self._git("push", "--quiet", remote, f"{self._ref}:{self._ref}")
        except _GitError as error:
            if "rejected" in error.said:
                raise UserError(
                    f"--push: {remote} has commits on '{self.name}' that are not here; fetch them, and move or merge"
                    " the branch"
                ) from None
            raise RetryableError(f"not pushed to {remote}: {error}; the next night pushes it") from None

    @property
    def _ref(self) -> str:
        return f"refs/heads/{self.name}"

    def _need_head(self) -> str:
        head = self.head
        assert head is not None, "checked before"
        return head

    def _tree(self, commit: str) -> str:
        """Write the tree of a commit with the results of the work tree over it."""
        home = self.root / HOME
        home.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home, prefix=".nightly-") as folder:
            environment = {"GIT_INDEX_FILE": str(Path(folder).resolve() / "index")}
            self._git("read-tree", commit, environment=environment)
            names = "".join(f"{name}\0" for name in self._result_files(commit, environment))
            self._git("update-index", "--add", "--remove", "-z", "--stdin", stdin=names, environment=environment)
            return self._git("write-tree", environment=environment).strip()

    def _tree_of(self, commit: str) -> str:
        return self._git("rev-parse", f"{commit}^{{tree}}").strip()

    def _result_files(self, commit: str, environment: Mapping[str, str] | None = None) -> list[str]:
        """Return the result files that git does not ignore, relative to the workspace."""
        if environment is None:
            with tempfile.TemporaryDirectory(prefix="lexmill-") as folder:
                index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
                self._git("read-tree", commit, environment=index)
                return self._result_files(commit, index)
        paths = [f":(literal){path}" for path in (*_ALWAYS, *_outputs(self.root))]
        output = self._git(
            *("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths), environment=environment
        )
        return sorted(set(filter(None, output.split("\0"))))

    def _commit_of(self, name: str) -> str | None:
        try:
            return self._git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
        except _GitError:
            return None

    def _is_ancestor(self, one: str, other: str) -> bool:
        try:
            self._git("merge-base", "--is-ancestor", one, other)
        except _GitError:
            return False
        return True

    def _identity(self) -> dict[str, str]:
        """Return the committer's environment: from git's configuration or environment, else lexmill."""
        found = {}
        for key, variable, default in (("user.name", "NAME", _NAME), ("user.email", "EMAIL", _ADDRESS)):
            try:
                named = self._git("config", "--get", key).strip()
            except _GitError:
                named = ""
            for role in ("AUTHOR", "COMMITTER"):
                found[f"GIT_{role}_{variable}"] = os.environ.get(f"GIT_{role}_{variable}") or named or default
        return found

    def _git(self, *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
        quiet = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env={**os.environ, **quiet, **(environment or {})},
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
        if done.returncode != 0:
            raise _GitError(arguments, done.stderr)
        return done.stdout


class _GitError(Exception):
    """A git command failed; the message is the last line of its output."""

    def __init__(self, arguments: Sequence[str], said: str) -> None:
        lines = [line for line in said.strip().split("\n") if line and not line.startswith("hint:")]
        super().__init__(lines[-1] if lines else f"`git {' '.join(arguments[:2])}` failed")
        self.said = said


def _outputs(root: Path) -> list[str]:
    """Return the outputs of all stages in dvc.lock."""
    path = root / "dvc.lock"
    if not path.is_file():
        return []
    data = read_yaml(path)
    stages = data.get("stages") if isinstance(data, dict) else None
    return sorted({out["path"] for stage in (stages or {}).values() for out in stage.get("outs", [])})
