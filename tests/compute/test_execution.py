"""The execution settings: their notations, and every combination that cannot work, all at once."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base.errors import UserErrors
from lexmill.base.strict import build
from lexmill.compute.execution import Execution, MicroBatch, load_execution

ROOT = Path(__file__).parents[2]


def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Execution:
    path = tmp_path / "here.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    monkeypatch.setenv("LEXMILL_EXECUTION", str(path))
    return load_execution(tmp_path)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("auto", MicroBatch(auto=True)),
        ("whole", MicroBatch()),
        (8192, MicroBatch(8192)),
        ("8_192 tokens", MicroBatch(8192)),
        ("1 token", MicroBatch(1)),
    ],
)
def test_a_micro_batch_is_a_word_or_a_number_of_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any, read: MicroBatch
) -> None:
    assert load(tmp_path, monkeypatch, micro_batch=written).micro_batch == read
    assert MicroBatch.parse(str(read)) == read


@pytest.mark.parametrize("wrong", ["all", 0, -3, 2.5, True, "8k", "0 tokens", None])
def test_all_else_is_reported(wrong: Any) -> None:
    with pytest.raises(ValueError, match="is no micro-batch; write 'auto', 'whole' or a number of tokens above 0"):
        MicroBatch.parse(wrong)


WORKS: list[dict[str, Any]] = [
    {},
    {"strategy": "ddp", "devices": 2},
    {"strategy": "fsdp", "devices": 1},
    {"strategy": "fsdp", "devices": 4, "nodes": 2, "tensor_parallel": 4},
    {"strategy": "single", "devices": 2, "tensor_parallel": 2},
    {"strategy": "ddp", "devices": 2, "micro_batch": "auto", "activation_checkpointing": True},
    {"accelerator": "mps"},
]


@pytest.mark.parametrize("settings", WORKS)
def test_what_works_is_let_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    execution = load(tmp_path, monkeypatch, **settings)
    assert execution.world == settings.get("devices", 1) * settings.get("nodes", 1)
    assert execution.sharded == (settings.get("strategy") == "fsdp" or "tensor_parallel" in settings)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"devices": 2}, "strategy: 'single' uses one device, but devices x nodes is 2; choose ddp or fsdp"),
    ({"devices": 4, "tensor_parallel": 2}, "or set tensor_parallel to 4"),
    ({"strategy": "fsdp", "devices": 4, "tensor_parallel": 3}, "3 does not divide devices x nodes"),
    ({"strategy": "ddp", "devices": 2, "tensor_parallel": 2}, "tensor_parallel: ddp holds whole matrices"),
    ({"accelerator": "mps", "strategy": "ddp", "devices": 2}, "accelerator: mps is one device"),
    ({"accelerator": "mps", "strategy": "fsdp"}, "accelerator: mps is one device"),
    ({"accelerator": "mps", "compile": True}, "compile: it works on cpu and cuda"),
    ({"strategy": "fsdp", "devices": 2, "micro_batch": "auto"}, "micro_batch: 'auto' cannot be found where"),
    ({"devices": 2, "tensor_parallel": 2, "compile": True}, "compile: it was not made to work with tensor_parallel"),
    ({"tensor_parallel": 0}, "tensor_parallel: 0 is too small"),
    ({"checkpoint_every_steps": -1}, "checkpoint_every_steps: -1 is too small"),
    ({"micro_batch_tokens": 16}, "micro_batch_tokens: unknown key, did you mean 'micro_batch'?"),
    ({"micro_batch": "auto 3"}, "micro_batch: 'auto 3' is no micro-batch"),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED)
def test_what_cannot_work_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UserErrors) as caught:
        load(tmp_path, monkeypatch, **settings)
    assert sentence in str(caught.value)
    assert all(error.startswith(f"{tmp_path / 'here.yaml'}: ") for error in caught.value.errors)


def test_all_errors_are_reported_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserErrors) as caught:
        load(tmp_path, monkeypatch, strategy="ddp", devices=4, tensor_parallel=3, micro_batch="auto")
    assert [error.split(": ")[1] for error in caught.value.errors] == [
        "tensor_parallel",
        "tensor_parallel",
        "micro_batch",
    ]
    with pytest.raises(UserErrors, match=r"compile: torch.compile needs a C\+\+ compiler, and none is installed"):
        load(tmp_path, monkeypatch, compile=True)


@pytest.mark.parametrize("path", sorted((ROOT / "conf" / "execution").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_files_of_the_project_are_sound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEXMILL_EXECUTION", str(path))
    load_execution(ROOT)


def test_an_empty_root_and_a_senseless_number_of_threads_are_refused() -> None:
    errors: list[str] = []
    assert build(Execution, {"checkpoint_root": " "}, errors) is None
    assert build(Execution, {"threads": 100_000}, errors) is None
    assert errors == [
        "checkpoint_root: it is empty; give a folder, such as .lexmill/checkpoints",
        "threads: 100000 is too large; at most 1024",
    ]
