"""A language model on a corpus's test split: the scores of its documents, as the stage and the registry need them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.language_model import DocumentScores, OffsetEncoder, score_documents
from lexmill.evaluation.scoring import NetworkScorer
from lexmill.params import Evaluation
from lexmill.tokenizers import Tokenizer


def scored(
    module: Any, tokenizer: Tokenizer, corpus: PreparedCorpus, evaluation: Evaluation
) -> Iterator[DocumentScores]:
    """The documents of the test split, in order.

    Args:
        module: the network, on its device.
        evaluation: the size of a forward pass and the overlap of windows.
    """
    scorer = NetworkScorer(module, module.context, tokenizer.eos_id, evaluation.batch_tokens, evaluation.overlap)
    return score_documents(corpus.records("test"), OffsetEncoder(tokenizer), scorer)
