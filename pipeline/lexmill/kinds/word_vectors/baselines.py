"""What word vectors must beat: a factorised table of mutual information, and vectors that say nothing of use.

ppmi_svd: positive pointwise mutual information of the tokens' co-occurrence counts, its truncated singular value
decomposition U S V', and U S^(1/2) as the vectors (Levy and Goldberg 2014, "Neural Word Embedding as Implicit Matrix
Factorization", section 3.2). random: a random vector for each token; words of several tokens share some with their
forms, so it answers what spelling alone does.

Cost: that of the counts, and about a second for each million cells and 100 dimensions; memory 50 bytes a cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.subject import Baseline
from lexmill.evaluation.word_vectors import Floats
from lexmill.kinds.word_vectors.cells import Cells, cooccurrences
from lexmill.kinds.word_vectors.metrics import summarise
from lexmill.kinds.word_vectors.pairs import KnownTokens
from lexmill.kinds.word_vectors.questions import answered, questions
from lexmill.params import Baseline as Chosen
from lexmill.tokenizers import Tokenizer

_TEXTS = 64  # encoded at once


def baselines(chosen: Chosen, corpus: PreparedCorpus, how: Resampling) -> Iterator[Baseline]:
    """Yield both.

    Raises:
        UserError: the test split gives no question.
    """
    assert chosen.tokenizer is not None
    tokenizer, settings = tokenizers.load(layout.tokenizer(chosen.tokenizer)), chosen.settings
    asked = questions(corpus, "test")
    cells = cooccurrences(_train_tokens(corpus, tokenizer), settings["window"])
    size, width = tokenizer.vocab_size, settings["dimensions"]
    for name, embeddings in (
        ("ppmi_svd", factorised(cells, size, width)),
        ("random", np.random.default_rng(0).standard_normal((size, width), np.float32)),
    ):
        rows = answered(asked, tokenizer, embeddings)
        yield Baseline(name, rows, summarise(rows, how))


def _train_tokens(corpus: PreparedCorpus, tokenizer: Tokenizer) -> KnownTokens:
    from lexmill.tokenizers.bulk import BulkEncoder

    encoder, texts = BulkEncoder(tokenizer), (record["text"] for record in corpus.records("train"))
    found = [encoder.encode(some) for some in iter(lambda: list(islice(texts, _TEXTS)), [])]
    ids, lengths = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return KnownTokens(ids, lengths, tokenizer)


def mutual_information(cells: Cells, size: int) -> Any:
    """Return max(0, log(X_ij X / (X_i X_j))) of counts, X_i the sum of a row and X of all: sparse, (V, V)."""
    from scipy.sparse import csr_array

    sums = np.bincount(cells.rows, weights=cells.counts, minlength=size)
    values = np.log(cells.counts * sums.sum() / (sums[cells.rows] * sums[cells.columns]))
    return csr_array((np.maximum(values, 0), (cells.rows, cells.columns)), shape=(size, size))


def factorised(cells: Cells, size: int, dimensions: int) -> Floats:
    """Return a vector for each token, (V, dimensions); zeros, up to rounding, for tokens that are in no cell."""
    from scipy.sparse.linalg import svds

    width = min(dimensions, size - 1)
    left, scales, _ = svds(mutual_information(cells, size), k=width, v0=np.ones(size), return_singular_vectors="u")
    found = np.zeros((size, dimensions), np.float32)
    found[:, :width] = left * np.sqrt(scales)
    return found
