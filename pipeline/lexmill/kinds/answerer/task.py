"""Training an answerer: the mean of the nats of the answer's first and of its last token, one target per window.

A window that does not hold an answer points at its begin token, and so does every window of a question without one.

Shape letters: B windows, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.progress import say
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.texts import parts, records_of
from lexmill.kinds.answerer import Answerer, threshold
from lexmill.kinds.answerer.windows import NOWHERE, Sizes, Window, WindowBatches, encode, target, windows
from lexmill.params import Params
from lexmill.tokenizers import Tokenizer
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, check_positions, config_of, metrics_of, new_network, produce
from lexmill.training.task import Arrays, Task

VALID_BATCH = 16  # windows per validation batch; results do not depend on it


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`, then choose its threshold for no answer on the valid split.

    Raises:
        UserError: an empty split, windows longer than the network's positions, or a checkpoint that does not fit.
    """
    model = choices.models[name]
    assert isinstance(model, Answerer)
    data, corpus = model.data, PreparedCorpus(layout.corpus(model.data.corpus))
    tokenizer = tokenizers.load(layout.tokenizer(data.tokenizer))
    sizes = Sizes(data.max_tokens, data.stride, data.max_question, data.max_answer)
    more: dict[str, Any] = {"spans": True, "threshold": None, **vars(sizes)}
    config = config_of(model, tokenizer, tokenizer.vocab_size, **more)
    module: Any = new_network(model, config, choices.training_seed)
    check_positions(name, data.max_tokens, module.max_positions)
    made, counts = _windows(corpus, "train", tokenizer, sizes)
    validated, _ = _windows(corpus, "valid", tokenizer, sizes)
    batches = WindowBatches(*made, model.recipe.batch, choices.data_seed)
    valid = WindowBatches(*validated, max(model.recipe.batch, VALID_BATCH), choices.data_seed)
    if cut := counts["train_questions_cut"]:
        say(f"{name}: {cut:,} questions are longer than max_question ({data.max_question} tokens) and are cut")
    task = SpanTask(module, batches, valid)
    chosen: dict[str, float] = {}

    def finish() -> None:
        """Choose the threshold, with the weights that are kept."""
        config["threshold"], chosen["valid_f1"] = threshold.tune(module, tokenizer, corpus.records("valid"), sizes)
        if config["threshold"] is not None:
            chosen["threshold"] = config["threshold"]

    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.train.steps_per_epoch,
            metrics=lambda result: metrics(result, task, counts) | chosen,
            speed=speed,
            finish=finish,
        ),
        choices,
    )


def _windows(
    corpus: PreparedCorpus, split: str, tokenizer: Tokenizer, sizes: Sizes
) -> tuple[tuple[list[Window], list[tuple[int, int]]], dict[str, int]]:
    """Return the windows of a split with their targets, and counts of what is in them."""
    records = records_of(corpus, split)
    pairs = [(record["question"], record["context"]) for record in records]
    encoded = encode(tokenizer, pairs, sizes.max_question)
    made = list(windows(tokenizer, encoded, sizes))
    targets = [target(window, encoded[window.item].spans, records[window.item]["answers"]) for window in made]
    reached = {window.item for window, (start, _) in zip(made, targets, strict=True) if start != NOWHERE}
    answered = [i for i, record in enumerate(records) if record["answers"]]
    counts = {
        f"{split}_questions": len(records),
        f"{split}_questions_without_answer": len(records) - len(answered),
        f"{split}_questions_cut": sum(one.cut for one in encoded),
        f"{split}_answers_in_no_window": sum(i not in reached for i in answered),
        f"{split}_windows": len(made),
    }
    return (made, targets), counts


def metrics(result: FitResult, task: SpanTask, counts: Mapping[str, int]) -> dict[str, float]:
    """Return the stage's metrics: losses in nats per window, counts, no times."""
    return {**metrics_of(result, task), **counts}


def speed(result: FitResult) -> tuple[dict[str, float], str]:
    """Return windows per second, as a metric and as a sentence."""
    right, loss = 100 * result.metrics["valid_right"], result.metrics["valid_loss"]
    words = f"valid windows right {right:.1f} %, loss {loss:.3f}, {result.rate:.1f} windows/s"
    return {"windows_per_second": result.rate}, words


class SpanTask(Task):
    """Windows to the places of an answer's first and last token.

    Args:
        module: `forward(tokens, mask, segments), each (B, T) -> logits (B, T, 2)`, with its initial weights.
        train, valid: the batches of both splits.
    """

    counted = "windows"

    def __init__(self, module: nn.Module, train: WindowBatches, valid: WindowBatches) -> None:
        self.module, self.train, self.valid = module, train, valid

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return self.train.arrays(self.train.rows(step, rank, world))

    def parts(self, batch: Arrays, pass_cost: int) -> list[Arrays]:
        return parts(batch, pass_cost)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        nats, _ = _scored(module, batch)
        return nats.sum(), len(nats)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        return map(self.valid.arrays, islice(self.valid.evaluation_batches(), rank, None, world))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        nats, right = _scored(module, batch)
        return torch.stack([nats.double().sum(), right.double().sum(), torch.ones_like(nats).double().sum()])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, right, count = sums
        return {"valid_loss": nats / count, "valid_right": right / count, "valid_windows": count}

    def epochs(self, step: int) -> float:
        return self.train.epoch(step)


def _scored(module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the nats of each window, and whether both its places are the most probable ones, (B,) each."""
    logits = module(batch["tokens"], batch["mask"], batch["segments"]).float()  # (B, T, 2)
    start, end = logits.masked_fill(~batch["mask"][:, :, None], -torch.inf).unbind(-1)  # (B, T) each
    nats = [
        functional.cross_entropy(one, places, reduction="none")
        for one, places in ((start, batch["starts"]), (end, batch["ends"]))
    ]
    right = (start.argmax(1) == batch["starts"]) & (end.argmax(1) == batch["ends"])
    return (nats[0] + nats[1]) / 2, right
