"""Which model `lexmill fill` asks: the only encoder, or the one named, of any kind that predicts masked tokens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lexmill import params
from lexmill.base.errors import UserError
from lexmill.commands import use


@pytest.mark.parametrize(
    ("name", "kind"),
    [(None, "encoder"), ("bert", "encoder"), ("both", "language_model"), ("stars", "encoder"), ("no_such", "encoder")],
)
def test_the_kind_of_the_model_named(monkeypatch: pytest.MonkeyPatch, name: str | None, kind: str) -> None:
    entries = {"bert": "encoder", "both": "language_model", "stars": "regressor"}
    chosen = SimpleNamespace(models={one: SimpleNamespace(kind=of) for one, of in entries.items()})
    monkeypatch.setattr(params, "load", lambda: chosen)
    asked: list[Any] = []

    def opened(kind: str, name: str | None) -> Any:
        asked.append((kind, name))
        module = torch.nn.Linear(1, 1)
        module.context = 9
        tokenizer = SimpleNamespace(bos_id=2, eos_id=3)
        return SimpleNamespace(name=name, config={"max_tokens": 7, "masked": True}, module=module, tokenizer=tokenizer)

    monkeypatch.setattr(use, "model", opened)
    reader = use.masked_reader("encoder", name)
    assert asked == [(kind, name)]
    assert (reader.begin, reader.max_tokens) == ((3, 9) if kind == "language_model" else (2, 7))


def test_a_model_of_next_tokens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = SimpleNamespace(models={"gpt": SimpleNamespace(kind="language_model")})
    monkeypatch.setattr(params, "load", lambda: chosen)
    monkeypatch.setattr(use, "model", lambda kind, name: SimpleNamespace(name=name, config={}))
    with pytest.raises(UserError, match="'gpt' reads from the left only"):
        use.masked_reader("encoder", "gpt")
