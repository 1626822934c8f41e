"""Budgets in steps, by hand; what is no budget; lengths that keep their share of the training."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lexmill.base.errors import UserError
from lexmill.commands.compare.budget import DEFAULT, Budget, Budgets, with_steps

ENTRY: dict[str, Any] = {
    "recipe": {
        "batch": 2048,
        "length": "700 steps",
        "validate_every": "100 steps",
        "schedule": {"name": "cosine", "warmup": "50 steps"},
    }
}


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("1e6 tokens", 488),  # 1,000,000 / 2048 = 488.28
        ("2048 tokens", 1),
        ("1_433_600 tokens", 700),
        ("3e12 flops", 122),  # 3e12 / (12e6 FLOPs a token * 2048) = 122.07
        ("60 seconds", 146),  # 60 * 5,000 tokens/s / 2048 = 146.48
        ("1 second", 2),
    ],
)
def test_a_budget_in_steps(text: str, steps: int) -> None:
    assert Budget.parse(text).steps(2048, 12e6, 5000.0) == steps


@pytest.mark.parametrize(
    "text", ["", "1e6", "tokens", "1e6 steps", "-1 tokens", "0 tokens", "1e999 flops", "1e6e tokens"]
)
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(UserError, match="is no budget; write '1e6 tokens'"):
        Budget.parse(text)


def test_parameters_go_with_a_length_and_two_lengths_exclude_each_other() -> None:
    both = Budgets.parse(["60 seconds", "2e6 parameters"])
    assert (str(both.parameters), str(both.length)) == ("2000000 parameters", "60 seconds")
    assert str(both) == "2000000 parameters and 60 seconds"
    assert Budgets.parse(["2e6 parameters"]).length is None
    assert Budgets.parse([]) == Budgets.parse([DEFAULT])
    with pytest.raises(UserError, match="1000000 tokens and 60 seconds exclude each other"):
        Budgets.parse(["1e6 tokens", "60 seconds"])


def test_warm_up_keeps_its_share_and_validation_is_at_the_end() -> None:
    before = copy.deepcopy(ENTRY)
    recipe = with_steps(ENTRY, 1400, "a")["recipe"]
    assert recipe["length"] == "1400 steps"
    assert recipe["validate_every"] == "1400 steps"
    assert recipe["schedule"] == {"name": "cosine", "warmup": "100 steps"}
    assert before == ENTRY
    short = with_steps(ENTRY, 3, "a")["recipe"]
    assert (short["validate_every"], short["schedule"]["warmup"]) == ("3 steps", "1 steps")  # never nothing


def test_tokens_become_steps_percent_stays_and_none_stays_none() -> None:
    entry = copy.deepcopy(ENTRY)
    entry["recipe"]["length"] = "1433600 tokens"
    entry["recipe"]["schedule"] = {"name": "warmup_stable_decay", "warmup": "0 steps", "decay": "20 %"}
    recipe = with_steps(entry, 350, "a")["recipe"]
    assert recipe["length"] == recipe["validate_every"] == "350 steps"
    assert recipe["schedule"] == {"name": "warmup_stable_decay", "warmup": "0 steps", "decay": "20 %"}


def test_what_cannot_be_stretched_is_refused() -> None:
    with pytest.raises(UserError, match="the budget pays for 1 steps of gpt_tiny"):
        with_steps(ENTRY, 1, "gpt_tiny")
    entry = copy.deepcopy(ENTRY)
    entry["recipe"]["schedule"]["warmup"] = "0.25 epochs"
    with pytest.raises(UserError, match="gpt_tiny counts in epochs"):
        with_steps(entry, 10, "gpt_tiny")
