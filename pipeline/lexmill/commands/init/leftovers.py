"""Set aside what belongs to models, corpora and tokenizers that an `init` has replaced: their results and searches.

`dvc metrics diff`, the report and `lexmill search` would go on to speak of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

from lexmill.base.workspace import HOME
from lexmill.base.yaml_file import read_yaml
from lexmill.report.graph import outputs

_RESULTS = ("metrics", "reports/plots", "reports/curves", "reports/samples")
_SEARCHES = "conf/search"


def set_aside(root: Path) -> tuple[int, Path] | None:
    """Move what no stage of the present dvc.yaml and params.yaml makes, and searches for models that are not there.

    Returns:
        How many files, and the folder that has them under their old paths; None where there is nothing.
    """
    if not (root / "dvc.yaml").is_file():
        return None
    found = [path.relative_to(root) for path in _of_others(root)]
    if not found:
        return None
    target = next(path for n in itertools.count(1) if not (path := root / HOME / f"set-aside-{n}").exists())
    for path in found:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).rename(target / path)
        for folder in (root / path).parents:
            if folder == root or any(folder.iterdir()):
                break
            folder.rmdir()
    return len(found), target.relative_to(root)


def _of_others(root: Path) -> Iterator[Path]:
    params = read_yaml(root / "params.yaml")
    made = outputs(read_yaml(root / "dvc.yaml"), params)
    for top in _RESULTS:
        for path in sorted((root / top).rglob("*")):
            own = path.relative_to(root)
            if path.is_file() and not any(str(one) in made for one in (own, *own.parents)):
                yield path
    for path in sorted((root / _SEARCHES).glob("*.yaml")):
        search = read_yaml(path)
        if isinstance(search, dict) and search.get("model") not in params["models"]:
            yield path
