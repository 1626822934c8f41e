"""What prepare will say of small files of the user, before anything is fetched.

Cost: what `prepare` costs, for at most `MOST_BYTES`: a fraction of a second.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lexmill.base import storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.corpora.preparing.prepare import prepare
from lexmill.params.corpora import Corpus

MOST_BYTES = 1 << 20


def check_small(name: str, corpus: Corpus, located: Mapping[str, Path]) -> None:
    """Prepare a corpus of small files for nothing; do nothing for larger or compressed ones.

    Args:
        name, corpus: as for `prepare`.
        located: its files, by the names that fetch would give them.

    Raises:
        UserError, UserErrors: as `prepare`.
    """
    compressed = any(path.suffix in (".gz", ".zst") for path in located.values())
    size = sum(path.stat().st_size for path in located.values())
    if corpus.deduplicate.near or compressed or size > MOST_BYTES:
        return
    with linked(located) as source, tempfile.TemporaryDirectory() as scratch:
        prepare(name, corpus, source, Path(scratch) / "corpus")


@contextmanager
def linked(located: Mapping[str, Path]) -> Iterator[Path]:
    """Yield a source folder as fetch would make it, with links instead of copies; errors name the real files."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve()
        for name, path in located.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(path.resolve())
        listed = [{"path": name, "bytes": path.stat().st_size} for name, path in located.items()]
        storage.write_json(folder / "manifest.json", {"files": listed})
        try:
            yield folder
        except UserErrors as raised:
            raise UserErrors([_with_real_paths(error, folder, located) for error in raised.errors]) from None
        except UserError as error:
            raise UserError(_with_real_paths(str(error), folder, located)) from None


def _with_real_paths(error: str, folder: Path, located: Mapping[str, Path]) -> str:
    for name, path in located.items():
        error = error.replace(str(folder / name), str(path))
    return error
