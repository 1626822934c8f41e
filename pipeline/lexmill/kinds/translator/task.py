"""Training a translator: the loss of each target token, end token included; validation in plain nats."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from lexmill import tokenizers
from lexmill.base import layout, progress
from lexmill.base.errors import UserError
from lexmill.data.mixture import open_train, verify_once
from lexmill.data.shards import TokenShards
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator import TranslationRecipe, Translator
from lexmill.kinds.translator.batches import Batch, ParallelBatches, Side
from lexmill.kinds.translator.losses import consistent_sum, own_places, smoothed_sum, with_own
from lexmill.kinds.translator.metrics import score_sums, splitter, statistics
from lexmill.kinds.translator.prefixes import begins_of
from lexmill.kinds.translator.tags import tag
from lexmill.params import Params
from lexmill.tokenizers.resegment import Resegmenter
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, config_of, new_network, produce
from lexmill.training.task import Arrays, Task

if TYPE_CHECKING:
    from torch import Tensor, nn

    from lexmill.decoding.beam_search import EncoderDecoder as Searched
    from lexmill.models.common.encoder_decoder import EncoderDecoder
    from lexmill.tokenizers import Tokenizer


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`; raises `UserError` if the shards were made with another tokenizer."""
    model = choices.models[name]
    assert isinstance(model, Translator)
    shards, own = (layout.tokens(name, model.data.tokenizer) for name in (model.data.learned, model.data.corpus))
    folder = layout.tokenizer(model.data.tokenizer)
    tokenizer = tokenizers.load(folder)
    sides = (open_train(shards, "source"), open_train(shards, "target"))
    begins = [_begin(name, model, tokenizer) for name in getattr(sides[0], "members", (model.data.learned,))]
    redraw = _redraw(model.recipe, tokenizer)
    train_batches = _batches(*sides, model, choices.data_seed, begins=begins, redraw=redraw)
    held = (TokenShards(own, "valid", "source"), TokenShards(own, "valid", "target"))
    valid = _batches(*held, model, choices.data_seed, begins=[_begin(model.data.corpus, model, tokenizer)])
    if tokenizer.fingerprint != train_batches.source.tokenizer_fingerprint:
        raise UserError(f"the shards were made with another tokenizer than {folder}; run encode again", shards)
    more: dict[str, Any] = {"target_languages": model.data.languages} if model.data.target_languages else {}
    if prefixes := begins_of(model.shape, tokenizer):
        more["begins"] = prefixes
    config = config_of(model, tokenizer, train_batches.source.vocab_size, **more)
    module: Any = new_network(model, config, choices.training_seed)
    steps = model.recipe.length.steps(model.recipe.batch, train_batches.steps_per_epoch)
    task = TranslationTask(module, train_batches, valid, model.recipe, steps, tokenizer=tokenizer)
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=train_batches.steps_per_epoch,
            metrics=lambda result: metrics(result, task),
            speed=lambda result: speed(result, module),
        ),
        choices,
    )


def _redraw(recipe: TranslationRecipe, tokenizer: Tokenizer) -> Resegmenter | None:
    """Return what segments the training's sentences at random; None: they stay as the shards have them."""
    if not recipe.subword_dropout and not recipe.subword_alpha:
        return None
    return Resegmenter(tokenizer, dropout=recipe.subword_dropout, alpha=recipe.subword_alpha)


def _begin(corpus: str, model: Translator, tokenizer: Tokenizer) -> list[int]:
    """Return the ids that the sources of a corpus begin with: its language's tag, if there are tags."""
    language = model.data.target_languages.get(corpus)
    return [] if language is None else tag(tokenizer, language)


def _batches(
    source: Side,
    target: Side,
    model: Translator,
    seed: int,
    *,
    begins: Sequence[Sequence[int]],
    redraw: Resegmenter | None = None,
) -> ParallelBatches:
    """Return the batches of a split; validation batches fit every pair that the network has positions for."""
    positions = model.shape.max_positions
    tokens = model.recipe.batch if source.split == "train" else max(model.recipe.batch, positions)
    verify_once(source, target)
    batches = ParallelBatches(source, target, tokens, seed, positions, begins=begins, redraw=redraw)
    if batches.dropped:
        most = min(tokens, positions)
        progress.say(f"{source.split}: {batches.dropped} pairs longer than {most} tokens are left out")
    return batches


def metrics(result: FitResult, task: TranslationTask) -> dict[str, float]:
    """Return the stage's metrics: losses in nats per token (train's is smoothed), counts, no times."""
    return {
        "train_loss": result.train_loss,
        **result.metrics,
        "best_step": result.best_step,
        "steps": result.step,
        "tokens": result.tokens,
        "epochs": task.epochs(result.step),
        "parameters": task.module.count_parameters(),
        "train_pairs": len(task.train.pairs),
        "train_dropped": task.train.dropped,
        "valid_dropped": task.valid.dropped,
        "padding_share": task.train.padding_share(),
        **{f"epochs_{name}": count for name, count in task.train.member_epochs(result.step).items()},
    }


def speed(result: FitResult, module: EncoderDecoder) -> tuple[dict[str, float], str]:
    """Return targets and GFLOP per second, as metrics and as a sentence, without padding and validation."""
    seconds, targets = max(result.seconds, 1e-9), result.tokens * result.steps_now // result.step
    rate = targets / seconds
    gflops = module.training_flops(targets, targets) / seconds / 1e9  # sources are about as long as targets
    loss = result.metrics["valid_loss"]
    sentence = f"valid loss {loss:.3f} nats a token, {rate:,.0f} targets/s, {gflops:.0f} GFLOP/s"
    return {"tokens_per_second": rate, "gflop_per_second": gflops}, sentence


class TranslationTask(Task):
    """Source to target.

    Args:
        module: the translator, with its initial weights.
        train, valid: the batches of both splits, valid's with room for its longest pair.
        recipe: its losses, for training only, and what decides which weights are kept.
        steps: of the whole training.
        tokenizer: writes translations where BLEU or chrF decides, and says what is never written.
    """

    module: EncoderDecoder

    def __init__(
        self,
        module: EncoderDecoder,
        train: ParallelBatches,
        valid: ParallelBatches,
        recipe: TranslationRecipe,
        steps: int,
        *,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self.module, self.train, self.valid, self.recipe, self.steps = module, train, valid, recipe, steps
        self.tokenizer = tokenizer
        self._unsmoothed = tokenizer.never_written if tokenizer else ()
        self.metric = f"valid_{recipe.decided_by}"
        self.higher_is_better = recipe.decided_by != "loss"

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        rows = self.train.rows(step, rank, world)
        arrays = _arrays(rows)
        if self.recipe.scheduled_sampling:
            share = self.recipe.scheduled_sampling * step / self.steps
            arrays["own"] = own_places(rows.index, rows.target_mask, share, self.train.seed, step)
        return arrays

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | int]:
        if "own" in batch:
            batch = with_own(module, batch)
        if self.recipe.r_drop:
            return consistent_sum(module, batch, self.recipe.label_smoothing, self.recipe.r_drop, self._unsmoothed)
        return smoothed_sum(module, batch, self.recipe.label_smoothing, self._unsmoothed)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        return map(_arrays, islice(self.valid.evaluation_batches(), rank, None, world))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        nats, targets = smoothed_sum(module, batch, 0.0)
        return [float(nats), float(targets), *self._written(module, batch)]

    def _written(self, module: nn.Module, batch: Mapping[str, Tensor]) -> list[float]:
        """Return the summed statistics of the metric that decides, of greedy translations; none for the loss."""
        if self.recipe.decided_by == "loss":
            return []
        from lexmill.decoding.beam_search import beam_search

        assert self.tokenizer is not None
        greedy, special = BeamSearch(beam_size=1), self.tokenizer.special
        searched = beam_search(cast("Searched", module), batch["source"], batch["source_mask"], greedy, special=special)
        made = [self.tokenizer.decode(best.tokens) for best, *_ in searched]
        targets = zip(batch["target_out"], batch["target_mask"], strict=True)
        right = [self.tokenizer.decode(row[real][:-1].tolist()) for row, real in targets]
        found = statistics(self.recipe.decided_by, made, right, splitter("", tokenized=self.tokenizer.at_blanks))
        return [sum(column) for column in zip(*found, strict=True)]

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        nats, targets, *written = sums
        loss = nats / targets
        decides = {self.metric: score_sums(self.recipe.decided_by, written)} if written else {}
        return {**decides, "valid_loss": loss, "valid_perplexity": math.exp(min(loss, 700.0)), "valid_targets": targets}

    def epochs(self, step: int) -> float:
        return self.train.epoch(step)


def _arrays(batch: Batch) -> dict[str, Any]:
    return {name: array for name, array in vars(batch).items() if name != "index"}
