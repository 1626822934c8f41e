"""Push outputs to the DVC remote, so that other clones can pull what a commit names.

The outputs of the commits are pushed, whatever is in the work tree, except those already there. This runs in its own
process, `python -m lexmill.runner.sharing ROOT COMMIT...`, since the clients of remotes (S3, SSH, HTTP ...) keep
threads and event loops and raise their own exceptions.
Cost: a second to start DVC, a check of the remote, then the upload; no local copies.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from lexmill.base.errors import RetryableError, UserError
from lexmill.base.quiet import quieten
from lexmill.base.shown import print_line
from lexmill.base.strict import nearest

_S3_SECONDS = 6  # for an answer, where the remote's configuration sets no other; two tries and the start make 15
_REFUSED = re.compile(
    r"\((401|403|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken)\)|Forbidden|locate credentials"
)
_MISSING = "do not exist neither locally nor on remote"  # DVC's words, in a warning


def default_remote(root: str | Path = ".") -> str | None:
    """Return the name of DVC's default remote; None without a default or a DVC project.

    Raises:
        UserError: DVC's configuration is wrong, or commits cannot be pushed to the remote.
    """
    quieten()
    from dvc.config import ConfigError
    from dvc.exceptions import NotDvcRepoError
    from dvc.repo import Repo

    try:
        with Repo(str(root)) as repo:
            name, remotes = repo.config["core"].get("remote"), repo.config["remote"]
    except NotDvcRepoError:
        return None
    except ConfigError as error:
        raise UserError(f"DVC's configuration cannot be read: {error}") from None
    if name is None:
        return None
    if name not in remotes:
        raise UserError(f"DVC's default remote '{name}' is not defined{nearest(name, remotes)}", ".dvc/config")
    if remotes[name].get("version_aware") or remotes[name].get("worktree"):
        raise UserError(
            f"DVC's remote '{name}' keeps versions by itself, and to such a one DVC pushes a work tree only, no commit;"
            " make a plain one the default",
            ".dvc/config",
        )
    return str(name)


def push_outputs(root: str | Path, commits: Sequence[str]) -> bool:
    """Push the outputs in dvc.lock of these commits to the default remote.

    Returns:
        Whether the remote has all of them now; False where the local cache lacks some too.

    Raises:
        RetryableError: the remote does not answer or accept them, or another DVC process is at work.
        UserError: the remote refuses us.
    """
    done = subprocess.run(
        [sys.executable, "-m", "lexmill.runner.sharing", str(root), *commits],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.strip().split("\n")[-1] or f"ended with {done.returncode}"
        said = re.sub(r"^(\w+\.)+\w+: ", "", said)  # without the name of a client's own exception
        if _REFUSED.search(said):
            raise UserError(f"it refuses us ({said}); set its credentials, as AWS_ACCESS_KEY_ID, in the environment")
        raise RetryableError(said)
    return done.stdout.strip() != _MISSING


class _Heard(logging.Handler):
    """Collects what DVC logs instead of raising: why the first file failed, and that files are missing."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.why, self.missing = "", False

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None and not self.why:
            self.why = f": {record.exc_info[1]}"
        self.missing |= _MISSING in record.getMessage()


def _hurry_s3() -> None:
    """Let the client of S3 try twice; by itself it tries 25 times."""
    os.environ.setdefault("AWS_MAX_ATTEMPTS", "2")
    if find_spec("s3fs") is not None:
        from s3fs import S3FileSystem

        S3FileSystem.retries = 1


def _push(root: str, *commits: str) -> None:
    from dvc.exceptions import UploadError
    from dvc.lock import LockError
    from dvc.repo import Repo

    from lexmill.runner.mending import forget_collections

    heard = _Heard()
    logging.getLogger().addHandler(heard)
    _hurry_s3()
    # DVC uses the commit's own configuration, and where that has no remote silently pushes nothing.
    with Repo(root) as repo:
        name, remotes = repo.config["core"]["remote"], repo.config["remote"]
    remote = dict(remotes[name])
    if remote["url"].startswith("s3://"):
        remote = {"connect_timeout": _S3_SECONDS, "read_timeout": _S3_SECONDS, **remote}
    with Repo(root, config={"core": {"remote": name}, "remote": {name: remote}}) as repo:
        try:
            forget_collections(repo)
            repo.push(revs=list(commits), workspace=False)
        except UploadError as error:
            raise SystemExit(f"{error}{heard.why}") from None
        except LockError:
            raise SystemExit("another DVC process is at work here") from None
    if heard.missing:
        print_line(_MISSING)


if __name__ == "__main__":
    quieten()
    _push(*sys.argv[1:])
