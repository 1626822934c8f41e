"""Results on a branch of their own: real repositories in which the work tree and the index must not be touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from lexmill.base.errors import RetryableError, UserError
from lexmill.nightly.result_branch import NoRepository, ResultBranch

LOCK = "schema: '2.0'\nstages:\n  a:\n    cmd: x\n    outs:\n    - path: metrics/a.json\n    - path: reports/plots\n"


class Repository:
    """A repository with a workspace in it, perhaps in a folder of its own."""

    def __init__(self, top: Path, folder: str = "") -> None:
        self.top, self.root = top, top / folder
        self.root.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "somebody")
        self.git("config", "user.email", "somebody@localhost")
        self.write(code="1", readme="r", **{"params.yaml": "p", "dvc.lock": LOCK, ".gitignore": "reports/plots/big\n"})
        self.write(**{"metrics/a.json": "1", "sources.lock.yaml": "corpora: {}\n"})
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "start")

    def git(self, *arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=self.top, check=True, capture_output=True, text=True).stdout

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def branch(self, name: str = "nightly") -> ResultBranch:
        return ResultBranch(self.root, name)

    def files(self, commit: str) -> dict[str, str]:
        names = self.git("ls-tree", "-r", "-z", "--name-only", commit).strip("\0").split("\0")
        return {name: self.git("show", f"{commit}:{name}") for name in names}


@pytest.fixture(params=["", "projects/of us"])
def repository(tmp_path: Path, request: pytest.FixtureRequest) -> Repository:
    return Repository(tmp_path / "repository", request.param)


def test_results_are_committed_and_nothing_else_is_touched(repository: Repository) -> None:
    repository.write(code="mine", readme="staged", new="mine")
    repository.git("add", str(repository.root / "readme"))
    repository.write(**{"metrics/a.json": "2", "reports/plots/p.png": "new", "reports/plots/big": "ignored"})
    repository.write(**{"metrics/of-nobody.json": "3", "params.yaml": "p2"})
    before = (
        repository.git("status", "--porcelain"),
        repository.git("ls-files", "-s"),
        repository.git("rev-parse", "HEAD"),
    )
    branch = repository.branch()
    branch.check()
    assert branch.uncommitted() == ["code", "readme"]
    made = branch.commit("a night\n")
    assert made is not None
    after = (
        repository.git("status", "--porcelain"),
        repository.git("ls-files", "-s"),
        repository.git("rev-parse", "HEAD"),
    )
    assert after == before
    old, new = repository.files("main"), repository.files("nightly")
    prefix = repository.root.relative_to(repository.top).as_posix().replace(".", "")
    changed = {name.removeprefix(f"{prefix}/") for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    assert changed == {"metrics/a.json", "reports/plots/p.png", "params.yaml"}
    assert repository.git("log", "-1", "--format=%an <%ae> %P", "nightly").split()[2] == branch.head
    assert branch.commit("again\n") is None
    assert not list((repository.root / ".lexmill").glob(".nightly-*"))


def test_a_lost_output_leaves_the_branch_too(repository: Repository) -> None:
    (repository.root / "metrics/a.json").unlink()
    repository.branch().commit("a night\n")
    assert not [name for name in repository.files("nightly") if name.endswith("a.json")]


def test_nights_follow_each_other_and_take_in_what_was_committed_meanwhile(repository: Repository) -> None:
    branch, metric = repository.branch(), str(repository.root / "metrics/a.json")
    repository.write(**{"metrics/a.json": "2"})
    first = branch.commit("first\n\nLexmill-Night: x\n")
    repository.write(**{"metrics/a.json": "3"})
    second = branch.commit("second\n\nLexmill-Night: x\n")
    assert repository.git("rev-parse", "nightly^@").split() == [first]
    repository.git("restore", metric)
    repository.write(code="2")
    repository.git("commit", "-q", "-am", "code")
    repository.write(**{"metrics/a.json": "3"})
    branch.check()
    assert branch.commit("only the code is new\n") is None
    repository.write(**{"metrics/a.json": "4"})
    branch.commit("third\n\nLexmill-Night: x\n")
    assert repository.git("rev-parse", "nightly^@").split() == [second, branch.head]
    assert {"2", "4"} < set(repository.files("nightly").values())
    # The branch is merged as the page says: results put back, then forward to the branch.
    repository.git("restore", metric)
    repository.git("merge", "-q", "--ff-only", "nightly")
    assert repository.git("status", "--porcelain", "--untracked-files=no") == ""
    repository.write(**{"metrics/a.json": "5"})
    assert branch.base == branch.head
    branch.commit("fourth\n\nLexmill-Night: x\n")
    assert repository.git("rev-parse", "nightly^@").split() == [branch.head]


def test_a_branch_that_cannot_take_a_commit_is_reported_beforehand(repository: Repository) -> None:
    with pytest.raises(UserError, match="'main' is checked out"):
        repository.branch("main").check()
    with pytest.raises(UserError, match=r"'a\.\.b' is no name for a branch"):
        repository.branch("a..b").check()
    repository.git("worktree", "add", "-q", "-b", "nightly", str(repository.top.parent / "other"))
    with pytest.raises(UserError, match="'nightly' is checked out"):
        repository.branch().check()
    repository.git("worktree", "remove", str(repository.top.parent / "other"))
    repository.branch().check()
    repository.git("checkout", "-q", "nightly")
    repository.write(code="by hand")
    repository.git("commit", "-q", "-am", "a fix by hand")
    repository.git("checkout", "-q", "main")
    with pytest.raises(UserError, match=r"has a commit that no night made .* a fix by hand"):
        repository.branch().check()
    repository.git("merge", "-q", "nightly")
    repository.branch().check()


def test_without_a_repository_or_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoRepository, match="there is no git repository here"):
        ResultBranch(tmp_path, "nightly").check()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    with pytest.raises(NoRepository, match="no commit yet"):
        ResultBranch(tmp_path, "nightly").check()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoRepository, match="git cannot be run"):
        ResultBranch(tmp_path, "nightly").check()


def test_who_commits(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    repository.git("config", "--unset", "user.name")
    repository.git("config", "--unset", "user.email")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    repository.write(**{"metrics/a.json": "2"})
    repository.branch().commit("x")
    assert (
        repository.git("log", "-1", "--format=%an %ae %cn %ce", "nightly").split()
        == ["lexmill", "lexmill@localhost"] * 2
    )
    monkeypatch.setenv("GIT_AUTHOR_NAME", "night")
    repository.write(**{"metrics/a.json": "3"})
    repository.branch().commit("x")
    assert repository.git("log", "-1", "--format=%an %cn", "nightly").split() == ["night", "lexmill"]


def test_a_branch_that_moved_meanwhile_is_not_overwritten(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = repository.branch()
    repository.write(**{"metrics/a.json": "2"})
    branch.commit("first\n")
    repository.write(**{"metrics/a.json": "3"})
    seen = branch.tip
    repository.git("update-ref", "refs/heads/nightly", "main")
    monkeypatch.setattr(ResultBranch, "tip", seen)
    with pytest.raises(RetryableError, match="could not be moved"):
        branch.commit("second\n")
    assert repository.git("rev-parse", "nightly") == repository.git("rev-parse", "main")


def test_push(repository: Repository, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "far")], check=True)
    repository.git("remote", "add", "far", str(tmp_path / "far"))
    repository.git("remote", "add", "away", str(tmp_path / "away"))
    branch = repository.branch()
    repository.write(**{"metrics/a.json": "2"})
    branch.commit("first\n")
    assert not branch.pushed("far")
    branch.push("far")
    assert branch.pushed("far")
    branch.check_remote("away")
    with pytest.raises(UserError, match="there is no git remote 'fa', did you mean 'far'"):
        branch.check_remote("fa")
    with pytest.raises(RetryableError, match=r"not pushed to away: .*; the next night pushes it"):
        branch.push("away")
    repository.git("update-ref", "refs/heads/nightly", "main")
    repository.write(**{"metrics/a.json": "3"})
    branch.commit("another first\n")
    with pytest.raises(UserError, match="far has commits on 'nightly' that are not here"):
        branch.push("far")
