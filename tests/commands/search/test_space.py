"""What is searched is checked as params.yaml is, before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill import params
from lexmill.base.errors import UserError, UserErrors
from lexmill.commands.search import space

ROOT = Path(__file__).parents[3]
LR = {"kind": "log_uniform", "low": 0.001, "high": 0.1}


def written(tmp_path: Path, **changes: Any) -> Path:
    search = {
        "model": "gpt",
        "trials": 3,
        "seed": 0,
        "pruner": "none",
        "startup": 2,
        "space": {"recipe.optimizer.lr": LR},
    }
    (tmp_path / "conf" / "search").mkdir(parents=True, exist_ok=True)
    (tmp_path / "conf" / "search" / "mine.yaml").write_text(yaml.safe_dump({**search, **changes}))
    return tmp_path


def errors(tmp_path: Path, **changes: Any) -> list[str]:
    root = written(tmp_path, **changes)
    try:
        search = space.load("mine", root)
        about = space.target(search, params.load(ROOT / "params.yaml"), ROOT)
        space.check(search, about, "conf/search/mine.yaml")
    except UserErrors as raised:
        return raised.errors
    except UserError as error:
        return [str(error)]
    return []


@pytest.mark.parametrize("path", sorted((ROOT / "conf" / "search").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_search_of_conf_fits_the_default_params_and_spells_out_each_field(path: Path) -> None:
    search = space.load(path.stem, ROOT)
    assert set(yaml.safe_load(path.read_text(encoding="utf-8"))) == set(space.Search.__dataclass_fields__)
    space.check(search, space.target(search, params.load(ROOT / "params.yaml"), ROOT), path.name)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "gtp"}, "the search's model 'gtp' is not in params.yaml, did you mean 'gpt'?"),
        ({"trials": 0}, "trials: 0 is too small; at least 1"),
        ({"pruner": "medium"}, "pruner: 'medium' is none of: median, hyperband, none, did you mean 'median'?"),
        ({"space": {}}, "space: it is empty"),
        ({"space": {"recipe.optimizer.lr": {**LR, "kind": "log"}}}, "space.recipe.optimizer.lr.kind: 'log' is unknown"),
        ({"space": {"recipe.optimizer.lr": {**LR, "high": 0.001}}}, "high: 0.001 must be above low, 0.001"),
        ({"space": {"recipe.optimizer.lr": {**LR, "low": 0}}}, "low: 0.0 is too small; it must be above 0"),
        ({"space": {"recipe.optimizer.rl": LR}}, "models.gpt has no such key, did you mean 'recipe.optimizer.lr'?"),
        ({"space": {"models.gpt.recipe.optimizer.lr": LR}}, "write recipe.optimizer.lr"),
        ({"space": {"data.tokenizer": {"kind": "choice", "values": ["a", "b"]}}}, "it changes the data of the metric"),
        (
            {"space": {"recipe.clip_norm": {"kind": "uniform", "low": -1, "high": 1}}},
            "recipe.clip_norm=-1.0: models.gpt",
        ),
        (
            {"space": {"recipe.keep": {"kind": "choice", "values": ["best", "bets"]}}},
            "recipe.keep=bets: models.gpt.recipe.keep",
        ),
        ({"space": {"recipe.keep": {"kind": "choice", "values": ["best"]}}}, "values: give two or more"),
        ({"space": {"recipe.keep": {"kind": "choice", "values": ["best", "best"]}}}, "'best' is given twice"),
        (
            {"space": {"recipe.keep": {"kind": "choice", "values": ["best", ["last"]]}}},
            "expected a short text or a number, got ['last']",
        ),
        ({"space": {"shape.n_layer": {"kind": "integer", "low": 1, "high": 4, "step": 2}}}, "does not lead from low"),
    ],
)
def test_errors_are_reported(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    found = errors(tmp_path, **changes)
    assert any(message in error for error in found), found


def test_sizes_that_do_not_fit_together_are_seen(tmp_path: Path) -> None:
    heads = {"kind": "choice", "values": [3, 4]}
    width = {"kind": "choice", "values": [96, 128]}
    found = errors(tmp_path, space={"shape.n_head": heads, "shape.d_model": width})
    assert [error for error in found if "with shape.d_model=128, shape.n_head=3" in error]
    assert not [error for error in found if "shape.n_head=4" in error]


def test_a_search_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no search 'mien' in conf/search/, did you mean 'mine'"):
        space.load("mien", written(tmp_path))


def test_values_go_into_a_copy_of_params() -> None:
    search = space.load("gpt", ROOT)
    about = space.target(search, params.load(ROOT / "params.yaml"), ROOT)
    made = about.with_values({"recipe.optimizer.lr": 0.5, "recipe.length": "9 steps"})
    assert made["models"]["gpt"]["recipe"]["optimizer"]["lr"] == 0.5
    assert about.entry["recipe"]["optimizer"]["lr"] != 0.5
    assert about.stage == "train@gpt"
