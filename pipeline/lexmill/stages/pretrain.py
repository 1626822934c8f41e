"""Train a language model on token shards.

Reads   artifacts/tokens/<train>-<tokenizer>/, artifacts/tokenizers/<tokenizer>/, and what `init_from` names
Writes  artifacts/models/<name>/, metrics/pretrain/<name>.json, reports/curves/<name>.csv
Identity: params `language_models.<name>` (not its prompts), the two seeds, the shards' manifest, the bytes of what
`init_from` names, the code it imports.
Cost: steps * batch_tokens tokens; memory O(parameters + micro_batch * (context * d_model * n_layer + vocabulary)).

Wall time and speed go to .lexmill/metrics/pretrain-<name>.json, which git ignores.
"""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING, Any

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_file
from lexmill.base.strict import pick
from lexmill.compute.execution import load_execution
from lexmill.stages.entry import run_stage
from lexmill.tracking.live import sender_of

if TYPE_CHECKING:
    from lexmill.training.engine import FitResult


def main(name: str) -> None:
    """Train `language_models.<name>`."""
    choices = params.load()
    model = pick(choices.language_models, name, "language_models")

    from lexmill import models, tokenizers
    from lexmill.data.mixture import open_train, open_valid
    from lexmill.models.start import digest, start
    from lexmill.training import identity
    from lexmill.training.language_model import LanguageModelTask
    from lexmill.training.production import produce, settings_of
    from lexmill.training.sampling import sampler
    from lexmill.training.seeding import derive, seed_all

    shards = layout.tokens(model.train, model.tokenizer)
    train, valid = open_train(shards), open_valid(shards, model.corpus)
    tokenizer_folder = layout.tokenizer(model.tokenizer)
    tokenizer = tokenizers.load(tokenizer_folder)
    if tokenizer.fingerprint != train.tokenizer_fingerprint:
        raise UserError(
            f"the shards were made with another tokenizer than {tokenizer_folder}; run encode again", shards
        )
    config: dict[str, Any] = {
        "kind": "language_model",
        "family": model.family,
        "shape": dataclasses.asdict(model.shape),
        "vocab_size": train.vocab_size,
        "tokenizer_fingerprint": train.tokenizer_fingerprint,
        "corpus": model.corpus,
    }
    seed_all(derive(choices.training_seed, "weights"))
    module = models.build(config)
    start(module, config, model.init_from, tokenizer_folder)
    task = LanguageModelTask(
        module,
        train,
        valid,
        context=model.shape.context,
        batch_tokens=model.batch_tokens,
        data_seed=choices.data_seed,
        mask_documents=model.mask_documents,
    )
    trajectory = {
        "config": config,
        "init_from": digest(model.init_from),
        "batch_tokens": model.batch_tokens,
        "mask_documents": model.mask_documents,
        "data_seed": choices.data_seed,
        "tokens": sha256_file(shards / "manifest.json"),
        "code": identity.code("pretrain", model.family),
        "libraries": identity.libraries(),
    }
    parameters = sum(parameter.numel() for parameter in module.parameters())
    flops = getattr(module, "flops_per_token", lambda: 0)()
    produce(
        "pretrain",
        name,
        task,
        settings_of(model, task.batches.steps_per_epoch, choices.training_seed),
        config=config,
        trajectory=trajectory,
        add_tokenizer=lambda folder: shutil.copytree(tokenizer_folder, folder),
        metrics=lambda result: metrics(result, parameters, task.epochs(result.step)) | task.member_epochs(result.step),
        speed=lambda result: speed(result, flops),
        flops_per_token=flops,
        sampler=sampler(tokenizer, next(iter(model.prompts), "")),
        sender=sender_of(load_execution(), choices.experiment, name),
    )


def metrics(result: FitResult, parameters: int, epochs: float) -> dict[str, float]:
    """The stage's metrics: losses in nats a token, counts, no times."""
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
    """Tokens and GFLOP a second, as figures and as a sentence."""
    tokens = result.tokens / result.step * result.steps_now / max(result.seconds, 1e-9)
    gflops = flops_per_token * tokens / 1e9
    told = f"valid loss {result.metrics['valid_loss']:.3f} nats a token, {tokens:,.0f} tokens/s, {gflops:.0f} GFLOP/s"
    return {"tokens_per_second": tokens, "gflop_per_second": gflops}, told


if __name__ == "__main__":
    run_stage(main)
