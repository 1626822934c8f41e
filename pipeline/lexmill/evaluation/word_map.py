"""A map of words, for every kind of model: the most frequent of the train split, by the model's input embeddings.

Cost: about 0.1 s a million characters, of at most 20 million, and a picture.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.corpora.prepared import texts_of
from lexmill.evaluation import plots
from lexmill.evaluation.subject import Subject
from lexmill.evaluation.word_vectors import WordVectors, plane
from lexmill.evaluation.words import frequent_words
from lexmill.models.common.mixture import Mixture
from lexmill.models.input_embeddings import embedding_of

if TYPE_CHECKING:
    from torch import nn

WORDS = 400
_FEWEST = 3


def draw(subject: Subject, folder: Path) -> None:
    """Write `words.png`; nothing where the network looks up no embeddings, or knows too few words.

    Of parallel texts only the source's words are drawn: the target may have another table.
    """
    embedding = _embedding(subject.module)
    if embedding is None:
        return
    words = frequent_words(subject.corpus, WORDS, texts=_read)
    vectors = WordVectors(words, subject.tokenizer, embedding.weight.detach().float().cpu().numpy())
    if len(vectors.words) >= _FEWEST:
        plots.plot_words(plane(vectors.vectors), vectors.words, folder / "words.png", subject.name)


def _read(record: dict[str, Any]) -> tuple[str, ...]:
    """Return the texts of a record that a model reads."""
    return (record["source"],) if "source" in record else texts_of(record)


def _embedding(module: nn.Module) -> Any:
    """Return the layer of the embeddings, of a mixture its network's, of two tables the source's; or None."""
    network = module.network if isinstance(module, Mixture) else module
    source = getattr(network, "source_embedding", None)
    return embedding_of(network, missing_ok=True) if source is None else source
