"""Write the digest of each stage's code.

Reads   pipeline/lexmill/
Writes  code.json: a digest of the import closure of each stage, for each kind and family that it depends on
Identity: the package's code; comments, docstrings and layout do not count.
Cost: about two seconds.
"""

from __future__ import annotations

from lexmill.base import code_history, layout, storage
from lexmill.base.code import Code, digests
from lexmill.stages.entry import run_stage


def main(_key: str = "") -> None:
    """Write code.json of the workspace in the present folder."""
    closures = Code().closures()
    code_history.remember(closures)
    storage.write_json(layout.CODE, digests(closures))


if __name__ == "__main__":
    run_stage(main, keyed=False, configured=False)
