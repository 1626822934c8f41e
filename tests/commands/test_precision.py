"""`lexmill check` on bf16: by the instructions that the processor has and by what it makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lexmill.commands.precision import advice, instructions, kept_rates, rates, sentences
from lexmill.params import parse
from tests.registry.plain import plain_params

FAST, SLOW = (100e9, 250e9), (100e9, 40e9)


def test_bf16_is_recommended_where_there_are_instructions_for_it() -> None:
    first, second = sentences({"gpt": "32-true", "en_de": "32-true", "lstm": "bf16-mixed"}, ["amx_bf16"], FAST)
    assert first == (
        "bf16 is recommended here (amx_bf16):"
        " matrix products make 100 GFLOP/s in float32, 250 in bf16, 2.5 times as much"
    )
    assert second.startswith("gpt, en_de: `recipe.precision: bf16-mixed` would train faster")
    assert len(sentences({"lstm": "bf16-mixed"}, ["avx512_bf16"], FAST)) == 1


def test_bf16_without_instructions_is_warned_of() -> None:
    first, second = sentences({"gpt": "32-true", "lstm": "bf16-mixed"}, [], None)
    assert first.startswith("this machine has no bf16 instructions")
    assert second == "lstm: `recipe.precision: bf16-mixed` is slow here; 32-true would train faster"
    assert len(sentences({"gpt": "32-true"}, [], None)) == 1


def test_instructions_that_bring_nothing_are_not_recommended() -> None:
    assert sentences({"gpt": "32-true"}, ["avx512_bf16"], SLOW) == [
        "bf16 matrix products are no faster here (100 GFLOP/s in float32, 40 in bf16);"
        " 32-true is right for this machine"
    ]
    assert sentences({"gpt": "32-true"}, None, FAST)[0].startswith("bf16 is recommended here: ")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("flags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile\n", ["amx_bf16", "avx512_bf16"]),
        ("flags\t\t: fpu avx2 avx512f\n", []),
        ("Features\t: fp asimd bf16 svebf16\n", ["bf16", "svebf16"]),
        ("model name\t: odd\n", None),
    ],
)
def test_a_processors_instructions(tmp_path: Path, text: str, found: list[str] | None) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{text}", encoding="utf-8")
    assert instructions("cpu", tmp_path / "cpuinfo") == found
    assert instructions("cpu", tmp_path / "none") is None


def test_a_gpus_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, there=there: there)
        assert bool(instructions("cuda")) == there
    assert instructions("mps") is None


def test_rates_are_measured_and_the_threads_put_back() -> None:
    threads = torch.get_num_threads()
    float32, bf16 = rates("cpu")
    assert float32 > 1e8
    assert bf16 > 1e8
    assert torch.get_num_threads() == threads


def test_every_model_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    from lexmill.commands import precision

    monkeypatch.setattr(precision, "kept_rates", lambda _: FAST)
    monkeypatch.setattr(precision, "instructions", lambda _: ["amx_bf16"])
    message = advice(parse(plain_params()), "cpu")
    assert message[1].startswith("gpt, tickets, en_de: ")


def test_they_are_measured_once_for_each_kind_of_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lexmill.commands import precision

    measured: list[str] = []
    monkeypatch.setattr(precision, "rates", lambda device: (measured.append(device), FAST)[1])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert [kept_rates("cpu"), kept_rates("cpu")] == [FAST, FAST]
    assert measured == ["cpu"]
    monkeypatch.setattr(precision, "_processor", lambda: "another")
    kept_rates("cpu")
    assert measured == ["cpu", "cpu"]
    (tmp_path / "lexmill" / "matrix-rates.json").write_text("{")
    assert kept_rates("cpu") == FAST
    kept_rates("cuda")
    assert measured == ["cpu", "cpu", "cpu", "cuda"]


def test_nothing_is_measured_where_the_processor_has_no_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    from lexmill.commands import precision

    monkeypatch.setattr(precision, "rates", lambda _: pytest.fail("measured"))
    monkeypatch.setattr(precision, "instructions", lambda _: [])
    assert advice(parse(plain_params()), "cpu") == ["this machine has no bf16 instructions; 32-true is right for it"]
