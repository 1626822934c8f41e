"""Translators of every shape against `transformers`: logits, searches, tokens, sizes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from lexmill import models, tokenizers
from lexmill.decoding.batching import pad_sources
from lexmill.decoding.beam_search import beam_search
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator.losses import smoothed_sum
from lexmill.kinds.translator.prefixes import begins_of
from lexmill.models import pretrained
from lexmill.models.start import start
from lexmill.tokenizers.imported import import_tokenizer
from tests.support.tiny_translators import KINDS, PREFIXES, make_tiny_translator

SOURCES, TARGETS = ["the", "mill", "turns", "slowly", "water", "good"], ["die", "Mühle", "dreht", "langsam", "Wasser"]
LINES = ["the mill turns", "water", "good water turns the mill slowly", "mills turn"]


def started(folder: Path, kind: str) -> tuple[Any, Any, tokenizers.Tokenizer]:
    """A network that starts from a checkpoint as a training makes it, the model there, and the tokenizer."""
    theirs = make_tiny_translator(folder / "checkpoint", kind, SOURCES, TARGETS)
    (folder / "tokenizer").mkdir()
    tokenizer = import_tokenizer(folder / "checkpoint", folder / "tokenizer")
    family, shape, _ = pretrained.read_shape(folder / "checkpoint", "hugging_face_translator")
    shape |= PREFIXES.get(kind, {})
    config: dict[str, Any] = {"family": family, "shape": shape, "vocab_size": tokenizer.vocab_size}
    if begins := begins_of(models.family(family).shape(**shape), tokenizer):
        config["begins"] = begins
    module = models.build(config)
    start(module, config, folder / "checkpoint", folder / "tokenizer")
    return module.eval(), theirs, tokenizer


def given(module: Any, tokenizer: tokenizers.Tokenizer, lines: list[str]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Sources and mask as here, and as the model there reads them."""
    ids = tokenizer.encode_batch(lines)
    source, mask = pad_sources(ids, torch.device("cpu"), tokenizer.special)
    there, real = pad_sources([[*module.begins["source"], *row] for row in ids], torch.device("cpu"), tokenizer.special)
    return source, mask, {"input_ids": there, "attention_mask": real.long()}


@pytest.mark.parametrize("kind", list(KINDS))
@torch.no_grad()
def test_forced_decoding_gives_the_logits_of_transformers(tmp_path: Path, kind: str) -> None:
    module, theirs, tokenizer = started(tmp_path, kind)
    source, mask, there = given(module, tokenizer, LINES)
    targets = tokenizer.target.encode_batch(["die Mühle", "Wasser", "dreht die Mühle langsam", "die"])
    written = [[tokenizer.bos_id, *row] for row in targets]
    rows = [[row[0], *module.begins["target"], *row[1:]] for row in written]
    width = max(map(len, rows))
    decoder = torch.tensor([[*row, *[tokenizer.pad_id] * (width - len(row))] for row in rows])
    wanted = theirs(**there, decoder_input_ids=decoder).logits[
        :, len(module.begins["target"]) :, : tokenizer.vocab_size
    ]
    more = width - len(module.begins["target"])
    target_in = torch.tensor([[*row, *[tokenizer.pad_id] * (more - len(row))] for row in written])
    found = module(source, mask, target_in)
    for row, ids in enumerate(written):
        torch.testing.assert_close(found[row, : len(ids)], wanted[row, : len(ids)], atol=1e-4, rtol=0)
