"""Write the stages of mixtures into dvc.yaml, where a list of dependencies cannot be templated.

They are at the end of dvc.yaml, below a marker. `lexmill compose` writes them; a run and `lexmill check` compare them
with params.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lexmill.base.errors import UserError
from lexmill.base.storage import write_text
from lexmill.base.yaml_file import read_yaml

MARK = "  # The mixtures of params.yaml, written by `lexmill compose`: all below this line is written anew.\n"

_STAGE = """\
  mix-{name}:
    cmd: python -m lexmill.stages.mix {name}
    desc: Put encoded corpora together, to draw from by weight.
    params:
      - mixtures.{name}
      - code.json:
          - mix
    deps:
{members}
    outs:
      - artifacts/tokens/{name}-{tokenizer}
"""


def with_mixtures(dag: str, mixtures: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of dvc.yaml with its mixture stages replaced by those of `mixtures` (as in params.yaml)."""
    stages = []
    for name, mixture in mixtures.items():
        tokenizer = mixture["tokenizer"]
        members = "\n".join(f"      - artifacts/tokens/{corpus}-{tokenizer}" for corpus in mixture["members"])
        stages.append(_STAGE.format(name=name, tokenizer=tokenizer, members=members))
    own = dag.partition(MARK)[0].rstrip("\n") + "\n"
    return own + ("\n" + MARK + "\n".join(stages) if stages else "")


def write_mixtures(workspace: str | Path = ".") -> bool:
    """Update dvc.yaml from a valid params.yaml; return whether it changed."""
    path = Path(workspace) / "dvc.yaml"
    mixtures = _mixtures(workspace)
    if not mixtures and not path.is_file():
        return False
    try:
        before = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}; the stages of mixtures belong in it", path) from None
    after = with_mixtures(before, mixtures)
    if after != before:
        write_text(path, after)
    return after != before


def check_mixtures(workspace: str | Path = ".") -> None:
    """Raise `UserError` where dvc.yaml has other mixtures than params.yaml; do nothing where a file is missing."""
    path = Path(workspace) / "dvc.yaml"
    if not path.is_file() or not (Path(workspace) / "params.yaml").is_file():
        return
    text = path.read_text(encoding="utf-8")
    mixtures = _mixtures(workspace)
    if (MARK in text or mixtures) and with_mixtures(text, mixtures) != text:
        raise UserError(
            "its stages of mixtures differ from params.yaml; `lexmill compose --keep` writes them (and leaves"
            " params.yaml as it is)",
            path,
        )


def _mixtures(workspace: str | Path) -> Mapping[str, Mapping[str, Any]]:
    data = read_yaml(Path(workspace) / "params.yaml")
    found = data.get("mixtures") if isinstance(data, Mapping) else None
    return found if isinstance(found, Mapping) else {}
