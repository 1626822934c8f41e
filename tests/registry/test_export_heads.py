"""The card of an exported head on texts: its own code, run, gives what lexmill answers."""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lexmill import kinds, models, tokenizers
from lexmill.models import family, folder
from lexmill.models.folder import read_config
from lexmill.registry.hugging_face import export
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save

TEXT = "a text"  # of the card


def exported(at: Path, kind: str, name: str = "bert", **head: Any) -> tuple[Any, str]:
    """The predictor of a drawn model, and what its card's code prints."""
    shape = {**family(name).tiny, "max_position_embeddings" if name == "bert" else "context": 40}
    config = {"kind": kind, "family": name, "shape": shape, "vocab_size": 261, "dropout": 0.0, "max_tokens": 20}
    torch.manual_seed(4)
    module = models.build(config | head)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    folder.save(at / "model", {**config, **head}, module)
    (at / "model" / "tokenizer").mkdir()
    save(assemble("byte", byte_model(), lowercase=False), at / "model" / "tokenizer")
    export(at / "model", at / "there", "drawn")
    card = (at / "there" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert 'folder = "."' in code
    with contextlib.redirect_stdout(io.StringIO()) as printed, torch.no_grad():
        exec(code.replace('folder = "."', f'folder = "{at / "there"}"'), {})
    stored, network = folder.load(at / "model")
    predictor = kinds.find(kind).module("predict").Predictor
    return predictor("drawn", stored, network, tokenizers.load(at / "model" / "tokenizer")), printed.getvalue()


@pytest.mark.parametrize("thresholds", [[0.0, 1.0, 0.0], [0.5, 0.5, 0.5]])
def test_several_labels(tmp_path: Path, thresholds: list[float]) -> None:
    names = ["billing", "refund", "tone"]
    predictor, printed = exported(tmp_path, "multilabel_classifier", labels=names, thresholds=thresholds)
    (answer,) = predictor.predict([TEXT])
    assert ast.literal_eval(printed) == [answer["labels"]]


@pytest.mark.parametrize(("name", "head"), [("gpt", {"pooling": "last", "head_bias": False}), ("bert", {})])
def test_one_label(tmp_path: Path, name: str, head: dict[str, Any]) -> None:
    predictor, printed = exported(tmp_path, "classifier", name, labels=["billing", "refund", "tone"], **head)
    (answer,) = predictor.predict([TEXT])
    assert ast.literal_eval(printed) == [answer["label"]]


def test_the_card_says_that_windows_stay_here(tmp_path: Path) -> None:
    exported(tmp_path, "classifier", labels=["billing", "refund"], stride=9)
    assert "Longer texts are cut; lexmill reads them in windows" in (tmp_path / "there" / "README.md").read_text()


@pytest.mark.parametrize("levels", [[], [-4.0, -1.0, 0.0, 2.5]])
def test_a_number(tmp_path: Path, levels: list[float]) -> None:
    labels = [f"above {level:g}" for level in levels[:-1]] or ["number"]
    predictor, printed = exported(tmp_path, "regressor", labels=labels, levels=levels, target="expected")
    (answer,) = predictor.predict([TEXT])
    (found,) = re.findall(r"-?[\d.]+(?:e-?\d+)?", printed.split("[")[1])
    assert float(found) == pytest.approx(answer["number"], abs=1e-3)
    assert np.isfinite(float(found))
    assert read_config(tmp_path / "model")["levels"] == levels
