"""Training a tagger: nats of the right tags, one target a word.

Shape letters: B windows, T tokens, W words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from torch import Tensor, nn

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.tag_schemes import Scheme, entities
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.texts import parts, records_of
from lexmill.kinds.tagger import Tagger, Tagging, fitting
from lexmill.kinds.tagger.alignment import in_scheme, model_tags, pieces, windows
from lexmill.kinds.tagger.batches import TaggingBatches
from lexmill.models.common.chain import IGNORED
from lexmill.models.common.tagging import Scores
from lexmill.params import Params
from lexmill.tokenizers import Tokenizer
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, check_positions, config_of, metrics_of, new_network, produce
from lexmill.training.task import Arrays, Task

VALID_BATCH = 64  # windows per validation batch; results do not depend on it
_ENCODED = 4096  # sentences encoded at once


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`: by gradient descent, or by counting whole words.

    Raises:
        UserError: an empty split, a corpus without entities that are to be learned as B I E S, or a checkpoint that
            does not fit.
    """
    model = choices.models[name]
    assert isinstance(model, Tagger)
    corpus = PreparedCorpus(layout.corpus(model.data.corpus))
    if model.data.bioes and not corpus.entities:
        raise UserError(
            f"models.{name}.data.bioes: the tags of the corpus mark no entities (reader.scheme: none); set it to false",
            corpus.folder,
        )
    tags, scheme = model_tags(corpus.labels, corpus.entities, model.data.bioes)
    recipe = model.recipe
    if not isinstance(recipe, Tagging):
        fitting.fit(name, model, corpus, scheme, choices.data_seed)
        return
    tokenizer = tokenizers.load(layout.tokenizer(model.data.tokenizer))
    config = config_of(
        model,
        tokenizer,
        tokenizer.vocab_size,
        tags=tags,
        scheme=scheme,
        pieces=model.data.pieces,
        head=recipe.head,
        dropout=recipe.head_dropout,
        max_tokens=model.data.max_tokens,
    )
    module: Any = new_network(model, config, choices.training_seed)
    check_positions(name, model.data.max_tokens, module.max_positions)
    batches = {
        split: batches_of(corpus, split, tokenizer, config, size=size, seed=choices.data_seed)
        for split, size in (("train", recipe.batch), ("valid", VALID_BATCH))
    }
    task = TaggingTask(module, batches["train"], batches["valid"], tags, scheme)
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.train.steps_per_epoch,
            metrics=lambda result: metrics(result, task, corpus.count("train")),
            speed=lambda result: speed(result, task.metric),
        ),
        choices,
    )


def batches_of(
    corpus: PreparedCorpus, split: str, tokenizer: Tokenizer, config: Mapping[str, Any], *, size: int, seed: int
) -> TaggingBatches:
    """Return the batches of a split; raise `UserError` if it is empty."""
    records = records_of(corpus, split)
    found, tags = [], []
    for start in range(0, len(records), _ENCODED):
        some = records[start : start + _ENCODED]
        for i, of_words in enumerate(pieces(tokenizer, [record["words"] for record in some])):
            right = some[i]["tags"]
            for window in windows(start + i, of_words, tokenizer, config["max_tokens"], right):
                found.append(window)
                tags.append(in_scheme(right[window.start : window.stop], config["scheme"]))
    number = {tag: i for i, tag in enumerate(config["tags"])}
    return TaggingBatches(found, tags, number, batch_size=size, seed=seed, pad_id=0)  # padding is masked: any id does


def metrics(result: FitResult, task: TaggingTask, sentences: int) -> dict[str, float]:
    """Return the stage's metrics: losses in nats per word, counts, no times."""
    return {
        **metrics_of(result, task),
        "train_sentences": sentences,
        "train_windows": len(task.train.ids),
        "train_words": sum(map(len, task.train.tags)),
    }


def speed(result: FitResult, metric: str) -> tuple[dict[str, float], str]:
    """Return words per second, as a metric and as a sentence."""
    found, loss = 100 * result.metrics[metric], result.metrics["valid_loss"]
    words = f"{metric.replace('_', ' ')} {found:.1f}, loss {loss:.3f}, {result.rate:,.0f} words/s"
    return {"words_per_second": result.rate}, words


class TaggingTask(Task):
    """Words to tags.

    The best weights are those of the highest accuracy on valid, or F1 of entities where the tags mark them: on
    thousands of words both are steady, and they still rise where the loss of a few overconfident errors rises too.

    Args:
        module: `forward(tokens, mask, words) -> Scores`, with its initial weights.
        train, valid: the batches of both splits.
        tags, scheme: the tags by their numbers, and how they mark entities.
    """

    counted = "words"
    higher_is_better = True

    def __init__(
        self, module: nn.Module, train: TaggingBatches, valid: TaggingBatches, tags: Sequence[str], scheme: Scheme
    ) -> None:
        self.module, self.train, self.valid, self.tags = module, train, valid, tags
        self.marked = scheme != "none"
        self.metric = "valid_entity_f1" if self.marked else "valid_accuracy"

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return self.train.arrays(self.train.rows(step, rank, world))

    def parts(self, batch: Arrays, pass_cost: int) -> list[Arrays]:
        return parts(batch, pass_cost)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        scores, labels = _scores(module, batch)
        return scores.nats(labels).sum(), (labels != IGNORED).sum()

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        return map(self.valid.arrays, islice(self.valid.evaluation_batches(), rank, None, world))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float]:
        scores, labels = _scores(module, batch)
        real = labels != IGNORED
        best = scores.best(real.sum(dim=1))
        hits = [0, 0, 0]
        if self.marked:
            for right, found in zip(labels.tolist(), best.tolist(), strict=True):
                words = [i for i in right if i != IGNORED]
                truth, predicted = (set(entities([self.tags[i] for i in one])) for one in (words, found[: len(words)]))
                hits = [a + b for a, b in zip(hits, (len(truth & predicted), len(truth), len(predicted)), strict=True)]
        nats, right_words = float(scores.nats(labels).sum()), float((best == labels)[real].sum())
        return [nats, right_words, float(real.sum()), *map(float, hits)]

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, right, words, both, truth, predicted = sums
        found = {"valid_loss": nats / words, "valid_accuracy": right / words, "valid_words": words}
        if self.marked:
            found["valid_entity_f1"] = 2 * both / max(truth + predicted, 1.0)
        return found

    def epochs(self, step: int) -> float:
        return self.train.epoch(step)


def _scores(module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Scores, Tensor]:
    """Return the scores of a batch, and its labels (B, W)."""
    scores = module(batch["tokens"], batch["mask"], batch["words"])
    return scores, batch["labels"][:, : scores.emissions.shape[1]]
