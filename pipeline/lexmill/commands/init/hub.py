"""A data set of the hub of `datasets` in place of files: `hub:NAME`, `hub:NAME:SUBSET`, `hub:NAME@REVISION`.

Its splits are fetched as the stage will fetch them, and read like any JSON lines.
"""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.strict import nearest
from lexmill.commands.init.reading import Reading
from lexmill.corpora.fetching.hub import choose_cache, explained, fetch_hub, file_of
from lexmill.corpora.fetching.pins import is_local
from lexmill.corpora.fetching.source_folder import SourceFolder
from lexmill.nightly import looking
from lexmill.params.corpora import HubSource

PREFIX = "hub:"
_VALID = ("validation", "valid", "dev", "val")


@contextmanager
def taken(
    files: Sequence[Path], reading: Reading, root: Path
) -> Iterator[tuple[HubSource | None, Sequence[Path], Reading]]:
    """Give the files and how they are read, unchanged; for a data set its source, and its splits as files for a while.

    Raises:
        UserError, RetryableError: as `source_of` and `fetched`.
    """
    if not any(str(file).startswith(PREFIX) for file in files):
        yield None, files, reading
        return
    source = source_of(files, root)
    state = root / ".lexmill"
    state.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=state, prefix="init-") as made:
        folder = Path(made).resolve()
        splits = fetched(source, reading, folder, root)
        try:
            yield splits
        except UserError as error:  # in the files of a moment ago: said of the data set
            errors = error.errors if isinstance(error, UserErrors) else [str(error)]
            for place in (folder, folder.relative_to(root.resolve())):
                errors = [one.replace(f"{place}/", f"{source.dataset}: ") for one in errors]
            raise UserErrors(errors) from None


def name_of(file: Path) -> str:
    """Return what the corpus of a data set is called."""
    return str(file).removeprefix(PREFIX).partition("@")[0].partition(":")[0].rpartition("/")[2]


def source_of(files: Sequence[Path], root: Path) -> HubSource:
    """Return the source that is named, at its present commit; a local folder has none.

    Raises:
        UserError: files beside it, or no such data set.
        RetryableError: the hub cannot be reached.
    """
    if len(files) > 1:
        raise UserError(f"{PREFIX}... names a whole data set; give it alone, and its splits as --valid and --test")
    name, _, revision = str(files[0]).removeprefix(PREFIX).partition("@")
    dataset, _, subset = name.partition(":")
    if not dataset:
        raise UserError(f"name the data set after {PREFIX}, as in {PREFIX}OWNER/NAME or {PREFIX}OWNER/NAME:SUBSET")
    source = HubSource("hub", dataset, subset or None, revision or None)
    if (root / dataset).is_dir():
        return source if is_local(source) else dataclasses.replace(source, dataset=f"./{dataset}")
    return dataclasses.replace(source, revision=looking.hub(source, root)["revision"])


def fetched(source: HubSource, reading: Reading, folder: Path, root: Path) -> tuple[HubSource, list[Path], Reading]:
    """Write the splits into a folder; return the source with them, and the files and reading that they amount to.

    Args:
        reading: `valid` and `test` are names of splits; without them those that the data set has.

    Raises:
        UserError: a split that is not there, none to train on, or one in two places.
        RetryableError: the hub cannot be reached.
    """
    known = _splits(source, root)
    valid = reading.valid or [name for name in _VALID if name in known and name not in reading.test][:1]
    test = reading.test or [name for name in known if re.match(r"test\b|test_", name) and name not in valid]
    wanted = ["train", *valid, *test]
    for name in wanted:
        if name not in known:
            raise UserError(f"{source.dataset} has no split {name!r}{nearest(name, known)}")
        if wanted.count(name) > 1:
            raise UserError(f"the split {name!r} is given twice; it is in one of train, --valid and --test")
    source = dataclasses.replace(source, splits=tuple(wanted))
    fetch_hub(source, root, SourceFolder(folder))

    def files(names: Sequence[str]) -> list[str]:
        return [str(folder / file_of(name)) for name in names]

    read = dataclasses.replace(reading, valid=files(valid), test=files(test))
    return source, [Path(file) for file in files(["train"])], read


def _splits(source: HubSource, root: Path) -> list[str]:
    choose_cache(root)
    import datasets

    local = (root / source.dataset).is_dir()
    try:
        names = datasets.get_dataset_split_names(
            str((root / source.dataset).resolve()) if local else source.dataset, source.subset, revision=source.revision
        )
    except Exception as error:
        raise explained(error, f"the splits of {source.dataset} cannot be read") from error
    return [str(name) for name in names]
