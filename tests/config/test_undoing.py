"""What `dvc exp run` undoes is said before it does, whatever it is, and how to keep it is true."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from lexmill.base.errors import UserErrors
from lexmill.config.compose import compose, write_params
from lexmill.config.mixtures import MARK
from lexmill.config.undoing import before_experiment, differences, keeping, undone

ROOT = Path(__file__).parents[2]
BOTH = (
    "+corpus@corpora.poems=text_files",
    "+mixtures.both={tokenizer: shakespeare_bpe, members: {shakespeare: 0.8, poems: 0.2}}",
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    shutil.copy(ROOT / "dvc.yaml", tmp_path)
    write_params((), tmp_path)
    return tmp_path


def keys(lines: list[str]) -> list[str]:
    return [line.partition(":")[0] for line in lines]


def test_nothing_is_undone_of_the_defaults(project: Path) -> None:
    assert undone((), project) == []
    assert undone(["models.gpt.recipe.optimizer.lr=0.5", "experiment=full"], project) == []
    assert differences(project) == []
    assert keeping(project) == []


def test_what_was_edited_or_composed_is_undone_unless_asked_for(project: Path) -> None:
    write_params(["models.gpt.recipe.length=77 steps", "models.gpt.recipe.optimizer.lr=0.5"], project)
    both = ["models.gpt.recipe.length", "models.gpt.recipe.optimizer.lr"]
    assert keys(undone((), project)) == both
    assert undone((), project)[0] == "models.gpt.recipe.length: 77 steps -> 780 steps"
    assert keys(undone(["models.gpt.recipe.optimizer.lr=0.4"], project)) == both[:1]
    assert undone(["model@models.gpt=gpt_small"], project) == []
    assert keys(undone(["experiment=full"], project)) == both
    assert differences(project)[-1].startswith("  to keep it: dvc exp run -S ")
    assert "-S models.gpt.recipe.optimizer.lr=0.5" in differences(project)[-1]
    write_params(["experiment=smoke"], project)
    assert "experiment: smoke -> demo" in undone((), project)
    assert undone(["experiment=full"], project) == []


@pytest.mark.parametrize(
    "choices",
    [
        ["experiment=smoke", "models.gpt.recipe.length=77 steps", "evaluation.overlap=0.25"],
        [
            "models.gpt.evaluate.prompts=[\"it's\",'a \\\\ b\\\\\\\\',c]",
            "models.gpt.recipe.clip_norm=1e-5",
            "+tokenizers.second={corpus: shakespeare, kind: bpe, vocab_size: 300, min_frequency: 2, lowercase: true}",
        ],
        ["~models.lstm"],
    ],
)
def test_the_way_to_keep_it_gives_the_same_params(project: Path, choices: list[str]) -> None:
    write_params(choices, project)
    found = keeping(project)
    if found is None:
        assert choices == ["~models.lstm"]  # more keys than a line should hold
        return
    assert yaml.safe_load(compose(found, project)) == yaml.safe_load((project / "params.yaml").read_text())
    assert undone(found, project) == []


def test_before_an_experiment_it_is_said_and_a_copy_kept(project: Path) -> None:
    write_params(["models.gpt.recipe.length=77 steps"], project)
    before = (project / "params.yaml").read_text()
    said: list[str] = []
    before_experiment([["data_seed=3"]], project, said.append)
    assert "  models.gpt.recipe.length: 77 steps -> 780 steps" in said
    assert said[-1].endswith("""to keep it, give -S 'models.gpt.recipe.length="77 steps"'""")
    (kept,) = (project / ".lexmill" / "params").iterdir()
    assert kept.read_text() == before == (project / "params.yaml").read_text()
    said.clear()
    before_experiment([["models.gpt.recipe.length=3 epochs"]], project, said.append)
    assert said == []


def test_of_a_sweep_it_is_said_what_any_combination_undoes(project: Path) -> None:
    smoke, full = ["experiment=smoke"], ["experiment=full"]
    (gpt, other), (lstm, last) = (
        [yaml.safe_load(compose(one, project))["models"][name]["recipe"]["validate_every"] for one in (smoke, full)]
        for name in ("gpt", "lstm")
    )
    choices = [f"models.gpt.recipe.validate_every={gpt}", "models.lstm.recipe.validate_every=77 steps"]
    write_params(choices, project)
    assert keys(undone(smoke, project)) == ["models.lstm.recipe.validate_every"]
    said: list[str] = []
    before_experiment([smoke, full, [*full, "data_seed=3"]], project, said.append)
    assert said[1:-1] == [
        f"  models.gpt.recipe.validate_every: {gpt} -> {other} (in 2 of 3 combinations)",
        f"  models.lstm.recipe.validate_every: 77 steps -> {lstm} or {last}",
    ]
    said.clear()
    before_experiment([[*smoke, *choices], [*full, *choices]], project, said.append)
    assert said == []


def test_the_errors_of_all_combinations_are_reported(project: Path) -> None:
    combinations = [[f"models.gpt.recipe.clip_norm={value}"] for value in (1, -1, -2)] + [["nothing=1"]]
    with pytest.raises(UserErrors) as caught:
        before_experiment(combinations, project, print)
    assert [("-1" in error, "-2" in error, "nothing" in error) for error in caught.value.errors] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]


def test_the_stages_of_mixtures_follow_an_experiment(project: Path) -> None:
    said: list[str] = []
    before_experiment([BOTH], project, said.append)
    assert said == [
        "sources.lock.yaml: its entries follow these choices",
        "dvc.yaml: the stages of mixtures follow these choices",
    ]
    assert "mix-both" in (project / "dvc.yaml").read_text()
    assert "poems" in (project / "sources.lock.yaml").read_text()
    before_experiment([()], project, said.append)
    assert MARK not in (project / "dvc.yaml").read_text()


def test_choices_with_an_error_are_refused_and_nothing_is_written(project: Path) -> None:
    write_params(["models.gpt.recipe.length=77 steps"], project)
    with pytest.raises(UserErrors, match=r"models\.gpt\.recipe\.clip_norm: -1"):
        before_experiment([["models.gpt.recipe.clip_norm=-1"]], project, print)
    assert not (project / ".lexmill").exists()
