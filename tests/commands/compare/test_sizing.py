"""Widths that bring models to a number of parameters: an LSTM by its formula, a GPT by trying every width."""

from __future__ import annotations

import pytest

from lexmill.base.errors import UserError
from lexmill.commands.compare import sizing
from lexmill.commands.compare.sizing import sizes_of, with_parameters, with_width
from lexmill.commands.compare.subjects import Subject
from tests.commands.compare.conftest import preset
from tests.support.small_project import params_of

V = 100


@pytest.fixture(autouse=True)
def _vocabulary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "vocabulary", lambda choices, model: V)


def subject(family: str, **shape: object) -> Subject:
    return Subject(f"{family}_tiny", f"{family}_tiny", preset(family, **shape), params_of(8))


def test_an_lstm_of_ten_thousand_parameters() -> None:
    """One layer of width D over V tokens has V D + 8 D^2 + 8 D: 9,200 at 28, hence the steps of 8 decide 24 or 32."""
    counts = {width: V * width + 8 * width**2 + 8 * width for width in (24, 32)}
    assert counts == {24: 7200, 32: 11648}
    assert sizes_of(with_width(subject("lstm"), 32)).parameters == counts[32]
    assert with_parameters(subject("lstm"), 10_000).entry["shape"]["d_model"] == 32
    assert with_parameters(subject("lstm"), 8_000).entry["shape"]["d_model"] == 24


@pytest.mark.parametrize("wanted", [4_000, 30_000, 250_000])
def test_bisection_finds_what_trying_every_width_finds(wanted: int) -> None:
    one = subject("gpt", n_head=3)
    every = {width: sizes_of(with_width(one, width)).parameters for width in range(12, 200, 6)}
    found = with_parameters(one, wanted).entry["shape"]
    assert found["d_model"] == min(every, key=lambda width: abs(every[width] - wanted))
    assert found["n_head"] == 3


def test_other_widths_keep_their_share_and_heads_stay() -> None:
    wide = with_width(subject("llama", n_head=4, n_kv_head=2, d_ffn=48, d_head=0), 64).entry["shape"]
    assert (wide["d_model"], wide["d_ffn"], wide["d_head"], wide["n_head"], wide["n_kv_head"]) == (64, 192, 0, 4, 2)
    assert with_width(subject("llama", n_head=2, n_kv_head=1, d_ffn=40), 20).entry["shape"]["d_ffn"] == 48  # 50


def test_a_size_that_no_width_comes_near_is_refused() -> None:
    with pytest.raises(UserError, match="lstm_tiny cannot have 10 parameters; its closest width, 8, has 1,376"):
        with_parameters(subject("lstm"), 10)


def test_flops_of_a_budget_are_those_of_the_model() -> None:
    """6 for each weight of a product, V D tied and 8 D^2; the recurrence adds none."""
    assert sizes_of(subject("lstm")).flops_per_token == 6 * (V * 16 + 8 * 16**2)
