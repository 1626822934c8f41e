"""The start and end of a stage: key from the command line, preflight checks, exit codes, watching the parent.

    python -m lexmill.stages.NAME KEY        (code and report, which have no items: no KEY)

All errors of params.yaml and the execution settings are reported at once before the stage works. A `LexmillError` ends
it with its exit code and message; Ctrl-C gives 130; SIGTERM gives 143 (it raises `SignalledToEnd` in the main thread
unless the stage installs its own handler); anything else is our bug: a traceback and 1. DVC turns every code into 255,
so the code is also written to .lexmill/status/ under the stage's address.

A stage runs where the execution settings say (`lexmill.compute`): here, with its own GPUs and cores if configured and
within its time limit; or elsewhere: then this process submits it, streams its log, waits, and ends with its code.

A stage that DVC started ends when that DVC process is gone: after `kill -9` of dvc, the next `dvc repro` would start a
second one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from types import FrameType
from typing import Any, NoReturn, TypeVar

from lexmill import params
from lexmill.base import progress, workspace
from lexmill.base.errors import (
    EXIT_BUG,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    EXIT_RETRY,
    EXIT_TERMINATED,
    LexmillError,
    SignalledToEnd,
    UserError,
    UserErrors,
    machine_error,
)
from lexmill.base.quiet import quieten
from lexmill.base.ranks import is_first_process
from lexmill.base.shells import SHELLS
from lexmill.base.shown import visible, without_secrets
from lexmill.compute import execution, leases
from lexmill.compute.cores import cores
from lexmill.compute.deadline import deadline
from lexmill.compute.drive import JobEnded, run_elsewhere
from lexmill.compute.job import JobFolder, watch_submitter
from lexmill.compute.load import hint
from lexmill.compute.place import Place, check_others_started, place_of
from lexmill.compute.settings import TRAINING, group_of

T = TypeVar("T")

_FETCHING = ("fetch", "checkpoint")
# With these set, Lightning assumes that Slurm starts its other processes.
_SLURM_TASKS = ("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE")
_WATCH_SECONDS = 0.5
_GRACE_SECONDS = 10.0


def run_stage(main: Callable[[str], None], *, keyed: bool = True, configured: bool = True) -> NoReturn:
    """Run a stage's `main` with the key from the command line and exit with its code.

    Args:
        main: the stage's work.
        keyed: whether it takes a key; if not, `main` gets "".
        configured: whether it reads params.yaml and the execution settings; if not, it runs in this process.
    """
    workspace.run_own_code()
    module = _module_name(main)
    if len(sys.argv) != (2 if keyed else 1):
        print(f"usage: python -m lexmill.stages.{module}{' KEY' if keyed else ''}", file=sys.stderr)
        raise SystemExit(2)
    key = sys.argv[1] if keyed else ""
    quieten(offline=module not in _FETCHING)
    for name in _SLURM_TASKS:
        os.environ.pop(name, None)
    stage = os.environ.get("DVC_STAGE") or (f"{module}@{key}" if keyed else module)
    first = is_first_process()
    signal.signal(signal.SIGTERM, terminate)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` leaves it ignored
    said: list[bool] = []

    def work() -> None:
        command = ["-m", f"lexmill.stages.{module}", *([key] if keyed else [])]
        try:
            if configured:
                _placed(lambda: main(key), command, stage, first)
            else:
                with workspace.stage_guard(stage):
                    main(key)
        except JobEnded:
            said.append(True)
            raise

    code, message = outcome(work)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # a second signal must not disturb the exit
    job = JobFolder.here()
    if first and job is None:
        workspace.write_status(stage, code, message)
    elif first and job is not None:
        job.write_status(code, message)
    if not said:
        _say(message)
    # 143 requeues a job, which a cancelled one must not do.
    sys.exit(EXIT_RETRY if job is not None and code == EXIT_TERMINATED and job.cancelled.exists() else code)


def _placed(main: Callable[[], None], command: list[str], stage: str, first: bool) -> None:
    """Do the stage's work where it belongs; the first process of a training alone submits, leases and watches."""
    job = JobFolder.here()
    if not first:
        preflight()
        main()
        return
    with ExitStack() as stack:
        if job is not None:
            watch_submitter(job)
        else:
            if "DVC_STAGE" in os.environ:
                watch_parent()
            stack.enter_context(workspace.stage_guard(stage))
        settings = preflight()
        place = place_of(stage, settings)
        check_others_started(place)
        if job is None and place.elsewhere:
            run_elsewhere(place, command, settings)
            return
        _set_threads(place, settings)
        # A Prefect worker assigns no GPUs and enforces no time limit.
        by_worker = job is not None and place.launcher == "prefect"
        if job is None or place.elsewhere:
            # A cluster has assigned its job's GPUs; torchrun's processes inherit those of their parent.
            gpus = by_worker or not place.elsewhere
            stack.enter_context(leases.leased(place, settings.lease_root, progress.say, gpus=gpus))
        if job is None or by_worker:
            stack.enter_context(deadline(place.seconds, stage))
        if job is None and place.launcher != "local":
            run_elsewhere(place, command, settings)
        else:
            _advise(place, settings)
            main()


def _advise(place: Place, settings: execution.Execution) -> None:
    """Report before a training on a CPU that other programs hold its cores."""
    if group_of(place.stage) == TRAINING and settings.accelerator == "cpu":
        threads = settings.threads or cores()  # shared out among its processes
        if advice := hint(threads, execution.settings_file()):
            progress.say(advice)


def _set_threads(place: Place, settings: execution.Execution) -> None:
    """Set the threads of libraries that read them from the environment, also where a scheduler or torchrun set others.

    Torch's own threads are set where torch is used.
    """
    count = settings.threads or place.cpus
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        if count:
            os.environ[name] = str(count)
        else:
            os.environ.pop(name, None)


def outcome(work: Callable[[], None]) -> tuple[int, str]:
    """Do `work`; return its exit code and message (a bug's traceback, nothing on success)."""
    try:
        work()
    except LexmillError as error:
        return error.exit_code, str(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED, "interrupted"
    except SignalledToEnd:
        return EXIT_TERMINATED, "terminated"
    except SystemExit as error:
        if error.code is None:
            return EXIT_DONE, ""
        return (error.code, "") if isinstance(error.code, int) else (EXIT_BUG, str(error.code))
    except OSError as error:
        known = machine_error(error)
        if known is None:
            return EXIT_BUG, without_secrets(traceback.format_exc().rstrip())
        return known.exit_code, str(known)
    except Exception:
        return EXIT_BUG, without_secrets(traceback.format_exc().rstrip())
    return EXIT_DONE, ""


def preflight() -> execution.Execution:
    """Check params.yaml and the execution settings, prepare the tracking store, and return the execution settings.

    Raises:
        UserErrors: with all errors of both.
        UserError: the file in the store's place is no store.
    """
    errors: list[str] = []
    choices, settings = _checked(params.load, errors), _checked(execution.load_execution, errors)
    if choices is None or settings is None:
        raise UserErrors(errors)
    _prepare_store(settings, choices)
    return settings


def _checked(load: Callable[[], T], errors: list[str]) -> T | None:
    try:
        return load()
    except UserErrors as raised:
        errors.extend(raised.errors)
    except UserError as error:
        errors.append(str(error))
    return None


def _prepare_store(settings: execution.Execution, choices: params.Params) -> None:
    """Create a local MLflow database before anything runs, for processes that create it at once would corrupt it.

    A server is not contacted: no stage may depend on its answer.
    """
    if not settings.publish or not choices.models or find_spec("mlflow") is None:
        return
    from lexmill.tracking import store

    if store.sqlite_path(settings.tracking_uri) is not None:
        store.prepare(settings.tracking_uri)


def _module_name(main: Callable[[str], None]) -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name if spec is not None else main.__module__
    return str(name).rpartition(".")[2]


def terminate(_signal: int, _frame: FrameType | None) -> None:
    """Handle SIGTERM: raise `SignalledToEnd` in the main thread."""
    # Once only: a second SIGTERM must not disturb the clean-up after the first.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SignalledToEnd


def _say(message: str) -> None:
    if not message:
        return
    try:
        os.write(2, f"{visible(message)}\n".encode())
    except OSError:
        return  # the reader of our output is gone; code and message are in the status file


def watch_parent() -> None:
    """End this process when the process of dvc is gone: by SIGTERM, after ten seconds immediately."""
    try:
        import psutil
    except ImportError:
        return  # a training machine without dvc
    ancestor = _dvc_process(psutil)
    if ancestor is None:
        os.kill(os.getpid(), signal.SIGTERM)
        return
    threading.Thread(target=_watch, args=(ancestor,), name="watch-dvc", daemon=True).start()


def _dvc_process(psutil: Any) -> Any:
    """Return the nearest ancestor that is no shell, dvc itself; None if it is already gone."""
    try:
        process = psutil.Process().parent()
        while process is not None and process.name().lower() in SHELLS:
            process = process.parent()
        if process is not None and process.pid == 1 and not any("dvc" in word for word in process.cmdline()):
            return None  # adopted by init
    except psutil.NoSuchProcess:
        return None
    return process


def _watch(ancestor: Any) -> None:
    while _lives(ancestor):
        time.sleep(_WATCH_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(EXIT_TERMINATED)


def _lives(process: Any) -> bool:
    """Return whether it still runs; a reused process id (by its start time) and a zombie do not count."""
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
