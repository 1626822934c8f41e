"""The runner on tiny DVC projects: order, codes, restored and unchanged stages, one run at a time."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import yaml
from dvc.repo import graph
from dvc.stage import PipelineStage

from lexmill.base import workspace
from lexmill.base.errors import (
    EXIT_BUG,
    EXIT_INTERRUPTED,
    EXIT_RETRY,
    EXIT_TERMINATED,
    EXIT_USER,
    RetryableError,
    UserError,
)
from lexmill.commands.run import run
from lexmill.runner import supervised
from lexmill.runner.display import Display
from lexmill.runner.graph import read
from lexmill.runner.session import open_session, run_all
from tests.support.small_project import whole


def test_a_failure_stops_its_dependants_alone_and_a_rerun_does_only_the_rest(project: Any) -> None:
    project.stage("one", "write('1')")
    project.stage("two", "import sys; print('the sky fell', file=sys.stderr); sys.exit(2)", ("one",))
    project.stage("after_two", "write('x')", ("two",))
    project.stage("other", "write('3')", ("one",))
    session = project.run()
    assert session.code == 2
    assert {name: outcome.state for name, outcome in session.outcomes.items()} == {
        "one": "ran",
        "two": "failed",
        "other": "ran",
    }
    assert session.not_run == ["after_two"]
    assert "the sky fell" in session.outcomes["two"].message
    assert "the sky fell" in workspace.log_path("two", project.root).read_text()

    project.stage("two", "write('2')", ("one",))
    session = project.run()
    assert session.code == 0
    assert list(session.outcomes) == ["two", "after_two"]
    assert session.plan.unchanged == 2

    session = project.run()
    assert (session.code, session.plan.todo, session.plan.unchanged) == (0, (), 4)


def test_lexmill_run_reads_the_graph_and_what_changed_once(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many stages it runs: DVC's reading of a large graph takes seconds."""
    (project.root / "conf" / "execution").mkdir(parents=True)
    (project.root / "conf" / "execution" / "local.yaml").write_text("publish: false\n")
    params = whole({"experiment": "tiny", "data_seed": 1, "training_seed": 1})
    (project.root / "params.yaml").write_text(yaml.safe_dump(params))
    monkeypatch.chdir(project.root)
    readings: list[str] = []
    status, build_graph = PipelineStage.status, graph.build_graph

    def counted_status(self: Any, *arguments: Any, **options: Any) -> Any:
        readings.append(f"what changed in {self.name}")
        return status(self, *arguments, **options)

    def counted_graph(*arguments: Any) -> Any:
        readings.append("the graph")
        return build_graph(*arguments)

    monkeypatch.setattr(PipelineStage, "status", counted_status)
    monkeypatch.setattr(graph, "build_graph", counted_graph)
    for name in ("one", "two", "three"):
        project.stage(name, "write('1')", ("one",) if name != "one" else ())
    once = ["the graph", *(f"what changed in {name}" for name in ("one", "three", "two"))]
    assert run((), 2) == 0
    assert sorted(readings) == once
    assert [project.text(name) for name in ("one", "two", "three")] == ["1", "1", "1"]
    readings.clear()
    assert run((), 2) == 0
    assert sorted(readings) == once


def test_a_line_of_a_running_stage_is_in_its_log_and_is_reported(project: Any) -> None:
    """The stage itself looks for its own line in its log, where nobody but the runner writes, and waits until it is
    there: it could not end otherwise.
    """
    log = workspace.log_path("slow", project.root)
    code = f"""
import time
print('half way', flush=True)
log, deadline = Path({str(log)!r}), time.monotonic() + 60
while 'half way' not in (log.read_text() if log.exists() else ''):
    assert time.monotonic() < deadline, 'its line is not in its log'
    time.sleep(0.05)
write(log.read_text())
"""
    project.stage("slow", code)
    said: list[str] = []
    with open_session(root=project.root, display=Display()) as session:
        outcome = session.run("slow", line=said.append)
    assert outcome.state == "ran", outcome.message
    assert "half way" in project.text("slow")
    assert "half way" in said


def test_reasons_name_the_change_and_what_follows_from_it(project: Any) -> None:
    project.stage("one", "write('1')")
    project.stage("two", "write('2')", ("one",))
    assert project.run().code == 0
    project.stage("one", "write('11')")
    reasons = read(project.root).reasons()
    assert reasons == {"one": ("input one.py modified",), "two": ("follows one",)}


def test_what_the_cache_holds_is_restored_and_equal_output_leaves_followers_unchanged(project: Any) -> None:
    project.stage("one", "write('1')")
    project.stage("two", "write('2')", ("one",))
    assert project.run().code == 0
    project.stage("one", "write(str(2 - 1))")
    outcomes = project.run().outcomes
    assert {name: outcome.state for name, outcome in outcomes.items()} == {"one": "ran", "two": "unchanged"}
    project.stage("one", "write('1')")
    assert project.run().outcomes["one"].state == "restored"


def test_targets_are_stages_or_groups_and_bring_what_they_need(project: Any) -> None:
    project.stage("one", "write('1')")
    project.stage("two", "write('2')", ("one",))
    project.stage("other", "write('3')")
    assert [stage.name for stage in read(project.root, ["two"]).stages] == ["one", "two"]
    with pytest.raises(UserError, match="no stage 'tow', did you mean 'two'"):
        read(project.root, ["tow"])


def test_an_unknown_stage_like_no_other_gets_the_groups_alone(project: Any) -> None:
    project.stages["make"] = {"foreach": ["a", "b"], "do": {"cmd": "echo ${item} > ${item}", "outs": ["${item}"]}}
    project.save()
    with pytest.raises(UserError, match=r"no stage 'xyz'; known: make$"):
        project.run("xyz")


def test_a_missing_group_of_params_is_reported_with_what_to_write(project: Any) -> None:
    (project.root / "params.yaml").write_text("other: 1\n")
    project.stages["make"] = {"foreach": "${things}", "do": {"cmd": "echo ${item}"}}
    project.save()
    with pytest.raises(UserError, match=r"params.yaml needs it: `things: {}`"):
        project.run()


def test_a_folder_without_git_learns_what_to_do(project: Any) -> None:
    shutil.rmtree(project.root / ".git")
    project.stage("one", "write('1')")
    with pytest.raises(UserError, match="`git init` makes it one"):
        project.run()


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ERROR: failed to reproduce 'x': [Errno 13] Permission denied: '/a/b'", EXIT_USER),
        ("ERROR: failed to reproduce 'x': [Errno 28] No space left on device: '/a/b'", EXIT_RETRY),
        ("ERROR: failed to reproduce 'x': [Errno 2] No such file or directory: '/a/b'", EXIT_BUG),
        ("ERROR: Unable to acquire lock", EXIT_RETRY),
    ],
)
def test_dvc_failing_by_itself_gets_the_code_of_its_cause(text: str, code: int) -> None:
    outcome = supervised._outcome("x", 255, tail=[text], status=None, seconds=1.0, stop=supervised.Stop())
    assert outcome.code == code
    assert outcome.message == text.removeprefix("ERROR: ")


def test_a_stop_reaches_all_though_one_of_them_fails(capsys: pytest.CaptureFixture[str]) -> None:
    stop = supervised.Stop()
    heard: list[int] = []

    def fail(_code: int) -> None:
        raise OSError("no room")

    stop.attach(fail)
    stop.attach(heard.append)
    stop.request(EXIT_INTERRUPTED)
    stop.request(EXIT_TERMINATED)
    assert (heard, stop.code) == ([EXIT_INTERRUPTED, EXIT_TERMINATED], EXIT_INTERRUPTED)
    assert capsys.readouterr().err.count("OSError: no room") == 2


def test_a_stage_that_is_stopped_before_its_next_try_keeps_what_it_did(project: Any) -> None:
    project.stage("fetch", "import sys; sys.exit(75)")
    with open_session(root=project.root) as session:
        failed = session.run("fetch")
        session.stop.request(EXIT_TERMINATED)
        assert session.run("fetch").state == "stopped"
    assert session.outcomes == {"fetch": failed}
    assert (failed.state, failed.code, failed.seconds > 0) == ("failed", EXIT_RETRY, True)
    assert session.not_run == []


def test_groups_of_foreach_stages(project: Any) -> None:
    project.stages["make"] = {"foreach": ["a", "b"], "do": {"cmd": "echo ${item} > ${item}", "outs": ["${item}"]}}
    project.save()
    assert [stage.name for stage in read(project.root, ["make"]).stages] == ["make@a", "make@b"]
    assert [stage.name for stage in read(project.root, ["make@b"]).stages] == ["make@b"]


def test_a_change_that_dvc_does_not_see_forces_the_stage(project: Any) -> None:
    project.stage("one", "write('1')")
    assert project.run().code == 0
    with open_session(root=project.root, also={"one": "book.txt changed"}) as session:
        assert session.plan.reasons() == {"one": ("book.txt changed",)}
        run_all(session)
    assert session.outcomes["one"].state == "ran"


def test_errors_of_the_project_are_sentences(project: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    (project.root / "dvc.yaml").write_text("stages:\n  a: {cmd: x, dep: [y]}\n")
    with pytest.raises(UserError, match=r"dvc\.yaml"):
        read(project.root)
    with pytest.raises(UserError, match="no DVC project here"):
        read(tmp_path_factory.mktemp("empty"))


def test_the_second_run_learns_who_holds_the_workspace(project: Any) -> None:
    with (
        workspace.run_lock("the nightly run", project.root),
        pytest.raises(RetryableError, match=r"in use by the nightly run \(process \d+ on .*, since 2"),
        workspace.run_lock(root=project.root, wait_seconds=0),
    ):
        pass


def test_a_stage_of_our_own_hands_over_its_code_and_only_its_message(project: Any) -> None:
    (project.root / "params.yaml").write_text("experiment: 3\ntraning_seed: 1\n")
    body = "from lexmill.stages.entry import run_stage\ndef main(key): ...\nrun_stage(main)"
    project.stage("own", body)
    project.stages["own"]["cmd"] += " key"
    project.save()
    session = project.run()
    outcome = session.outcomes["own"]
    assert (session.code, outcome.code, outcome.state) == (2, 2, "failed")
    assert "traning_seed: unknown key, did you mean 'training_seed'?" in outcome.message
    assert "Traceback" not in outcome.message
    assert "exited with" not in outcome.message


def test_one_job_at_a_time_and_trainings_alone(project: Any) -> None:
    notes = project.root / "notes"

    def written(jobs: int) -> list[list[str]]:
        notes.unlink(missing_ok=True)
        for name in ("light_a", "light_b", "train", "evaluate"):
            note = f"open('notes', 'a').write('%s {name}\\n')"
            body = f"{note % 'start'}; import time; time.sleep(0.3); {note % 'end'}; write('{jobs}')"
            project.stage(name, body)
        assert project.run(jobs=jobs).code == 0
        return [line.split() for line in notes.read_text().splitlines()]

    assert [what for what, _ in written(jobs=1)] == ["start", "end"] * 4
    # Two threads of torch beside a process that holds one of the cores are many times slower than one.
    lines = written(jobs=4)
    for name in ("train", "evaluate"):
        assert lines.index(["end", name]) == lines.index(["start", name]) + 1
