"""Records on disk of what each run of the workspace did, stage by stage.

    .lexmill/runs/20260102T030405Z-0123abcd.json     one run: when it started, the first 8 digits of its token

The file is replaced atomically at each change. A run with nothing to do leaves none. The record of a killed run has no
end and its process is gone: `unfinished` finds it, `end(None)` closes it. `lexmill.tracking.runs` sends records to
MLflow. Cost: one flushed write, some milliseconds, per start and end of a stage.
"""

from __future__ import annotations

import calendar
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from lexmill.base import checkout, layout, storage, workspace
from lexmill.runner import recorded

if TYPE_CHECKING:
    from lexmill.runner.graph import Plan
    from lexmill.runner.supervised import Outcome

FOLDER = workspace.HOME / "runs"
Door = Literal["run", "flow"]
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass
class StageRecord:
    """A stage of a run.

    Attributes:
        why: the reason that it was in the plan.
        state: "running", then how it ended (`Outcome.state`), or "killed".
        code: its exit code; None: it has not ended, or was killed.
        message: what went wrong; empty when nothing did.
        started: in UTC.
        fingerprint: of its command, inputs and params in dvc.lock; empty where unknown.
        inputs: paths with their size and DVC's md5.
        metrics: the contents of its metrics file.
    """

    name: str
    why: str = ""
    state: str = "running"
    code: int | None = None
    seconds: float = 0.0
    message: str = ""
    started: str = ""
    tries: int = 1
    fingerprint: str = ""
    inputs: list[dict[str, Any]] = field(default_factory=list)
    metrics: Any = None


@dataclass
class RunRecord:
    """One run. Thread-safe.

    Attributes:
        token: in the environment of its stages as LEXMILL_RUN.
        what: the command line.
        experiment: the MLflow experiment of params.yaml at its start.
        pid, process_start, host: of the process that runs it.
        commit, dirty: of the git checkout at its start; None: no git.
        started, ended: in UTC; `ended` is None while it runs.
        code: its exit code; None while it runs or when it was killed.
        stages: the stages started, in that order.
        planned: the addresses of the stages to run.
        unchanged: the other stages, with their fingerprints.
        dvc_lock: the digest of dvc.lock at its end (`checkout.dvc_lock_digest`).
        parent_run_id: of its MLflow run, once sent.
    """

    token: str
    what: str
    door: str
    experiment: str
    pid: int
    process_start: float
    host: str
    commit: str | None
    dirty: bool | None
    started: str
    ended: str | None = None
    code: int | None = None
    stages: list[StageRecord] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)
    unchanged: dict[str, str] = field(default_factory=dict)
    dvc_lock: str | None = None
    parent_run_id: str | None = None

    def __post_init__(self) -> None:
        self._root = Path()
        self._lock = threading.Lock()

    @property
    def path(self) -> Path:
        stamp = self.started.replace("-", "").replace(":", "")
        return self._root / FOLDER / f"{stamp}-{self.token[:8]}.json"

    @classmethod
    def start(cls, root: Path, token: str, what: str, door: Door, plan: Plan, *, experiment: str = "") -> Self:
        """Begin the record of a run of this process."""
        import psutil

        state = checkout.state(root)
        record = cls(
            token=token,
            what=what,
            door=door,
            experiment=experiment,
            pid=os.getpid(),
            process_start=psutil.Process().create_time(),
            host=socket.gethostname(),
            commit=state.commit if state else None,
            dirty=state.dirty if state else None,
            started=_now(),
            planned=[stage.name for stage in plan.todo],
        )
        todo = set(record.planned)
        record.unchanged = {stage.name: "" for stage in plan.stages if stage.name not in todo}
        record._root = root
        record._write()
        return record

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record; raise `ValueError` where the file is none."""
        try:
            found = storage.read_json(path)
            record = cls(**_known(cls, found))
            record.stages = [StageRecord(**_known(StageRecord, stage)) for stage in found["stages"]]
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path}: not the record of a run ({error})") from None
        record._root = path.parent.parent.parent
        return record

    def begin(self, name: str, why: str = "") -> None:
        """Record that a stage starts, perhaps again."""
        with self._lock:
            before = self._find(name)
            tries = 1 if before is None else before.tries + 1
            self._put(StageRecord(name, why, started=_now(), tries=tries))

    def stage(self, outcome: Outcome, why: str = "") -> None:
        """Record the end of a stage."""
        with self._lock:
            begun = self._find(outcome.stage) or StageRecord(outcome.stage, started=_now())
            begun.why = why or begun.why
            begun.state, begun.code, begun.message = outcome.state, outcome.code, outcome.message
            begun.seconds = round(outcome.seconds, 3)
            if outcome.state in ("ran", "restored", "unchanged"):
                entry = recorded.read(self._root, outcome.stage)
                begun.fingerprint, begun.inputs = entry.fingerprint, entry.inputs
            if outcome.state == "ran":
                begun.metrics = _metrics(self._root, outcome.stage)
            self._put(begun)

    def end(self, code: int | None) -> None:
        """Record the exit code of the run, once; None: it was killed, and another process records that."""
        with self._lock:
            if self.ended is not None:
                return
            last, self.code = (time.time() if code is not None else self.path.stat().st_mtime), code
            for stage in self.stages:
                if stage.state == "running":
                    seen = last if code is not None else max(last, _last_sign(self._root, stage.name))
                    stage.state = "killed" if code is None else "stopped"
                    stage.seconds = max(0.0, round(seen - calendar.timegm(time.strptime(stage.started, _TIME)), 3))
                    last = max(last, seen)
            self.ended = _text(last)
            self.unchanged = {name: recorded.read(self._root, name).fingerprint for name in self.unchanged}
            self.dvc_lock = checkout.dvc_lock_digest(self._root)
            self._write()

    def _find(self, name: str) -> StageRecord | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def _put(self, stage: StageRecord) -> None:
        self.stages = [*(one for one in self.stages if one.name != stage.name), stage]
        self._write()

    def _write(self) -> None:
        storage.write_json(self.path, asdict(self))


def records(root: Path = Path()) -> list[RunRecord]:
    """Return all runs of a workspace, the oldest first; files that are no records are skipped."""
    found: list[RunRecord] = []
    for path in sorted((root / FOLDER).glob("*Z-*.json")):
        if path.name.count(".") == 1:
            try:
                found.append(RunRecord.read(path))
            except (OSError, ValueError):
                continue
    return found


def unfinished(root: Path = Path()) -> list[RunRecord]:
    """Return the runs without an end whose process is gone; of another machine, if the workspace is not held."""
    return [record for record in records(root) if record.ended is None and _gone(record, root)]


def _gone(record: RunRecord, root: Path) -> bool:
    import psutil

    if record.host != socket.gethostname():
        return workspace.held_by(root) != record.token
    try:
        process = psutil.Process(record.pid)
        return process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - record.process_start) > 1
    except psutil.NoSuchProcess:
        return True


def _known(kind: type, found: dict[str, Any]) -> dict[str, Any]:
    """Return the entries that are fields: another version of lexmill may have written more."""
    names = {one.name for one in fields(kind)}
    return {key: value for key, value in found.items() if key in names}


def _metrics(root: Path, stage: str) -> Any:
    group, _, key = stage.rpartition(":")[2].partition("@")
    try:
        return storage.read_json(root / layout.metrics(group, key))
    except (OSError, ValueError):
        return None  # a stage without one


def _last_sign(root: Path, stage: str) -> float:
    """Return when a killed stage last wrote to its log or its points."""
    points = root / workspace.HOME / "metrics" / f"{stage.replace('@', '-')}.jsonl"
    signs = [path.stat().st_mtime for path in (workspace.log_path(stage, root), points) if path.exists()]
    return max(signs, default=0.0)


def _now() -> str:
    return _text(time.time())


def _text(seconds: float) -> str:
    return time.strftime(_TIME, time.gmtime(seconds))


def why(plan: Plan) -> dict[str, str]:
    """Return the reasons of each stage of a plan, as one text."""
    return {name: "; ".join(_some(reasons)) for name, reasons in plan.reasons().items()}


def _some(reasons: Sequence[str], most: int = 8) -> list[str]:
    return [*reasons[:most], *([f"{len(reasons) - most} more"] if len(reasons) > most else [])]
