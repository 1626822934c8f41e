"""A classifier on a causal network reads from the left or in both directions."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import UserErrors
from lexmill.models import folder as model_folder
from lexmill.models.common.both_directions import BothDirections
from lexmill.stages import evaluate, train
from tests.kinds.classifier.made_models import RECIPE, write_network


@pytest.mark.usefixtures("word_workspace")
def test_both_directions_are_one_key() -> None:
    saved: dict[str, Any] = {}
    for direction in ("causal", "both"):
        write_network("decoder", RECIPE | {"length": "2 epochs", "direction": direction})
        train.main("sentiment")
        evaluate.main("sentiment")
        config, module = model_folder.load(layout.model("sentiment"))
        assert config.get("direction") == (None if direction == "causal" else "both")
        head: Any = module
        assert isinstance(head.encoder, BothDirections) == (direction == "both")
        mask = torch.ones(1, 3, dtype=torch.bool)
        with torch.no_grad():
            states = [head._states(torch.tensor([[4, 5, last]]), mask)[0, 0] for last in (6, 7)]
        assert torch.equal(*states) == (direction == "causal")
        saved[direction] = json.loads(layout.samples("sentiment").read_text(encoding="utf-8"))["samples"]
    assert all("words" in items[0] for items in saved.values())  # attributions


@pytest.mark.usefixtures("word_workspace")
def test_what_cannot_be_read_in_both_directions_is_said() -> None:
    write_network("gru", RECIPE | {"direction": "both"})
    with pytest.raises(UserErrors, match="'gru' has no causal mask to lift; set causal or take decoder"):
        params.load()
    write_network("decoder", RECIPE | {"direction": "both", "language_loss": 0.5})
    with pytest.raises(UserErrors, match="a token that sees those after it has none to predict"):
        params.load()
