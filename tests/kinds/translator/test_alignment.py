"""The tokens and weights of the picture of a translator's attention."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lexmill.kinds.translator.alignment import PICTURED, alignments
from lexmill.tokenizers.tokenizer import BOS, EOS

from .test_task import digits_tokenizer, network


@pytest.mark.parametrize("family", ["transformer", "rnn_seq2seq", "conv_seq2seq", "decoder_translator"])
def test_a_row_is_a_token_written_and_a_column_one_read(family: str, tmp_path: Path) -> None:
    tokenizer = digits_tokenizer(tmp_path / "tokenizer")
    module = network(tokenizer.vocab_size, family).eval()
    found = alignments(module, tokenizer, [("", "1"), ("123", "45"), ("1" * 30, "2"), ("7", "")])
    assert [(rows, columns) for rows, columns, _ in found] == [(["4", "5", "</s>"], ["1", "2", "3", "</s>"])]
    source = torch.tensor([[*tokenizer.encode("123"), EOS]])
    target = torch.tensor([[BOS, *tokenizer.encode("45")]])
    with torch.no_grad():
        expected = module.alignment(source, torch.ones_like(source, dtype=torch.bool), target)[0]
    assert found[0][2][0].tolist() == pytest.approx(expected.numpy(), abs=1e-6)
    assert len(alignments(module, tokenizer, [("1", "2")] * 9)) == PICTURED


def test_a_source_that_is_one_vector_has_no_picture(tmp_path: Path) -> None:
    tokenizer = digits_tokenizer(tmp_path / "tokenizer")
    module = network(tokenizer.vocab_size, "rnn_seq2seq", attention="none").eval()
    assert alignments(module, tokenizer, [("123", "45")]) == []
