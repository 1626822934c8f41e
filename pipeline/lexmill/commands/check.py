"""`lexmill check`: report every error that can be seen before hours are spent, all at once; then give advice.

Cost: a few seconds, mostly for DVC to read the outputs and for torch to start.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import LexmillError, RetryableError, UserError, UserErrors
from lexmill.base.shown import print_line, value_text
from lexmill.base.strict import nearest
from lexmill.commands.precision import advice
from lexmill.commands.starts import check_start
from lexmill.compute.execution import Execution, load_execution
from lexmill.compute.place import place_of
from lexmill.compute.settings import EVALUATION, TRAINING, TRANSLATION, group_of
from lexmill.corpora.fetching import pins
from lexmill.params import Params
from lexmill.params.corpora import Corpus, FileSource, RegisteredSource, Source
from lexmill.params.size import more_than

LEAST_FREE = 2 << 30  # bytes
_BYTES_A_PARAMETER = 8  # a float32 weight and its gradient; all but plain SGD need more
ON_DEVICE = (TRAINING, EVALUATION, TRANSLATION)  # groups of stages that compute on the devices of `accelerator`


def check() -> None:
    """Print what is in order, and advice.

    Raises:
        UserErrors: with every error.
    """
    from lexmill.stages.entry import preflight

    if errors := gather([preflight, _dag, _disk, _tracker, _folders, _device, _memory, *_file_checks()]):
        raise UserErrors(errors)
    choices = params.load()
    print_line("params.yaml, execution settings, DAG, files and disk are in order")
    settings = load_execution()
    device = advice(choices, settings.accelerator) if _computes_here(settings) else []
    for line in [*_differences(), *_changed_files(choices), *device]:
        print_line(line)


def gather(checks: list[Callable[[], object]]) -> list[str]:
    """Return the errors of all checks, each once, in order."""
    errors: dict[str, None] = {}
    for one in checks:
        try:
            one()
        except UserErrors as raised:
            errors |= dict.fromkeys(raised.errors)
        except LexmillError as error:
            errors[str(error)] = None
    return list(errors)


def _dag() -> None:
    try:
        params.load()
    except UserError:
        return  # reported already; DVC would repeat it in other words
    from lexmill.runner.graph import read

    try:
        read()
    except RetryableError as error:
        print_line(f"the DAG was not read: {error}")


def _disk() -> None:
    free = shutil.disk_usage(Path.cwd()).free
    if free < LEAST_FREE:
        raise UserError(f"only {free / 2**30:.1f} GiB are free on this disk; at least {LEAST_FREE >> 30} are needed")


def _tracker() -> None:
    from lexmill.tracking.store import check_address

    if (settings := _settings()) is not None:
        check_address(settings.tracking_uri)


def _folders() -> None:
    """Raise `UserErrors` with the folders of the execution settings in which nothing can be written."""
    if (settings := _settings()) is None:
        return
    named = {"checkpoint_root": settings.checkpoint_root}
    if any(place_of(stage, settings).gpus or place_of(stage, settings).cpus for stage in ON_DEVICE):
        named["lease_root"] = settings.lease_root
    if errors := [f"{key}: {why}" for key, path in named.items() if (why := unusable(Path(path)))]:
        raise UserErrors(errors)


def unusable(folder: Path) -> str:
    """Say why a folder cannot be made or written to; "" where it can."""
    for place in (folder, *folder.absolute().parents):
        try:
            place.lstat()
        except FileNotFoundError:
            continue
        except NotADirectoryError:
            continue  # below a file, which a parent will be
        except OSError as error:
            return f"{value_text(str(folder), 500)} cannot be used ({error.strerror}); name another folder"
        if not place.is_dir():
            return f"{value_text(str(place), 500)} is a file; name a folder"
        if not os.access(place, os.W_OK | os.X_OK):
            return f"{value_text(str(place), 500)} cannot be written to; name another folder, or change its permissions"
        return ""
    return ""


def _device() -> None:
    settings = _settings()
    if settings is None or settings.accelerator == "cpu" or not _computes_here(settings):
        return
    import torch

    cuda = settings.accelerator == "cuda"
    if not (torch.cuda.is_available() if cuda else torch.backends.mps.is_available()):
        raise UserError(f"accelerator: torch finds no '{settings.accelerator}' on this machine", "conf/execution")
    if cuda and settings.devices > (count := torch.cuda.device_count()):
        raise UserError(f"devices: {settings.devices}, but this machine has {count}", "conf/execution")


def _memory() -> None:
    """Raise `UserErrors` for the models whose weights and gradients alone are more than this machine's memory."""
    settings = _settings()
    if settings is None or settings.accelerator != "cpu" or not _computes_here(settings):
        return
    try:
        choices = params.load()
    except UserError:
        return  # reported already
    here = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * settings.nodes
    errors = []
    for name, model in choices.models.items():
        tokenizer = choices.tokenizers.get(model.data.tokenizer)
        count = more_than(here // _BYTES_A_PARAMETER, model, 0 if tokenizer is None else tokenizer.vocab_size)
        if count is not None:
            needed, there = (f"{size / 2**30:,.0f} GiB" for size in (count * _BYTES_A_PARAMETER, here))
            errors.append(
                f"models.{name}.shape: {count:,} parameters need {needed} for weights and gradients, and there are"
                f" {there}; take a smaller model, or a machine with more memory"
            )
    if errors:
        raise UserErrors(errors)


def _computes_here(settings: Execution) -> bool:
    """Return whether any training or evaluation runs on this machine."""
    groups = (TRAINING, EVALUATION)
    named = {key for key in settings.stages if group_of(key) in groups}
    return not all(place_of(stage, settings).elsewhere for stage in (*groups, *named))


def _settings() -> Execution | None:
    try:
        return load_execution()
    except UserError:
        return None  # reported already


def _file_checks() -> list[Callable[[], object]]:
    try:
        choices = params.load()
    except UserError:
        return []
    checks: list[Callable[[], object]] = []
    for group, entries in (("corpora", choices.corpora), ("checkpoints", choices.checkpoints)):
        for name, entry in entries.items():
            if isinstance(entry.source, FileSource):
                corpus = entry if isinstance(entry, Corpus) else None
                checks.append(partial(_files, f"{group}.{name}.source", entry.source, name, corpus))
    for group, named in pins.sources(choices).items():
        checks += [
            partial(_pin, group, name, source)
            for name, source in named.items()
            if not isinstance(source, RegisteredSource) and pins.needs_pin(source)
        ]
    starts = {name: Path(model.start) for name, model in choices.models.items()}
    checks += [partial(_recipe, name, path) for name, path in starts.items() if path.suffix in (".yaml", ".yml")]
    starting = {name: path for name, path in starts.items() if path.parent == layout.checkpoint("")}
    return [*checks, *(partial(check_start, choices, name, path) for name, path in starting.items())]


def _pin(group: str, name: str, source: Source) -> None:
    try:
        pins.pinned(source, group, name)
    except UserError as error:
        raise UserError(f"{group}.{name}.source: {error}", "params.yaml") from None


def _recipe(name: str, path: Path) -> None:
    if not path.is_file():
        known = [str(found) for found in Path("conf/initialization").glob("*.yaml")]
        raise UserError(f"models.{name}.start: there is no file '{path}'{nearest(str(path), known)}", "params.yaml")


def _files(where: str, source: FileSource, name: str, corpus: Corpus | None) -> None:
    """Raise `UserError` for files that are not there, and for what the prepare stage will say of small ones."""
    from lexmill.corpora.fetching.files import locate
    from lexmill.corpora.preparing.small import check_small

    try:
        located = locate(source, Path.cwd())
    except UserError as error:
        raise UserError(f"{where}: {error}", "params.yaml") from None
    if corpus is not None:
        check_small(name, corpus, located)


def _differences() -> list[str]:
    from lexmill.config.undoing import differences

    try:
        return differences()
    except UserError as error:
        return [f"conf/ was not compared: {error}"]


def _changed_files(choices: Params) -> list[str]:
    from lexmill.runner.sources import changed_files

    return [
        f"{stage}: {reason}; `lexmill run` fetches them again, plain `dvc repro` does not"
        for stage, reason in changed_files(choices, Path.cwd()).items()
    ]
