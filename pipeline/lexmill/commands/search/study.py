"""Trials drawn and judged by Optuna and kept in a file, so that a killed search resumes with the same draws.

Draws come from a tree-structured Parzen estimator (Bergstra et al. 2011), seeded for each trial by the search's seed
and the trial's number: a resumed search draws what an undisturbed one would. Trials of different lengths are compared
validation by validation, not step by step. Lower is better.
Cost: Optuna's import, about a second; a few milliseconds a trial.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.storage import sha256_bytes
from lexmill.commands.search.space import Search, Value
from lexmill.commands.search.trials import State

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Trial:
    """A trial that has begun: its number from 0, its values, and Optuna's handle."""

    number: int
    values: dict[str, Value]
    handle: Any


class Study:
    """The trials of one search, in the study `name` of a SQLite file that is created if it is missing."""

    def __init__(self, search: Search, database: Path, name: str) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._search = search
        self._study = optuna.create_study(
            storage=f"sqlite:///{database}",
            study_name=name,
            direction="minimize",
            load_if_exists=True,
            pruner=_pruner(search),
        )

    def next(self, wanted: int) -> Trial | None:
        """Return the interrupted trial, or else a new one; None if all `wanted` ones have ended."""
        import optuna

        trials = self._study.get_trials(deepcopy=False)
        open_ones = [trial for trial in trials if not trial.state.is_finished()]
        number = open_ones[0].number if open_ones else len(trials)
        if number >= wanted:
            return None
        seed = int(sha256_bytes(f"{self._search.seed}/{number}".encode())[:8], 16)
        self._study.sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=self._search.startup)
        handle = optuna.trial.Trial(self._study, open_ones[0]._trial_id) if open_ones else self._study.ask()
        values = {key: dimension.draw(handle, key) for key, dimension in self._search.space.items()}
        return Trial(number, values, handle)

    def hopeless(self, trial: Trial, looks: list[float]) -> int | None:
        """Return the number of validations (from 1) after which a trial should be pruned; None if it should not.

        Args:
            trial: running, or ended by itself.
            looks: its validation losses so far, in order; those reported before are skipped.
        """
        known = self._frozen(trial).intermediate_values
        for number, loss in enumerate(looks):
            if number not in known:
                trial.handle.report(loss, number)
            elif number + 1 in known:
                continue  # it was not pruned after this one
            if trial.handle.should_prune():
                return number + 1
        return None

    def judged(self, trial: Trial) -> int:
        """Return the number of judged validations of a trial."""
        return len(self._frozen(trial).intermediate_values)

    def end(self, trial: Trial, state: State, value: float | None) -> None:
        """Record the end of a trial with the loss that it reached (a pruned one's: at its last validation)."""
        import optuna

        states = optuna.trial.TrialState
        ended = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[state]
        self._study.tell(trial.number, value if state == "complete" else None, ended)

    def _frozen(self, trial: Trial) -> optuna.trial.FrozenTrial:
        return self._study.get_trials(deepcopy=False)[trial.number]


def _pruner(search: Search) -> optuna.pruners.BasePruner:
    import optuna

    if search.pruner == "median":  # the first validation is in the learning rate's warm-up and prunes none
        return optuna.pruners.MedianPruner(n_startup_trials=search.startup, n_warmup_steps=1)
    if search.pruner == "hyperband":  # Li et al. 2018
        return optuna.pruners.HyperbandPruner()
    return optuna.pruners.NopPruner()
