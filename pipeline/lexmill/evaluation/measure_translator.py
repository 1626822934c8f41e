"""A translator on records of a test split: its rows, as the stage and the registry need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from lexmill.decoding.translate import translate_lines
from lexmill.evaluation.rows import Row
from lexmill.evaluation.translation import translator_rows
from lexmill.params import BeamSearch, Evaluation
from lexmill.tokenizers import Tokenizer

CHUNK = 256  # lines between two signs of progress; a translation does not depend on the lines around it


def translated(
    module: nn.Module,
    tokenizer: Tokenizer,
    records: Sequence[dict[str, str]],
    beam: BeamSearch,
    evaluation: Evaluation,
    *,
    language: str,
    advance: Callable[[int], object] = lambda _: None,
) -> tuple[list[Row], int]:
    """One row a record, in order, and how many sources were cut.

    Args:
        module: the network, on its device.
        beam: how it searches.
        evaluation: the size of a forward pass.
        language: of the translations, for the scores.
        advance: told how many more are done.
    """
    # Lines of like length together: a chunk then wastes little on padding.
    order = sorted(range(len(records)), key=lambda i: (len(records[i]["source"]), i))
    hypotheses = [""] * len(records)
    truncated = 0
    for start in range(0, len(order), CHUNK):
        chunk = order[start : start + CHUNK]
        lines = [records[i]["source"] for i in chunk]
        found = translate_lines(module, tokenizer, lines, beam, evaluation.batch_tokens)
        for i, translation in zip(chunk, found, strict=True):
            hypotheses[i] = translation.text
            truncated += translation.truncated
        advance(len(chunk))
    return translator_rows(records, hypotheses, language), truncated
