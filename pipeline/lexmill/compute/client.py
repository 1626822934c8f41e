"""Call a cluster's own command (kubectl, sbatch ...) and turn its errors into ours."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from lexmill.base.errors import RetryableError, UserError

_SECONDS = 60


def ask(
    cluster: str,
    command: Sequence[str],
    silence: re.Pattern[str],
    absent: str,
    *,
    given: str = "",
    environment: Mapping[str, str] | None = None,
) -> str:
    """Return the output of a command.

    Args:
        cluster: its name in messages.
        silence: matches the command's output where the cluster does not answer.
        absent: what to do without the command, after "there is no sbatch here; ".
        given: its standard input.
        environment: its whole environment; None: ours.

    Raises:
        UserError: the cluster refuses, or the command is not installed.
        RetryableError: the cluster does not answer.
    """
    try:
        done = subprocess.run(
            command,
            env=environment,
            input=given,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise UserError(f"launcher {cluster.lower()}: there is no {command[0]} here; {absent}") from None
    except subprocess.TimeoutExpired:
        raise RetryableError(f"{cluster} does not answer ({command[0]})") from None
    if done.returncode == 0:
        return done.stdout
    answer = " ".join((done.stderr.strip() or done.stdout.strip()).split())
    if silence.search(answer):
        raise RetryableError(f"{cluster} does not answer ({answer})")
    raise UserError(f"{cluster} refuses it: {answer}")
