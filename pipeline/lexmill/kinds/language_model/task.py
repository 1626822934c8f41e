"""Training a causal language model: what it reads, which of its tasks, the metrics of its training."""

from __future__ import annotations

from typing import Any

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.data.masking import Plan, vocabulary
from lexmill.data.mixture import open_train, open_valid, verify_once
from lexmill.kinds.language_model import Hybrid, LanguageModel, MixtureRecipe, mixing
from lexmill.kinds.language_model.carrying import CarryingTask
from lexmill.kinds.language_model.hybrid import HybridTask
from lexmill.kinds.language_model.next_token import LanguageModelTask
from lexmill.kinds.language_model.sampling import sampler
from lexmill.params import Params
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, config_of, new_network, produce


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`.

    Raises:
        UserError: the shards were made with another tokenizer, or the tokenizer loses white space.
    """
    model = choices.models[name]
    assert isinstance(model, LanguageModel)
    shards = layout.tokens(model.data.train, model.data.tokenizer)
    train_shards, valid = open_train(shards), open_valid(shards, model.data.corpus)
    folder = layout.tokenizer(model.data.tokenizer)
    tokenizer = tokenizers.load(folder)
    if not tokenizer.keeps_text:
        raise UserError(
            "this tokenizer does not give texts back; a language model needs one that does",
            folder,
        )
    if tokenizer.fingerprint != train_shards.tokenizer_fingerprint:
        raise UserError(f"the shards were made with another tokenizer than {folder}; run encode again", shards)
    verify_once(train_shards, valid)
    masked = {"masked": True} if isinstance(model.recipe, Hybrid) else {}
    config = config_of(model, tokenizer, train_shards.vocab_size, **masked)
    if isinstance(model.recipe, MixtureRecipe):
        mixing.fit(name, model, config, train_shards, valid)
        return
    module: Any = new_network(model, config, choices.training_seed)
    options: dict[str, Any] = {
        "context": model.shape.context,
        "batch_tokens": model.recipe.batch,
        "data_seed": choices.data_seed,
        "mask_documents": model.data.mask_documents,
    }
    if isinstance(model.recipe, Hybrid):
        plan = Plan(vocabulary(tokenizer), model.recipe.masking, model.recipe.share)
        options |= {"plan": plan, "masked_windows": model.recipe.masked_windows}
        task: LanguageModelTask = HybridTask(module, train_shards, valid, **options)
    else:
        task = (CarryingTask if model.data.carry_state else LanguageModelTask)(module, train_shards, valid, **options)
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
        **result.metrics,
        "best_step": result.best_step,
        "steps": result.step,
        "tokens": result.tokens,
        "epochs": epochs,
        "parameters": parameters,
    }


def speed(result: FitResult, flops_per_token: int) -> tuple[dict[str, float], str]:
    """Return tokens and GFLOP per second, as metrics and as a sentence."""
    tokens = result.rate
    gflops = flops_per_token * tokens / 1e9
    sentence = (
        f"valid loss {result.metrics['valid_loss']:.3f} nats a token, {tokens:,.0f} tokens/s, {gflops:.0f} GFLOP/s"
    )
    return {"tokens_per_second": tokens, "gflop_per_second": gflops}, sentence
