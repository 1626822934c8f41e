"""torchrun with an exit code that says why the group of processes ended: its own is always 1.

    python -m lexmill.compute.group --standalone --nproc-per-node=2 -m lexmill.stages.train gpt

0: all are done. 75: one was killed from outside (SIGKILL, by hand or out of memory), or itself asked for another try.
2: one found a user's error. 143, 130: the group was asked to end. 1: one met a bug or crashed, whatever the others
report.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import parse_args, run

from lexmill.base.errors import EXIT_BUG, EXIT_DONE, EXIT_INTERRUPTED, EXIT_RETRY, EXIT_TERMINATED, EXIT_USER

# When one fails, torchrun kills the others half a minute later: those were not lost.
_NOT_BY_TORCHRUN = 15
# Exit codes of processes that lost another one, or were asked to end for it.
_CONSEQUENCES = (EXIT_RETRY, EXIT_TERMINATED, EXIT_INTERRUPTED, -signal.SIGTERM, -signal.SIGKILL)


def code_of(failures: Sequence[ProcessFailure]) -> int:
    """Return the exit code of a group from its processes' failures, in torchrun's order."""
    begun = min(one.timestamp for one in failures)
    if any(one.exitcode == -signal.SIGKILL and one.timestamp - begun < _NOT_BY_TORCHRUN for one in failures):
        return EXIT_RETRY
    codes = [one.exitcode for one in failures]
    own = {code for code in codes if code not in _CONSEQUENCES}
    if own:
        return EXIT_USER if own == {EXIT_USER} else EXIT_BUG
    return next((code for code in (EXIT_RETRY, EXIT_TERMINATED, EXIT_INTERRUPTED) if code in codes), EXIT_BUG)


def main(words: Sequence[str]) -> int:
    """Start the processes, wait for them, return the exit code."""
    try:
        run(parse_args(list(words)))
    except ChildFailedError as error:
        return code_of(list(error.failures.values()))
    except SignalException as error:
        return 128 + int(error.sigval)
    return EXIT_DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
