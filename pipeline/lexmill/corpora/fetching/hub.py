"""Data sets of the Hugging Face hub (or a local folder of that form), through `datasets.load_dataset`, as JSON lines.

One file a split, `<split>.jsonl`. Class labels are written as their names; names of nested columns are joined by a dot:
the two sides of a translation are `translation.de` and `translation.en`. `revision` is a commit, from the params or the
pin (`pins`), because a branch moves. Cost: memory O(1000 records); on disk the `datasets` cache besides the output.
"""

from __future__ import annotations

import datetime
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from lexmill.base import progress
from lexmill.base.cutting import cut
from lexmill.base.errors import RetryableError, UserError
from lexmill.corpora.fetching.connection import heard, passing
from lexmill.corpora.fetching.downloads import user_cache, writable
from lexmill.corpora.fetching.source_folder import DISK_FULL, SourceFolder
from lexmill.params.corpora import HubSource

if TYPE_CHECKING:
    from datasets import Dataset

_BATCH = 1000
_NETWORK = ("ConnectError", "ConnectTimeout", "ReadTimeout", "ReadError", "RemoteProtocolError")  # httpx's errors


def fetch_hub(source: HubSource, workspace: Path, target: SourceFolder) -> None:
    """Write the wanted splits.

    Raises:
        UserError: no such data set, subset, split or revision; a column of another kind than text, number or label.
        RetryableError: the hub cannot be reached.
    """
    if not source.splits:
        raise UserError("splits: empty; give at least one, such as train")
    local = workspace / source.dataset
    if source.dataset.startswith((".", "/")) and not local.is_dir():
        raise UserError(f"data set {source.dataset} cannot be loaded: there is no such folder; correct source.dataset")
    choose_cache(workspace)
    import datasets

    datasets.disable_progress_bars()
    progress.say(f"load data set {source.dataset}")
    for split in source.splits:
        try:
            with heard("datasets"), heard("huggingface_hub"):
                data = datasets.load_dataset(
                    str(local.resolve()) if local.is_dir() else source.dataset,
                    source.subset,
                    split=split,
                    revision=None if local.is_dir() else source.revision,
                )
        except Exception as error:
            raise explained(error, f"split {split!r} cannot be loaded") from error
        with tempfile.TemporaryFile(dir=target.folder) as spool:
            _write(data, spool, f"write {split}")
            spool.seek(0)
            target.add(file_of(split), spool)


def file_of(split: str) -> str:
    """Return the name of a split's file."""
    return re.sub(r"[^\w.-]", "_", split) + ".jsonl"


def choose_cache(workspace: Path) -> None:
    """Move the cache of `datasets` from the home, where that is read-only, to the workspace."""
    if "HF_HOME" not in os.environ and not writable(user_cache() / "huggingface"):
        os.environ["HF_HOME"] = str((workspace / ".lexmill" / "downloads" / "huggingface").resolve())


# ---------------------------------------------------------------- records


def _write(data: Dataset, out: IO[bytes], description: str) -> None:
    for column, feature in data.features.items():
        _check_feature(column, feature)
    with progress.bar(description, len(data)) as bar:
        for row in _rows(data):
            named = {key: _plain(value, data.features[key]) for key, value in row.items()}
            line = json.dumps(dict(_flat("", named)), ensure_ascii=False, allow_nan=False)
            # A lone surrogate cannot be written as UTF-8.
            out.write(line.encode("utf-8", "replace") + b"\n")
            bar.update(1)


def _rows(data: Dataset) -> Iterator[dict[str, Any]]:
    for batch in data.with_format(None).iter(batch_size=_BATCH):
        for values in zip(*batch.values(), strict=True):
            yield dict(zip(batch, values, strict=True))


def _check_feature(column: str, feature: Any) -> None:
    """Raise `UserError` for anything but text, numbers, booleans, dates and labels."""
    kind = type(feature).__name__
    if isinstance(feature, dict):
        for name, inner in feature.items():
            _check_feature(f"{column}.{name}", inner)
    elif isinstance(feature, list):
        _check_feature(column, feature[0])
    elif kind in ("List", "LargeList", "Sequence"):
        _check_feature(column, feature.feature)
    elif kind == "Value" and "binary" not in feature.dtype:
        return
    elif kind not in ("ClassLabel", "Translation", "TranslationVariableLanguages"):
        shown = f"{kind} of {feature.dtype}" if kind == "Value" else kind
        raise UserError(f"column {column!r} is of the kind {shown}; only text, numbers and labels can be read")


def _plain(value: Any, feature: Any) -> Any:
    """A value for JSON: labels by name (null for -1), dates as ISO text, NaN as null."""
    kind = type(feature).__name__
    if value is None:
        return None
    if kind == "ClassLabel":
        return feature.int2str(value) if value >= 0 else None
    if isinstance(value, dict):
        inner = feature if isinstance(feature, dict) else {}
        return {key: _plain(item, inner.get(key)) for key, item in value.items()}
    if isinstance(value, list):
        inside = feature[0] if isinstance(feature, list) else getattr(feature, "feature", None)
        return [_plain(item, inside) for item in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool) else str(value)


def _flat(prefix: str, row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{key}.", value)
        else:
            yield prefix + key, value


# ---------------------------------------------------------------- errors


def explained(error: Exception, what: str) -> Exception:
    """Turn a known error into a `UserError` that begins with `what` or a `RetryableError`; return others unchanged."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    for cause in chain:
        if isinstance(cause, OSError) and cause.errno in DISK_FULL:
            return cause
        if type(cause).__name__ == "OfflineModeIsEnabled" or "offline mode is enabled" in str(cause).lower():
            return RetryableError("the hub's offline mode is on and the data is not in its cache; unset HF_HUB_OFFLINE")
        status = getattr(getattr(cause, "response", None), "status_code", None)
        network = isinstance(cause, ConnectionError | TimeoutError) or type(cause).__name__ in _NETWORK
        if network or (isinstance(status, int) and passing(status)):
            return RetryableError(f"the hub cannot be reached ({_line(error)}); run it again later")
    if isinstance(error, DatasetsError | HfHubHTTPError | ValueError | FileNotFoundError | RuntimeError | TypeError):
        cause = error.__cause__ or error
        return UserError(f"{what}: {_line(cause)}; correct dataset, subset, revision or splits")
    return error


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return cut(text, 300)
