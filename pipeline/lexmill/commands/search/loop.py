"""The loop of a search: draw a trial, train it, prune it if it is hopeless, record its result.

Trials run one after the other, for a training uses all cores it may. After Ctrl-C, SIGTERM or kill -9 the same command
resumes the same trial from its last checkpoint. Only validation data decide; the test split is never read.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from lexmill.base import storage, workspace
from lexmill.base.errors import (
    EXIT_DONE,
    EXIT_RETRY,
    EXIT_TERMINATED,
    EXIT_USER,
    LexmillError,
    RetryableError,
    UserError,
)
from lexmill.base.progress import say
from lexmill.base.strict import flatten
from lexmill.commands.search import trials
from lexmill.commands.search.scratch import Looks, Scratch
from lexmill.commands.search.space import Search, Target, as_text
from lexmill.commands.search.study import Study, Trial
from lexmill.runner.display import Display
from lexmill.runner.session import stopping
from lexmill.runner.supervised import Listener, Outcome, Stop

FOLDER = workspace.HOME / "searches"
_LOOK_SECONDS = 0.3
_MOST_FAILED = 3


@dataclass(frozen=True)
class Place:
    """The folder of a search, and a hash that identifies it."""

    name: str
    identity: str
    folder: Path


def place(name: str, search: Search, about: Target, root: Path) -> Place:
    """Return the folder of this search; other choices, data or code start a new search in another folder.

    The number of trials and the present values of the searched keys do not count: adopting the best starts no new one.
    """
    known = {
        "search": {key: value for key, value in asdict(search).items() if key != "trials"},
        "entry": {key: value for key, value in flatten(about.entry).items() if key not in search.space},
        "seeds": [about.data["data_seed"], about.data["training_seed"]],
        "inputs": _inputs(about, root),
    }
    identity = storage.fingerprint(known)
    return Place(name, identity, root / FOLDER / f"{name}-{identity[:8]}")


def _inputs(about: Target, root: Path) -> dict[str, str]:
    """Return hashes of the training's inputs: outputs of other stages by dvc.lock, recipes by their bytes, its code."""
    from lexmill.runner.inputs import code_of, inputs_of

    lock = yaml.safe_load((root / "dvc.lock").read_text(encoding="utf-8")) if (root / "dvc.lock").is_file() else {}
    made = {out["path"]: out["md5"] for stage in (lock.get("stages") or {}).values() for out in stage.get("outs", [])}
    found = code_of(about.stage, root)
    for path in inputs_of(about.stage, root):
        place = root / path
        if path in made:
            found[path] = str(made[path])
        elif place.is_dir():
            files = sorted(file for file in place.rglob("*.py"))
            found[path] = storage.fingerprint([[str(f.relative_to(place)), storage.sha256_file(f)] for f in files])
        elif place.is_file():
            found[path] = storage.sha256_file(place)
    return found


class Loop:
    """Runs the trials of a search until there are enough.

    Args:
        where: the search's folder.
        search, about: what is searched.
        root: the workspace, locked by the caller.
        after: called after each trial with the search's folder.
    """

    def __init__(self, where: Place, search: Search, about: Target, root: Path, after: Callable[[Path], None]) -> None:
        self._where, self._search, self._about, self._after = where, search, about, after
        folder = where.folder
        folder.mkdir(parents=True, exist_ok=True)
        self._scratch = Scratch(folder, root, about)
        self._study = Study(search, folder / "study.db", where.name)
        self._display = Display()
        known = {"name": where.name, "identity": where.identity, "experiment": about.data["experiment"]}
        storage.write_json(folder / "search.json", {**known, **asdict(search)})

    def run(self) -> int:
        """Run trials until there are enough; return 0, or the exit code of the stop.

        Raises:
            UserError: the first trials all failed.
            RetryableError: a training failed for a passing reason.
            LexmillError: a training failed by a bug.
        """
        os.environ["LEXMILL_EXECUTION"] = str(self._scratch.settings)
        code = EXIT_DONE
        while code == EXIT_DONE and (trial := self._study.next(self._search.trials)) is not None:
            code = self._trial(trial)
        return code

    def _trial(self, trial: Trial) -> int:
        say(f"trial {trial.number + 1} of {self._search.trials}: {as_text(trial.values)}")
        begun, clock = int(time.time() * 1000), time.monotonic()
        stop = Stop()
        with stopping(stop, self._display):
            outcome, pruned = self._train(trial, stop)
        if stop.code is not None and not pruned:
            return stop.code
        state, value, looks, message = self._judge(trial, outcome, pruned)
        ended = trials.Ended(
            number=trial.number + 1,
            state=state,
            values=trial.values,
            valid_loss=value,
            looks=looks,
            message=message,
            started=begun,
            seconds=round(time.monotonic() - clock, 3),
        )
        trials.write(self._where.folder, ended, self._scratch.points)
        self._study.end(trial, state, value)
        self._scratch.ended()
        so_far = trials.read(self._where.folder)
        self._report(ended, trials.best(so_far))
        self._after(self._where.folder)
        if len(so_far) >= _MOST_FAILED and all(one.state == "failed" for one in so_far):
            raise UserError(f"the first {len(so_far)} trials all failed, the last one with: {so_far[-1].message}")
        return EXIT_DONE

    def _train(self, trial: Trial, stop: Stop) -> tuple[Outcome, bool]:
        """Run the training and watch it; return its outcome, and whether it was pruned."""
        stage, display = self._about.stage, self._display
        self._scratch.begin(trial.number, self._about.with_values(trial.values))
        listener = Listener(
            line=lambda _: None,
            record=lambda data: display.record(stage, data),
            said=lambda text: display.said(stage, text),
        )
        found: list[Outcome | BaseException] = []

        def work() -> None:
            try:
                found.append(self._scratch.run(stop, listener))
            except BaseException as error:
                found.append(error)

        display.started(stage)
        thread = threading.Thread(target=work, name=stage, daemon=True)
        thread.start()
        looks, pruned = Looks(self._scratch.points), False
        while thread.is_alive():
            thread.join(_LOOK_SECONDS)  # with a timeout, so that the main thread sees signals
            if stop.code is None and self._study.hopeless(trial, looks()) is not None:
                pruned = True
                stop.request(EXIT_TERMINATED)
        outcome = found[0]
        if isinstance(outcome, BaseException):
            raise outcome
        display.ended(outcome)
        return outcome, pruned

    def _judge(self, trial: Trial, outcome: Outcome, pruned: bool) -> tuple[trials.State, float | None, int, str]:
        """Return state, loss, validations and message of a trial whose training is over."""
        if outcome.code == EXIT_DONE:
            looks = self._scratch.looks()
            last = self._study.hopeless(trial, looks)
            if last is not None:
                return "pruned", looks[last - 1], last, ""
            return "complete", self._scratch.value(), len(looks), ""
        if pruned:
            last = self._study.judged(trial)
            return "pruned", Looks(self._scratch.points)()[last - 1], last, ""
        if outcome.code == EXIT_RETRY:
            raise RetryableError(f"{outcome.message}\nthe same command resumes this trial")
        if outcome.code != EXIT_USER and not outcome.message.startswith("killed"):
            raise LexmillError(f"the training failed: {outcome.message}")
        return "failed", None, self._study.judged(trial), outcome.message

    def _report(self, ended: trials.Ended, first: trials.Ended | None) -> None:
        loss = "" if ended.valid_loss is None else f"valid loss {ended.valid_loss:.5g}"
        what = {
            "complete": loss,
            "pruned": f"pruned at validation {ended.looks}, {loss}",
            "failed": f"failed: {ended.message}",
        }[ended.state]
        lead = "" if first is None else f"; best so far {first.valid_loss:.5g} (trial {first.number})"
        say(f"trial {ended.number}: {what}{lead}")
