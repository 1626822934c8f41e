"""Evaluates a language model on a test split: metrics and sample texts.

Cost: 1 / (1 - evaluation.overlap) forward passes over the test split, and about a second for its word vectors; of a
hybrid some eight passes more. Memory O(evaluation.batch_tokens * vocabulary).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from torch import nn

from lexmill.base import progress
from lexmill.decoding.sampling import generate
from lexmill.decoding.settings import Sampling
from lexmill.evaluation import analogies, masked_tokens, plots
from lexmill.evaluation.rows import Row
from lexmill.evaluation.subject import Evaluated, Subject
from lexmill.evaluation.words import frequent_words
from lexmill.kinds.language_model.gradient_reach import gradient_norms, windows
from lexmill.kinds.language_model.masked import reader as reader_of
from lexmill.kinds.language_model.metrics import (
    DocumentScores,
    OffsetEncoder,
    loss_by_position,
    score_documents,
    summarise,
)
from lexmill.kinds.language_model.mixture_scores import scorer_of
from lexmill.models.common.mixture import Mixture
from lexmill.models.input_embeddings import input_embeddings

SAMPLE_TOKENS = 200
TEMPERATURE = 0.8  # of the samples: at 1.0 rare words hide a small model's style
PSEUDO_TOKENS = 2000  # masked alone, for the pseudo-perplexity of a hybrid; each costs a pass over its window
WORDS = 10_000  # analogies are made of so many words, the most frequent of the train split


def evaluate(subject: Subject) -> Evaluated:
    """Score the test split and the word vectors, and continue the prompts."""
    documents = _scored(subject)
    found = [row for document in documents for row in document.rows]
    prompts = subject.settings.prompts
    sampling = Sampling(SAMPLE_TOKENS, TEMPERATURE, seed=subject.seed)
    texts = generate(subject.module, subject.tokenizer, prompts, sampling)
    samples = [{"prompt": prompt, "text": text} for prompt, text in zip(prompts, texts, strict=True)]
    words, embeddings = frequent_words(subject.corpus, WORDS), input_embeddings(_network(subject).state_dict())
    pairs = analogies.pairs(words, subject.corpus.languages[0])

    def draw(folder: Path) -> None:
        context = cast(Any, subject.module).context
        by_position = loss_by_position(
            [document.log_probabilities for document in documents], context, subject.evaluation.overlap
        )
        plots.plot_loss_by_position(by_position, folder / "loss_by_position.png", subject.name)
        norms = gradient_norms(_network(subject), windows(subject.records(), subject.tokenizer, context))
        plots.plot_gradient_reach(norms, folder / "gradient_reach.png", subject.name)

    return Evaluated(
        rows=found,
        metrics=metrics(subject, found)
        | masked(subject)
        | analogies.score(words, subject.tokenizer, embeddings, pairs),
        samples={"samples": samples, "temperature": TEMPERATURE},
        draw=draw,
    )


def rows(subject: Subject) -> list[Row]:
    """Return only the rows."""
    return [row for document in _scored(subject) for row in document.rows]


def metrics(subject: Subject, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the metrics of the test set from its rows."""
    return summarise(rows, subject.corpus.unit, subject.resampling)


def masked(subject: Subject) -> dict[str, Any]:
    """Return how well a model of the method `hybrid` predicts masked tokens of the test set; of others {}."""
    if not subject.config.get("masked"):
        return {}
    reader = reader_of(subject)
    found = masked_tokens.summarise(masked_tokens.rows(subject, reader), subject.corpus.unit, subject.resampling)
    return found | masked_tokens.pseudo_perplexity(subject, reader, PSEUDO_TOKENS)


def _scored(subject: Subject) -> list[DocumentScores]:
    """Score the documents of the test set, in order."""
    tokenizer, evaluation = subject.tokenizer, subject.evaluation
    scorer = scorer_of(subject.module, tokenizer.eos_id, evaluation.batch_tokens, evaluation.overlap)
    found = []
    with progress.bar(f"evaluate {subject.words}", subject.corpus.count(subject.split)) as bar:
        for document in score_documents(subject.records(), OffsetEncoder(tokenizer), scorer):
            found.append(document)
            bar.update(1)
    return found


def _network(subject: Subject) -> nn.Module:
    """Return the network, without n-grams beside it."""
    return cast(nn.Module, subject.module.network) if isinstance(subject.module, Mixture) else subject.module
