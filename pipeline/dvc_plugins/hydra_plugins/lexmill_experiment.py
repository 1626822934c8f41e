"""Called by Hydra when `dvc exp run` composes params.yaml, before DVC writes it (.dvc/config: hydra.plugins_path).

DVC has no hook before an experiment, but it loads Hydra's plugins. This one adds no search path: it lets lexmill report
what the run undoes. DVC passes its `-S` choices to Hydra alone, so they are parsed from the command line again. All
combinations of a sweep are checked before the first is composed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class LexmillExperiment(SearchPathPlugin):
    """Report, once in a process, what an experiment's composition of params.yaml undoes."""

    reported = False

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Add nothing; raise DVC's own error where the choices are wrong, so that nothing runs."""
        from lexmill.config.compose import register

        register()  # DVC resolves what conf/ derives from the models
        if LexmillExperiment.reported:  # also while lexmill itself composes to compare
            return
        LexmillExperiment.reported = True
        from dvc.exceptions import DvcException

        from lexmill.base.errors import LexmillError
        from lexmill.base.shown import print_line
        from lexmill.config.undoing import before_experiment

        root = Path(__file__).resolve().parents[3]
        try:
            before_experiment(combinations(choices(sys.argv)), root, lambda text: print_line(text, sys.stderr))
        except LexmillError as error:
            raise DvcException(f"nothing was run: {error}") from None


def choices(command: list[str]) -> Iterator[str]:
    """Yield the overrides of params.yaml in a `dvc exp run` command line."""
    words = iter(command[1:])
    for word in words:
        if word in ("-S", "--set-param"):
            value = next(words, "")
        elif word.startswith("--set-param="):
            value = word.partition("=")[2]
        elif word.startswith("-S"):
            value = word[2:]
        else:
            continue
        file, mark, rest = value.partition(":")
        if mark and "=" not in file:
            if Path(file).name != "params.yaml":
                continue  # another file, which is not composed
            value = rest
        yield value


def combinations(overrides: Iterator[str]) -> list[list[str]]:
    """Return the overrides of each experiment; for a sweep (`a.b=1,2`) every combination, in DVC's order."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    given = list(overrides)
    try:
        parsed = OverridesParser.create().parse_overrides(given)
        return [list(one) for one in BasicSweeper.split_arguments(parsed, None)[0]]
    except HydraException:
        return [given]  # no override at all: composing reports it
