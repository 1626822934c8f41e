"""`dvc exp run` for real on a small DAG: choices, queues, sweeps, copies of the workspace; and what it undoes."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lexmill.config.compose import compose, write_params
from lexmill.params import parse

pytestmark = pytest.mark.e2e
ROOT = Path(__file__).parents[2]

# A stage that says where it is, and makes a metric of its choices.
STAGE = """
import json, os, sys
from pathlib import Path
import yaml
from lexmill.compute.execution import load_execution
model = yaml.safe_load(open("params.yaml"))["models"][sys.argv[1]]
settings = load_execution()
lr = model["recipe"]["optimizer"]["lr"]
Path("metrics").mkdir(exist_ok=True)
Path("metrics", sys.argv[1] + ".json").write_text(json.dumps({"loss": 10 * lr}))
Path(settings.checkpoint_root).mkdir(parents=True, exist_ok=True)
said = {"copy": os.getcwd(), "checkpoints": settings.checkpoint_root, "store": settings.tracking_uri, "lr": lr}
with open(os.environ["SAID"], "a") as stream:
    stream.write(json.dumps(said | {"name": os.environ.get("DVC_EXP_NAME"), "model": sys.argv[1]}) + "\\n")
"""
DAG = """\
stages:
  train:
    foreach: ${inputs}
    do:
      cmd: python train.py ${key}
      params:
        - models.${key}
      metrics:
        - metrics/${key}.json:
            cache: false
"""


class Small:
    """A project with the real conf/ and plugin, and a DAG of one kind of stage that takes no time."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a project"
        self.said = folder / "said.jsonl"
        shutil.copytree(ROOT / "conf", self.root / "conf")
        shutil.copytree(ROOT / "pipeline" / "dvc_plugins", self.root / "pipeline" / "dvc_plugins")
        (self.root / "train.py").write_text(STAGE)
        (self.root / "dvc.yaml").write_text(DAG)
        (self.root / ".gitignore").write_text("/.lexmill/\n__pycache__/\n")
        write_params((), self.root)
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("LEXMILL_", "DVC_"))}
        self.environment = {
            **kept,
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "pipeline"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "DVC_NO_ANALYTICS": "1",
            "DVC_SITE_CACHE_DIR": str(folder / "site"),
            "SAID": str(self.said),
            **{f"GIT_{who}_{what}": "x@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
        }
        self.run("git", "init", "-q")
        self.dvc("init", "-q")
        shutil.copy(ROOT / ".dvc" / "config", self.root / ".dvc" / "config")
        self.commit()

    def run(self, *command: str, code: int = 0) -> str:
        """All that a command prints, in order."""
        out, both = subprocess.PIPE, subprocess.STDOUT
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, stdout=out, stderr=both, text=True, check=False, timeout=300
        )
        assert done.returncode == code, done.stdout
        return done.stdout

    def dvc(self, *arguments: str, code: int = 0) -> str:
        return self.run(sys.executable, "-m", "dvc", *arguments, code=code)

    def commit(self) -> None:
        self.run("git", "add", "-A")
        self.run("git", "commit", "-q", "-m", "x")

    def committed(self, experiment: str, file: str) -> str:
        """A file as an experiment has it."""
        names = self.run("git", "for-each-ref", "--format=%(refname)", "refs/exps/").split()
        (ref,) = (name for name in names if name.endswith(f"/{experiment}"))
        return self.run("git", "show", f"{ref}:{file}")

    def stages(self) -> list[dict[str, object]]:
        """What the stages said since the last look."""
        lines = self.said.read_text().splitlines() if self.said.exists() else []
        self.said.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def shown(self) -> dict[str, dict[str, object]]:
        """The table of experiments: name -> key of params.yaml or metric -> value."""
        rows = list(csv_rows(self.dvc("exp", "show", "--csv")))
        return {row["Experiment"]: row for row in rows if row["Experiment"]}


def csv_rows(text: str) -> list[dict[str, object]]:
    start = text.index("Experiment,")
    return list(csv.DictReader(text[start:].splitlines()))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    made = Small(tmp_path_factory.mktemp("exp"))
    made.dvc("repro", "-q")
    made.commit()
    assert len(made.stages()) == 4
    return made


def test_a_choice_runs_what_it_changes_and_says_what_it_undoes(small: Small) -> None:
    write_params(["models.gpt.recipe.length=77 steps"], small.root)
    edited = (small.root / "params.yaml").read_text()
    said = small.dvc("exp", "run", "-n", "faster", "-S", "models.lstm.recipe.optimizer.lr=0.02")
    message = said.index("models.gpt.recipe.length: 77 steps -> 780 steps")
    assert message < said.index("Running stage")
    assert """-S 'models.gpt.recipe.length="77 steps"'""" in said
    kept = re.search(r"kept as (\S+);", said)
    assert kept is not None
    assert (small.root / kept[1]).read_text() == edited
    assert [(one["name"], one["lr"]) for one in small.stages()] == [("faster", 0.02)]
    small.run("git", "checkout", "-q", ".")
    assert small.run("git", "status", "--porcelain") == ""


def test_an_error_is_reported_before_anything_runs(small: Small) -> None:
    said = small.dvc("exp", "run", "-S", "models.gpt.recipe.clip_norm=-1", code=255)
    assert "nothing was run" in said
    assert "models.gpt.recipe.clip_norm: -1" in said
    assert "Traceback" not in said
    sweep = ("-S", "models.gpt.recipe.optimizer.lr=1e-3,3e-3", "-S", "models.gpt.recipe.clip_norm=1,-2")
    said = small.dvc("exp", "run", "--queue", *sweep, code=255)
    assert "models.gpt.recipe.clip_norm: -2" in said
    assert "Queued" not in said
    assert small.stages() == []
    assert small.run("git", "status", "--porcelain") == ""


def test_a_copy_of_the_workspace_keeps_checkpoints_and_store_at_home(small: Small) -> None:
    small.dvc("exp", "run", "--temp", "-n", "aside", "-S", "models.gpt.recipe.optimizer.lr=0.03")
    (one,) = small.stages()
    assert one["copy"] != str(small.root)
    assert one["checkpoints"] == str(small.root / ".lexmill" / "checkpoints")
    assert one["store"] == f"sqlite:///{small.root}/mlflow.db"
    assert small.run("git", "status", "--porcelain") == ""


def test_a_sweep_is_queued_run_and_shown(small: Small) -> None:
    sweep = "models.gpt.recipe.optimizer.lr=1e-3,3e-3"
    assert "can't be used without `--queue`" in small.dvc("exp", "run", "-S", sweep, code=255)
    small.dvc("exp", "run", "--queue", "-n", "sweep", "-S", sweep)
    assert small.stages() == []
    small.dvc("exp", "run", "--run-all")
    assert sorted(str(one["name"]) for one in small.stages()) == ["sweep-1", "sweep-2"]
    shown = small.shown()
    for name, lr in (("sweep-1", 0.001), ("sweep-2", 0.003)):
        assert float(str(shown[name]["models.gpt.recipe.optimizer.lr"])) == lr
        losses = [value for key, value in shown[name].items() if key.endswith("gpt.json:loss")]
        assert losses == [str(10 * lr)], shown[name]


def test_a_mixture_of_an_experiment_has_its_stage(small: Small) -> None:
    choices = (
        "+corpus@corpora.poems=shakespeare",
        "+mixtures.both={tokenizer: shakespeare_bpe, members: {shakespeare: 0.8, poems: 0.2}}",
    )
    said = small.dvc("exp", "run", "--temp", "-n", "mixed", *(f"--set-param={one}" for one in choices), "train")
    assert "dvc.yaml: the stages of mixtures follow these choices" in said
    assert "mix-both:" in small.committed("mixed", "dvc.yaml")
    assert "poems:" in small.committed("mixed", "sources.lock.yaml")
    encodings = yaml.safe_load(small.committed("mixed", "params.yaml"))["encodings"]
    assert encodings["poems-shakespeare_bpe"] == {"corpus": "poems", "tokenizer": "shakespeare_bpe"}
    assert "mix-both:" not in (small.root / "dvc.yaml").read_text()
    assert "poems:" not in (small.root / "sources.lock.yaml").read_text()


def test_one_more_model_is_one_choice_and_one_more_stage(small: Small) -> None:
    """What follows from the models, DVC writes as `lexmill compose` does."""
    choice = "+model@models.modern=llama_tiny"
    small.dvc("exp", "run", "--temp", "-n", "modern", "-S", choice)
    (one,) = small.stages()
    assert (one["name"], one["model"]) == ("modern", "modern")
    text = small.committed("modern", "params.yaml")
    assert yaml.safe_load(text) == yaml.safe_load(compose([choice], small.root))
    params = parse(yaml.safe_load(text))
    assert params.inputs["modern"].family == "llama"
    assert list(params.baselines_of(params.models["modern"])) == ["language_model-shakespeare-shakespeare_bpe"]


def test_a_choice_brings_its_checkpoint_and_what_follows(small: Small) -> None:
    small.dvc("exp", "run", "--temp", "-n", "pretrained", "-S", "model@models.gpt=smollm2")
    (one,) = small.stages()
    assert one["model"] == "gpt"
    written = yaml.safe_load(small.committed("pretrained", "params.yaml"))
    assert set(written["checkpoints"]) == {"minilm", "smollm2"}
    assert written["imported_tokenizers"]["smollm2"] == {"checkpoint": "smollm2"}
    assert written["encodings"]["shakespeare-smollm2"] == {"corpus": "shakespeare", "tokenizer": "smollm2"}
    assert written["inputs"]["gpt"]["start"] == "artifacts/checkpoints/smollm2"
    assert "smollm2:" in small.committed("pretrained", "sources.lock.yaml")


def test_models_that_share_baselines_are_refused_before_anything_runs(small: Small) -> None:
    said = small.dvc("exp", "run", "-S", "models.lstm.evaluate.ngrams.order=4", code=255)
    assert "nothing was run" in said
    assert "models.lstm.evaluate: its baselines are those of 'gpt', but order differs; give both the same" in said
    assert small.stages() == []
