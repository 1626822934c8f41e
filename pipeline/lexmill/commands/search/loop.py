"""The loop of a search: draw a trial, train it, prune it if it is hopeless, record its result.

Trials run one after the other, for a training uses all cores it may. After Ctrl-C, SIGTERM or kill -9 the same command
resumes the same trial from its last checkpoint. Only validation data decide; the test split is never read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from lexmill.base import storage, workspace
from lexmill.base.errors import EXIT_DONE, EXIT_TERMINATED, UserError
from lexmill.base.progress import say
from lexmill.base.strict import flatten
from lexmill.commands.search import trials
from lexmill.commands.search.space import Search, Target, as_text
from lexmill.commands.search.study import Study, Trial
from lexmill.commands.trainings.inputs import hashes
from lexmill.commands.trainings.running import run_watched, why_failed
from lexmill.commands.trainings.scratch import Looks, Scratch
from lexmill.commands.trainings.trials import write
from lexmill.runner.display import Display
from lexmill.runner.session import stopping
from lexmill.runner.supervised import Outcome, Stop

FOLDER = workspace.HOME / "searches"
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
        "inputs": hashes(about.stage, root),
    }
    identity = storage.fingerprint(known)
    return Place(name, identity, root / FOLDER / f"{name}-{identity[:8]}")


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
        self._scratch = Scratch(folder, root, [about.name])
        self._study = Study(search, folder / "study.db", where.name)
        self._display = Display()
        known = {"title": f"search {where.name}", "identity": where.identity, "experiment": about.data["experiment"]}
        shown = {"model": search.model, "seed": search.seed, "pruner": search.pruner}
        shown |= {f"space.{key}": json.dumps(asdict(one), sort_keys=True) for key, one in search.space.items()}
        storage.write_json(folder / "sweep.json", {**known, "model": search.model, "params": shown})

    def run(self) -> int:
        """Run trials until there are enough; return 0, or the exit code of the stop.

        Raises:
            UserError: the first trials all failed.
            RetryableError: a training failed for a passing reason.
            LexmillError: a training failed by a bug.
        """
        code = EXIT_DONE
        with self._scratch.execution():
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
        write(self._where.folder, ended, self._scratch.points(self._about.name))
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
        name = self._about.name
        self._scratch.begin(str(trial.number), name, self._about.with_values(trial.values))
        looks, pruned = Looks(self._scratch.points(name)), False

        def watch() -> None:
            nonlocal pruned
            if stop.code is None and self._study.hopeless(trial, looks()) is not None:
                pruned = True
                stop.request(EXIT_TERMINATED)

        outcome = run_watched(self._about.stage, self._scratch.run, stop, self._display, watch)
        return outcome, pruned

    def _judge(self, trial: Trial, outcome: Outcome, pruned: bool) -> tuple[trials.State, float | None, int, str]:
        """Return state, loss, validations and message of a trial whose training is over."""
        if outcome.code == EXIT_DONE:
            looks = self._scratch.looks(self._about.name)
            last = self._study.hopeless(trial, looks)
            if last is not None:
                return "pruned", looks[last - 1], last, ""
            return "complete", self._scratch.value(self._about.name), len(looks), ""
        if pruned:
            last = self._study.judged(trial)
            return "pruned", Looks(self._scratch.points(self._about.name))()[last - 1], last, ""
        return "failed", None, self._study.judged(trial), why_failed(outcome)

    def _report(self, ended: trials.Ended, first: trials.Ended | None) -> None:
        loss = "" if ended.valid_loss is None else f"valid loss {ended.valid_loss:.5g}"
        what = {
            "complete": loss,
            "pruned": f"pruned at validation {ended.looks}, {loss}",
            "failed": f"failed: {ended.message}",
        }[ended.state]
        lead = "" if first is None else f"; best so far {first.valid_loss:.5g} (trial {first.number})"
        say(f"trial {ended.number}: {what}{lead}")
