"""Splits are sticky: a function of group and salt, whatever else is in the corpus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill.base.errors import UserError, UserErrors
from lexmill.corpora.preparing.splits import check_filled, check_pinned, point, split_of
from lexmill.params.corpora import Splits

GROUPS = [f"group {i}" for i in range(4000)]


def test_the_place_of_a_group_never_changes():
    # Written down once: another value here moves every user's test set.
    assert point("hamlet", "lexmill") == 0.6206934024019922
    assert split_of("hamlet", Splits()) == "train"


@given(st.text(), st.text())
def test_a_place_is_in_the_unit_interval(group, salt):
    assert 0 <= point(group, salt) < 1


def test_shares_are_met():
    found = [split_of(group, Splits(valid=0.1, test=0.2)) for group in GROUPS]
    assert found.count("valid") / len(GROUPS) == pytest.approx(0.1, abs=0.02)
    assert found.count("test") / len(GROUPS) == pytest.approx(0.2, abs=0.02)


def test_a_larger_share_takes_from_train_only():
    small, large = Splits(valid=0.1, test=0.1), Splits(valid=0.1, test=0.3)
    for group in GROUPS:
        before, after = split_of(group, small), split_of(group, large)
        assert after == before or (before, after) == ("train", "test")


def test_another_salt_draws_other_groups_and_pins_win():
    one, two = Splits(salt="1"), Splits(salt="2", pinned={GROUPS[0]: "valid", GROUPS[1]: "test"})
    assert any(split_of(g, one) != split_of(g, two) for g in GROUPS[2:])
    assert [split_of(g, two) for g in GROUPS[:2]] == ["valid", "test"]


def test_no_share_no_record():
    splits = Splits(valid=0.0, test=0.0)
    assert {split_of(group, splits) for group in GROUPS} == {"train"}
    check_filled(splits, {"train": 3, "valid": 0, "test": 0}, "work", "corpora.x")


def test_an_empty_split_is_refused_with_what_to_do():
    with pytest.raises(UserError, match=r"nothing fell into valid and test: .* 3 groups \(unit: work; .*pinned"):
        check_filled(Splits(), {"train": 3, "valid": 0, "test": 0}, "work", "corpora.x")


def test_pinned_groups_must_exist():
    splits = Splits(pinned={"hamlett": "test", "lear": "valid"})
    with pytest.raises(UserErrors, match=r"no group 'hamlett', did you mean 'hamlet'\?"):
        check_pinned(splits, {"lear"}, ["hamlet", "lear"], "corpora.x")
