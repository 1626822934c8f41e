"""The whole DAG on small made packages: fetched from loopback, trained, scored, registered, used, and run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import Project

pytestmark = pytest.mark.e2e

MODELS = ("gpt", "lstm", "sentiment", "en_de")

PREDICT = """
import json, sys, mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
answers = {}
for name, texts in json.loads(sys.argv[1]).items():
    found = mlflow.pyfunc.load_model(f"models:/{name}@champion").predict(texts)
    answers[name] = found if isinstance(found, list) else found.to_dict("records")
print("ANSWER " + json.dumps(answers))
"""


def changed_stages(project: Project) -> set[str]:
    """What `dvc status` calls changed."""
    return set(json.loads(project.run("-m", "dvc", "status", "--json").stdout))


def test_every_stage_has_its_outputs(project: Project) -> None:
    lock = yaml.safe_load((project.root / "dvc.lock").read_text())
    assert {name.split("@")[0] for name in lock["stages"]} | {"import_tokenizer", "translate"} == set(
        yaml.safe_load((project.root / "dvc.yaml").read_text())["stages"]
    )
    for stage in lock["stages"].values():
        for output in stage.get("outs", []):
            assert (project.root / output["path"]).exists(), output["path"]
    assert changed_stages(project) == set()


def test_results_stand_beside_their_baselines(project: Project) -> None:
    rows = json.loads(project.lexmill("results", "--json"))
    assert json.dumps(rows).count("nan") == 0
    for model in MODELS:
        assert model in json.dumps(rows)
    page = (project.root / "reports" / "index.html").read_text(encoding="utf-8")
    assert all(model in page for model in MODELS)
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_metrics_and_plots_are_declared(project: Project) -> None:
    shown = project.run("-m", "dvc", "metrics", "show", "--json").stdout
    assert "bits_per_byte" in shown
    assert "chrf" in shown
    project.run("-m", "dvc", "metrics", "diff")
    project.run("-m", "dvc", "plots", "show", "--out", str(project.root.parent / "dvc-plots"))
    assert list((project.root / "reports" / "plots").rglob("*.png"))


def test_a_second_run_does_nothing_and_says_so(project: Project) -> None:
    said = project.run("-m", "dvc", "repro")
    assert "up to date" in said.stdout + said.stderr
    again = project.run("-m", "lexmill.cli", "run")
    assert "unchanged" in again.stdout + again.stderr


def test_what_came_out_left_git_clean_but_for_results(project: Project) -> None:
    left = [line.split(maxsplit=1)[1].strip('"') for line in project.git("status", "--porcelain").splitlines()]
    assert {name.split("/")[0] for name in left} <= {"dvc.lock", "code.json", "metrics", "reports"}


def test_a_fresh_process_loads_the_champions_by_name(project: Project) -> None:
    king = "The king sees the crown {name}"
    texts = {
        "gpt": ["The king", ""],
        "lstm": ["The king", ""],
        "sentiment": ["a wonderful film", ""],
        "en_de": [king, ""],
    }
    assert set(texts) == set(MODELS)
    answers = json.loads(project.run("-c", PREDICT, json.dumps(texts)).stdout.split("ANSWER ")[1])
    assert {name: len(answer) for name, answer in answers.items()} == dict.fromkeys(MODELS, 2)


def test_use_from_the_command_line_keeps_lines(project: Project) -> None:
    translated = project.lexmill("translate", stdin="The king sees the crown\n\nThe queen\n")
    assert translated.count("\n") == 3
    assert translated.split("\n")[1] == ""
    labels = project.lexmill("classify", "a wonderful film", "a dull film").splitlines()
    assert len(labels) == 2
    assert all(line.split("\t")[0] in ("positive", "negative") for line in labels)
    assert project.lexmill("generate", "The king", "--model", "lstm", "--max-tokens", "5").strip()


def test_one_changed_param_runs_only_what_depends_on_it(project: Project) -> None:
    params = project.root / "params.yaml"
    before = params.read_bytes()
    try:
        changed = yaml.safe_load(before)
        changed["models"]["en_de"]["evaluate"]["beam"]["beam_size"] = 3
        params.write_text(yaml.safe_dump(changed, sort_keys=False))
        # Of the other models nothing; the report and what follows from changed outputs is not known yet.
        assert changed_stages(project) == {"evaluate@en_de", "register@en_de", "report"}
    finally:
        params.write_bytes(before)


def test_a_second_clone_takes_everything_from_the_remote_and_registers_it(project: Project, tmp_path: Path) -> None:
    """As docs/running.md says: three ways to take what others made; publishing must follow a pull too."""
    import subprocess

    def say(*command: str) -> str:
        done = second.run("-m", "dvc", *command)
        return done.stdout + done.stderr

    clone = tmp_path / "clone"
    project.git("add", "-A")
    project.git("commit", "-q", "--allow-empty", "-m", "results")
    add = ("-m", "dvc", "remote", "add", "--local", "--force", "--default", "team", str(tmp_path / "remote"))
    project.run(*add)
    project.run("-m", "dvc", "push", "--quiet")
    subprocess.run(["git", "clone", "-q", str(project.root), str(clone)], check=True, env=project.environment)
    second = Project(clone, {})
    second.run(*add)

    # Nothing is to be run, so nothing is needed, and nothing is fetched.
    said = say("repro", "--pull", "--allow-missing")
    assert "up to date" in said
    assert "Running stage" not in said
    assert not (clone / "artifacts").exists()

    # What is to be run gets what it reads, and no more.
    params = clone / "params.yaml"
    before = params.read_bytes()
    changed = yaml.safe_load(before)
    changed["models"]["en_de"]["evaluate"]["beam"]["beam_size"] = 3
    params.write_text(yaml.safe_dump(changed, sort_keys=False))
    said = say("repro", "--pull", "--allow-missing", "evaluate@en_de")
    assert [line.split("'")[1] for line in said.splitlines() if line.startswith("Running stage")] == ["evaluate@en_de"]
    assert (clone / "artifacts" / "models" / "en_de").is_dir()
    assert not (clone / "artifacts" / "models" / "gpt").exists()
    assert not (clone / "artifacts" / "sources").exists()
    params.write_bytes(before)
    second.git("checkout", "-q", "--", "dvc.lock", "code.json", "metrics", "reports")

    # Without `--allow-missing` each stage's outputs are fetched, one stage after the other.
    said = say("repro", "--pull", "encode")
    assert "Running stage" not in said
    assert (clone / "artifacts" / "tokens").is_dir()

    say("pull")
    assert "up to date" in say("repro")
    assert changed_stages(second) == set()
    second.lexmill("run")
    answer = second.run("-c", PREDICT, json.dumps({"sentiment": ["a dull film"]})).stdout
    assert "ANSWER" in answer


def test_an_experiment_run_composes_and_runs_only_what_is_new(
    project: Project, tmp_path: Path, package_index: tuple[object, list[str]]
) -> None:
    """`dvc exp run -S group@key=choice`: DVC's own Hydra support composes params.yaml as `lexmill compose` does."""
    import shutil

    root = tmp_path / "a project"
    shutil.copytree(project.root, root, symlinks=True)
    copy = Project(root, {})
    choices = [
        *("experiment=smoke", *package_index[1]),
        *("+tokenizer@tokenizers.second=bpe_2k", "tokenizers.second.vocab_size=290"),
    ]
    before = yaml.safe_load((root / "dvc.lock").read_text())["stages"]
    said = copy.run("-m", "dvc", "exp", "run", *(f"--set-param={choice}" for choice in choices)).stdout
    ran = {line.split("'")[1] for line in said.splitlines() if line.startswith("Running stage")}
    # A package says which tokenizer it has, fetched or trained: DVC's templates cannot tell which of the two groups to
    # read, so all packages are made again, to the same bytes.
    assert ran == {"tokenizer@second", "report", *(f"register@{model}" for model in MODELS)}
    after = yaml.safe_load((root / "dvc.lock").read_text())["stages"]
    assert all(after[name] == stage for name, stage in before.items() if name not in ran)
    packages = [name for name in ran if name.startswith("register")]
    assert all(after[name]["outs"] == before[name]["outs"] for name in packages)

    by_dvc = (root / "params.yaml").read_bytes()
    copy.lexmill("compose", *choices)
    assert (root / "params.yaml").read_bytes() == by_dvc


def test_a_run_in_a_worktree_publishes_into_the_same_registry(project: Project, tmp_path: Path) -> None:
    """Beside a run that holds the workspace, with other params; the workspace itself stays as it is."""
    import shutil

    from lexmill.base import workspace

    root = tmp_path / "a project"
    shutil.copytree(project.root, root, symlinks=True)
    copy = Project(root, {})
    copy.git("add", "-A")
    copy.git("commit", "-q", "--allow-empty", "-m", "results")
    params = yaml.safe_load((root / "params.yaml").read_text())
    params["models"]["en_de"]["evaluate"]["beam"]["beam_size"] = 3
    (root / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False))
    lock = (root / "dvc.lock").read_bytes()
    with workspace.run_lock("another run", root):
        said = copy.run("-m", "lexmill.cli", "run", "--worktree", "wide", "--params").stderr
    assert "evaluate@en_de: done" in said
    assert "train" not in said, "the shared cache has it"
    assert "on the branch run/wide" in said
    versions = "from mlflow import MlflowClient as C; print(*(v.version for v in C(%r).search_model_versions(%r)))"
    found = copy.run("-c", versions % (f"sqlite:///{root}/mlflow.db", "name = 'en_de'")).stdout.split()
    assert sorted(found) == ["1", "2"]
    assert not (root / ".lexmill" / "worktrees" / "wide" / "mlflow.db").exists()
    assert (root / "dvc.lock").read_bytes() == lock
