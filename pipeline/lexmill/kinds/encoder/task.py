"""Pre-training an encoder: nats of masked tokens, of the order of two segments, of replaced tokens.

The losses of an objective are summed per masked token: a pair's loss, and the mean loss of finding replaced tokens in
a piece, count once for each masked token of the piece. So sums are divided once by the number of masked tokens, and no
result depends on how a batch is cut.

Shape letters: B pieces, T tokens, M masked tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.data.masking import Plan, vocabulary
from lexmill.data.mixture import verify_once
from lexmill.data.shards import TokenShards
from lexmill.data.texts import parts
from lexmill.kinds.encoder import Encoder, Pretraining
from lexmill.kinds.encoder.batches import MaskedBatches, Pieces, Reading
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.params import Params
from lexmill.tokenizers import Tokenizer
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, check_positions, config_of, new_network, produce
from lexmill.training.task import Arrays, Task

_VALID_PIECES = 64  # in a validation batch; results do not depend on it


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`.

    Raises:
        UserError: the shards were made with another tokenizer, the tokenizer has no mask token, a split is empty, or
            the network is too short for the pieces.
    """
    model = choices.models[name]
    assert isinstance(model, Encoder)
    data, recipe = model.data, model.recipe
    shards, folder = layout.tokens(data.corpus, data.tokenizer), layout.tokenizer(data.tokenizer)
    splits = {split: TokenShards(shards, split) for split in ("train", "valid")}
    tokenizer = tokenizers.load(folder)
    if tokenizer.fingerprint != splits["train"].tokenizer_fingerprint:
        raise UserError(f"the shards were made with another tokenizer than {folder}; run encode again", shards)
    verify_once(*splits.values())
    heads = {"objective": recipe.objective, "pairs": recipe.pairs, "generator": dict(recipe.generator)}
    config = config_of(model, tokenizer, tokenizer.vocab_size, pretraining=heads, max_tokens=data.max_tokens)
    module: Any = new_network(model, config, choices.training_seed)
    check_positions(name, data.max_tokens, module.max_positions)
    how, room = reading(tokenizer, recipe), data.max_tokens - (2 if recipe.pairs == "none" else 3)
    sizes = {"train": recipe.batch, "valid": _VALID_PIECES}
    batches = {
        split: MaskedBatches(
            Pieces(splits[split], room, 1 if recipe.pairs == "none" else 2), how, sizes[split], choices.data_seed
        )
        for split in splits
    }
    masked = recipe.objective == "masked"
    task = MaskedTask(module, batches) if masked else ReplacedTask(module, batches, recipe.replaced_weight)
    parameters = sum(parameter.numel() for parameter in module.encoder.parameters())
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.train.steps_per_epoch,
            metrics=lambda result: metrics(result, task, parameters),
            speed=speed,
        ),
        choices,
    )


def reading(tokenizer: Tokenizer, recipe: Pretraining) -> Reading:
    """Return how pieces become rows; raise `UserError` where the tokenizer has no mask token."""
    return Reading(
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
        pad_id=tokenizer.pad_id,
        plan=Plan(vocabulary(tokenizer), recipe.masking, recipe.share, keep=recipe.objective == "masked"),
        pairs=recipe.pairs,
    )


def metrics(result: FitResult, task: _EncoderTask, parameters: int) -> dict[str, float]:
    """Return the stage's metrics: losses in nats, counts, no times."""
    return {
        "train_loss": result.train_loss,
        **result.metrics,
        "best_step": result.best_step,
        "steps": result.step,
        "masked_tokens": result.tokens,
        "epochs": task.epochs(result.step),
        "train_pieces": len(task.train.pieces),
        "parameters": parameters,
    }


def speed(result: FitResult) -> tuple[dict[str, float], str]:
    """Return masked tokens per second, as a metric and as a sentence."""
    words = f"valid loss {result.metrics['valid_masked_loss']:.3f} nats a masked token, {result.rate:,.0f} of them/s"
    return {"tokens_per_second": result.rate}, words


class _EncoderTask(Task):
    """What both objectives share: the batches."""

    counted = "tokens"

    def __init__(self, module: nn.Module, batches: Mapping[str, MaskedBatches]) -> None:
        self.module, self.train, self.valid = module, batches["train"], batches["valid"]

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return self.train.rows(step, rank, world)

    def parts(self, batch: Arrays, pass_cost: int) -> list[Arrays]:
        return parts(batch, pass_cost)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        return islice(self.valid.evaluation_batches(), rank, None, world)

    def epochs(self, step: int) -> float:
        return self.train.epoch(step)


class MaskedTask(_EncoderTask):
    """Masked tokens of a `MaskedLanguageModel`; where the batches have pairs, whether the second segment follows."""

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        logits, order, right = _read(module, batch)
        total = functional.cross_entropy(logits, right, reduction="sum")
        if order is not None:
            masked = (batch["labels"] != IGNORED).sum(1)  # (B,)
            total = total + (functional.cross_entropy(order, batch["follows"], reduction="none") * masked).sum()
        return total, len(right)

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        logits, order, right = _read(module, batch)
        nats, found = functional.cross_entropy(logits, right, reduction="sum"), (logits.argmax(1) == right).sum()
        sums = [nats, found, len(right)]
        if order is not None:
            each = functional.cross_entropy(order, batch["follows"], reduction="none")
            masked = (batch["labels"] != IGNORED).sum(1)
            sums += [each.sum(), (order.argmax(1) == batch["follows"]).sum(), len(each), (each * masked).sum()]
        return torch.stack([torch.as_tensor(one, device=logits.device).double() for one in sums])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, found, count, *pairs = sums
        loss = nats / count
        metrics = {"valid_loss": loss, "valid_masked_loss": loss, "valid_masked_accuracy": found / count}
        if pairs:
            pair_nats, right, texts, weighted = pairs
            metrics["valid_loss"] += weighted / count
            metrics |= {"valid_pair_loss": pair_nats / texts, "valid_pair_accuracy": right / texts}
        return metrics


def _read(module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None, Tensor]:
    """Return logits (M, V) at the masked tokens, those of the pairs (B, 2), and the right tokens (M,)."""
    chosen = batch["labels"] != IGNORED
    logits, order = module(batch["tokens"], batch["mask"], chosen, batch.get("segments"))
    return logits.float(), None if order is None else order.float(), batch["labels"][chosen]


class ReplacedTask(_EncoderTask):
    """Tokens that a generator replaced, and the generator's masked tokens.

    The generator's token at a masked position is drawn by the noise of the batch, so it is a function of the step.
    Loss and accuracy of finding are over all real tokens; a token that the generator got right counts as not replaced.

    Args:
        module: a `ReplacedTokenDetection`.
        batches: of train and valid.
        weight: of finding, against the generator's loss.
    """

    def __init__(self, module: nn.Module, batches: Mapping[str, MaskedBatches], weight: float) -> None:
        super().__init__(module, batches)
        self.weight = weight

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        found = self._found(module, batch)
        return found.nats + self.weight * found.weighted, found.count

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        found = self._found(module, batch)
        sums = [found.nats, found.right, found.count, found.each.sum(), found.found, batch["mask"].sum()]
        sums += [found.weighted, found.replaced.sum()]
        return torch.stack([torch.as_tensor(one, device=found.nats.device).double() for one in sums])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, right, count, finding, found, tokens, weighted, replaced = sums
        return {
            "valid_loss": (nats + self.weight * weighted) / count,
            "valid_masked_loss": nats / count,
            "valid_masked_accuracy": right / count,
            "valid_replaced_loss": finding / tokens,
            "valid_replaced_accuracy": found / tokens,
            "valid_replaced_share": replaced / tokens,
        }

    @staticmethod
    def _found(module: nn.Module, batch: Mapping[str, Tensor]) -> _Found:
        labels, real = batch["labels"], batch["mask"]
        logits, found, replaced = module(batch["tokens"], real, labels, batch["noise"])
        logits, chosen = logits.float(), labels != IGNORED
        wanted = replaced.float()
        each = functional.binary_cross_entropy_with_logits(found.float(), wanted, reduction="none") * real  # (B, T)
        return _Found(
            nats=functional.cross_entropy(logits, labels[chosen], reduction="sum"),
            right=(logits.argmax(1) == labels[chosen]).sum(),
            count=len(logits),
            each=each,
            found=(((found > 0) == replaced) & real).sum(),
            weighted=(each.sum(1) / real.sum(1).clamp(min=1) * chosen.sum(1)).sum(),
            replaced=replaced,
        )


@dataclass(frozen=True)
class _Found:
    """Sums over a batch.

    Attributes:
        nats, right, count: of the generator: nats, number of right tokens and of masked tokens.
        each, found: of the encoder: each token's nats (B, T), the number of right answers.
        weighted: the mean nats of finding in each piece, once for each of its masked tokens.
        replaced: which tokens were replaced, (B, T).
    """

    nats: Tensor
    right: Tensor
    count: int
    each: Tensor
    found: Tensor
    weighted: Tensor
    replaced: Tensor
