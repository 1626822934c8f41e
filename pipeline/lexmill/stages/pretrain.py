"""Train a language model on token shards.

Reads   artifacts/tokens/<corpus>-<tokenizer>/, artifacts/tokenizers/<tokenizer>/
Writes  artifacts/models/<name>/, metrics/pretrain/<name>.json, reports/curves/<name>.csv
Identity: params `language_models.<name>` (not its prompts), the two seeds, the shards' manifest, the code it imports.
Cost: steps * batch_tokens tokens; memory O(parameters + micro_batch * (context * d_model * n_layer + vocabulary)).

Wall time and speed go to .lexmill/metrics/pretrain-<name>.json, which git ignores.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import layout, params, progress
from lexmill.errors import UserError
from lexmill.execution import load_execution
from lexmill.stages.entry import run_stage
from lexmill.storage import new_folder, sha256_file, write_json
from lexmill.strict import nearest

if TYPE_CHECKING:
    from lexmill.training.engine import FitResult

CODE = ("data", "models/__init__.py", "models/common", "stages/pretrain.py", "tokenizers", "training")


def main(name: str) -> None:
    """Train `language_models.<name>`."""
    choices = params.load()
    if name not in choices.language_models:
        raise UserError(f"language_models.{name} is not in params.yaml{nearest(name, choices.language_models)}")
    model = choices.language_models[name]
    execution = load_execution()

    from lexmill import models, tokenizers
    from lexmill.data.shards import TokenShards
    from lexmill.models import folder as model_folder
    from lexmill.training import engine, identity
    from lexmill.training.curve import write_csv
    from lexmill.training.language_model import LanguageModelTask
    from lexmill.training.seeding import derive, seed_all
    from lexmill.training.settings import TrainingSettings

    shards = layout.tokens(model.corpus, model.tokenizer)
    train, valid = TokenShards(shards, "train"), TokenShards(shards, "valid")
    tokenizer_folder = layout.tokenizer(model.tokenizer)
    if tokenizers.load(tokenizer_folder).fingerprint != train.tokenizer_fingerprint:
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
    task = LanguageModelTask(
        module,
        train,
        valid,
        context=model.shape.context,
        batch_tokens=model.batch_tokens,
        data_seed=choices.data_seed,
    )
    settings = TrainingSettings(
        optimizer=model.optimizer,
        schedule=model.schedule,
        steps=model.steps,
        seed=choices.training_seed,
        precision=model.precision,
        clip_norm=model.clip_norm,
        evaluate_every=model.evaluate_every,
        keep=model.keep,
    )
    trajectory = {
        "config": config,
        "batch_tokens": model.batch_tokens,
        "data_seed": choices.data_seed,
        "tokens": sha256_file(shards / "manifest.json"),
        "code": identity.code(*CODE, f"models/{model.family}"),
        "libraries": identity.libraries(),
    }
    result = engine.fit(task, settings, execution, name=f"pretrain-{name}", identity=trajectory)
    if not result.first_rank:
        return
    with new_folder(layout.model(name)) as folder:
        model_folder.save(folder, config, module)
        shutil.copytree(tokenizer_folder, folder / model_folder.TOKENIZER)
    write_csv(layout.curve(name), result.rows)
    parameters = sum(parameter.numel() for parameter in module.parameters())
    write_json(layout.metrics("pretrain", name), metrics(result, parameters, task.epochs(result.step)))
    _report_speed(name, result, getattr(module, "flops_per_token", lambda: 0)() * result.tokens // result.step)
    engine.checkpoint_folder(settings, execution, f"pretrain-{name}", trajectory).remove()


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


def _report_speed(name: str, result: FitResult, flops_per_step: int) -> None:
    seconds = max(result.seconds, 1e-9)
    speed = {
        "seconds": result.seconds,
        "steps": result.steps_now,
        "tokens_per_second": result.tokens / result.step * result.steps_now / seconds,
        "gflop_per_second": flops_per_step * result.steps_now / seconds / 1e9,
    }
    write_json(Path(".lexmill") / "metrics" / f"pretrain-{name}.json", speed)
    progress.say(
        f"pretrain {name}: valid loss {result.metrics['valid_loss']:.3f} nats a token,"
        f" {speed['tokens_per_second']:,.0f} tokens/s, {speed['gflop_per_second']:.0f} GFLOP/s"
    )


if __name__ == "__main__":
    run_stage(main)
