"""The stages of mixtures in dvc.yaml: a list of dependencies cannot be templated there, so they are written out.

They stand at the end of dvc.yaml, below a line that marks them. `lexmill compose` writes them; before a run, and in
`lexmill check`, they are compared with params.yaml.
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
    """The text of dvc.yaml with the stages of these mixtures (as in params.yaml) in the place of those it has."""
    stages = []
    for name, mixture in mixtures.items():
        tokenizer = mixture["tokenizer"]
        members = "\n".join(f"      - artifacts/tokens/{corpus}-{tokenizer}" for corpus in mixture["members"])
        stages.append(_STAGE.format(name=name, tokenizer=tokenizer, members=members))
    own = dag.partition(MARK)[0].rstrip("\n") + "\n"
    return own + ("\n" + MARK + "\n".join(stages) if stages else "")


def write_mixtures(workspace: str | Path = ".") -> bool:
    """Bring dvc.yaml into agreement with a params.yaml that has no fault; whether it had to be changed."""
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
    """Raises `UserError` where dvc.yaml has other mixtures than params.yaml; says nothing where one is missing."""
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
