"""Training a causal language model: predict each next token of packed text.

Shape letters: B windows, T context.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, repeat
from typing import Any

import torch
from torch import Tensor, nn

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.data.mixture import MixedShards, MixtureBatches, open_train, open_valid, training_batches, verify_once
from lexmill.data.shards import TokenShards
from lexmill.data.windows import evaluation_documents, evaluation_windows
from lexmill.kinds.language_model import LanguageModel
from lexmill.kinds.language_model.sampling import sampler
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.params import Params
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, config_of, new_network, produce
from lexmill.training.task import Arrays, Task

_VALID_TOKENS = 4096


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`.

    Raises:
        UserError: the shards were made with another tokenizer, or the tokenizer loses white space.
    """
    from lexmill.kinds.language_model.carrying import CarryingTask

    model = choices.models[name]
    assert isinstance(model, LanguageModel)
    shards = layout.tokens(model.data.train, model.data.tokenizer)
    train_shards, valid = open_train(shards), open_valid(shards, model.data.corpus)
    folder = layout.tokenizer(model.data.tokenizer)
    tokenizer = tokenizers.load(folder)
    if not tokenizer.keeps_text:
        raise UserError("a WordPiece tokenizer does not keep white space; a language model needs one that does", folder)
    if tokenizer.fingerprint != train_shards.tokenizer_fingerprint:
        raise UserError(f"the shards were made with another tokenizer than {folder}; run encode again", shards)
    verify_once(train_shards, valid)
    config = config_of(model, tokenizer, train_shards.vocab_size)
    module: Any = new_network(model, config, choices.training_seed)
    task = (CarryingTask if model.data.carry_state else LanguageModelTask)(
        module,
        train_shards,
        valid,
        context=model.shape.context,
        batch_tokens=model.recipe.batch,
        data_seed=choices.data_seed,
        mask_documents=model.data.mask_documents,
    )
    parameters = sum(parameter.numel() for parameter in module.parameters())
    flops = module.flops_per_token()
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.batches.steps_per_epoch,
            metrics=lambda result: (
                metrics(result, parameters, task.epochs(result.step)) | task.member_epochs(result.step)
            ),
            speed=lambda result: speed(result, flops),
            flops_per_token=flops,
            sampler=sampler(tokenizer, next(iter(model.evaluate.prompts), "")),
        ),
        choices,
    )


def metrics(result: FitResult, parameters: int, epochs: float) -> dict[str, float]:
    """Return the stage's metrics: losses in nats per token, counts, no times."""
    return {
        "train_loss": result.train_loss,
        "valid_loss": result.metrics["valid_loss"],
        "best_step": result.best_step,
        "steps": result.step,
        "tokens": result.tokens,
        "epochs": epochs,
        "parameters": parameters,
    }


def speed(result: FitResult, flops_per_token: int) -> tuple[dict[str, float], str]:
    """Return tokens and GFLOP per second, as metrics and as a sentence."""
    tokens = result.tokens / result.step * result.steps_now / max(result.seconds, 1e-9)
    gflops = flops_per_token * tokens / 1e9
    sentence = (
        f"valid loss {result.metrics['valid_loss']:.3f} nats a token, {tokens:,.0f} tokens/s, {gflops:.0f} GFLOP/s"
    )
    return {"tokens_per_second": tokens, "gflop_per_second": gflops}, sentence


class LanguageModelTask(Task):
    """Nats per token, end tokens included.

    Args:
        module: `loss((B, T) int64, (B, T) int64, documents)` returns the summed nats.
        train, valid: the two splits; train may be a mixture.
        context: T.
        batch_tokens: targets in a global batch.
        data_seed: of the order of windows.
        mask_documents: a position sees only its target's document.

    Raises:
        UserError: train or valid is empty.
    """

    def __init__(
        self,
        module: nn.Module,
        train: TokenShards | MixedShards,
        valid: TokenShards,
        *,
        context: int,
        batch_tokens: int,
        data_seed: int,
        mask_documents: bool = False,
    ) -> None:
        if len(valid.tokens) == 0:
            raise UserError("the valid split holds no tokens; give splits.valid a larger share", valid.folder)
        self.module, self.valid, self.context, self.mask_documents = module, valid, context, mask_documents
        self.batches = training_batches(train, context, batch_tokens, data_seed)

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        inputs, targets = self.batches.rows(step, rank, world)
        batch = {"inputs": inputs, "targets": targets}
        if self.mask_documents:
            batch["documents"] = self.batches.documents(step, rank, world)
        return batch

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        return self._nats(module, batch), batch["targets"].numel()

    @staticmethod
    def _nats(module: Any, batch: Mapping[str, Tensor]) -> Tensor:
        nats: Tensor = module.loss(batch["inputs"], batch["targets"], batch.get("documents"))
        return nats

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        rows = max(1, _VALID_TOKENS // self.context)
        windows = evaluation_windows(self.valid, self.context, rows)
        documents = evaluation_documents(self.valid, self.context, rows) if self.mask_documents else repeat(None)
        every = zip(windows, documents, strict=False)
        for (inputs, targets, mask), numbers in islice(every, rank, None, world):
            targets[~mask] = IGNORED
            batch = {"inputs": inputs, "targets": targets}
            yield batch if numbers is None else {**batch, "documents": numbers}

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        return torch.stack([self._nats(module, batch).double(), (batch["targets"] != IGNORED).sum().double()])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, targets = sums
        return {"valid_loss": nats / targets}

    def epochs(self, step: int) -> float:
        return self.batches.epoch(step)

    def member_epochs(self, step: int) -> dict[str, float]:
        """Return `epochs_<corpus>`: passes over each member of a mixture after `step` steps; {} for a single corpus."""
        if not isinstance(self.batches, MixtureBatches):
            return {}
        return {f"epochs_{name}": epochs for name, epochs in self.batches.epochs(step).items()}
