"""A run in which nothing changed: `lexmill run` beside `dvc repro`.

Both sides: the command as typed, in a made workspace of small stages, each with a script, a param and the output of
another stage, all of them up to date. Wall seconds from the command's start to its end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.measure import ROOT, Comparison, in_turn

_SCRIPT = "import sys\nfrom pathlib import Path\nPath(sys.argv[1]).write_text('made\\n')\n"


def make_project(root: Path, stages: int) -> dict[str, str]:
    """Write the workspace and bring it up to date; gives the environment for its commands."""
    environment = os.environ | {
        "DVC_NO_ANALYTICS": "1",
        "CI": "1",  # no look for a newer DVC
        **{name: str(root.parent / name) for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR")},
    }
    root.mkdir()
    for name in ("params.yaml", "conf"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, root / name)
    (root / "choices.yaml").write_text(yaml.safe_dump({f"stage{i}": i for i in range(stages)}), encoding="utf-8")
    entries = {}
    for i in range(stages):
        (root / f"stage{i}.py").write_text(_SCRIPT, encoding="utf-8")
        before = [f"stage{i - 3}.out"] if i >= 3 else []  # three chains
        entries[f"stage{i}"] = {
            "cmd": f'"{sys.executable}" stage{i}.py stage{i}.out',
            "deps": [f"stage{i}.py", *before],
            "params": [{"choices.yaml": [f"stage{i}"]}],
            "outs": [f"stage{i}.out"],
        }
    (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": entries}, sort_keys=False), encoding="utf-8")
    for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(command, cwd=root, env=environment, check=True)
    subprocess.run([sys.executable, "-m", "dvc", "repro", "-q"], cwd=root, env=environment, check=True)
    return environment


def compare(repetitions: int, stages: int = 25) -> list[Comparison]:
    """Measure both commands in a workspace of so many stages."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        environment = make_project(root, stages)

        def seconds(*command: str) -> dict[str, float]:
            begun = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", *command], cwd=root, env=environment, capture_output=True, text=True, check=True
            )
            took = time.perf_counter() - begun
            said = done.stdout + done.stderr
            if "nothing to run" not in said and "up to date" not in said:
                raise RuntimeError(f"{command} found something to run:\n{said}")
            return {"seconds": took}

        ours, peer = in_turn(lambda: seconds("lexmill.cli", "run"), lambda: seconds("dvc", "repro"), repetitions)
    what = f"{stages} stages, nothing changed"
    return [Comparison("noop", what, "s", ("lexmill run", ours["seconds"]), ("dvc repro", peer["seconds"]))]
