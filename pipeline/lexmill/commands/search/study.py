"""Trials drawn and judged by Optuna, kept in a file: after a kill the same trial goes on, and the draws are the same.

Draws come from a tree-structured Parzen estimator (Bergstra et al. 2011) whose generator is seeded anew for each trial
from the search's seed and the trial's number. So a search that was stopped and went on draws what an undisturbed one
would: each trial is a function of the seed, its number and the trials before it. Looks at valid are counted, not steps:
trials of other lengths are compared look by look. Less is better.
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
    """A trial that has begun: its number from 0, its values, and the looks already judged."""

    number: int
    values: dict[str, Value]
    handle: Any


class Study:
    """The trials of one search.

    Args:
        search: what is searched.
        database: the SQLite file, made if need be.
        name: of the study in it.
    """

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
        """The trial that was interrupted, or else a new one; None where all `wanted` ones have ended."""
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
        """The number of looks (from 1) after which a trial should end; None where it should go on.

        Args:
            trial: that runs, or has ended by itself.
            looks: its losses on valid so far, in order; those told before are passed over.
        """
        known = self._frozen(trial).intermediate_values
        for number, loss in enumerate(looks):
            if number not in known:
                trial.handle.report(loss, number)
            elif number + 1 in known:
                continue  # it went on after this one
            if trial.handle.should_prune():
                return number + 1
        return None

    def judged(self, trial: Trial) -> int:
        """How many looks of a trial were judged."""
        return len(self._frozen(trial).intermediate_values)

    def end(self, trial: Trial, state: State, value: float | None) -> None:
        """The trial is over; `value` is what it reached (of one that was ended early: at its last look)."""
        import optuna

        states = optuna.trial.TrialState
        told = {"complete": states.COMPLETE, "pruned": states.PRUNED, "failed": states.FAIL}[state]
        self._study.tell(trial.number, value if state == "complete" else None, told)

    def _frozen(self, trial: Trial) -> optuna.trial.FrozenTrial:
        return self._study.get_trials(deepcopy=False)[trial.number]


def _pruner(search: Search) -> optuna.pruners.BasePruner:
    import optuna

    if search.pruner == "median":  # the first look comes in the warm-up of the learning rate: it ends none
        return optuna.pruners.MedianPruner(n_startup_trials=search.startup, n_warmup_steps=1)
    if search.pruner == "hyperband":  # Li et al. 2018
        return optuna.pruners.HyperbandPruner()
    return optuna.pruners.NopPruner()
