"""Train a translator on pairs of token shards.

Reads   artifacts/tokens/<corpus>-<tokenizer>/, artifacts/tokenizers/<tokenizer>/
Writes  artifacts/models/<name>/, metrics/train_translator/<name>.json, reports/curves/<name>.csv
Identity: params `translators.<name>` (not its beam, which only the users of the model read), the two seeds, the
shards' manifest, the code it imports.
Cost: steps * batch_tokens tokens on each side; memory O(parameters + micro_batch * (d_model * layers + d_ffn)).

Wall time and speed go to .lexmill/metrics/train_translator-<name>.json, which git ignores.
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
    from lexmill.models.transformer import Transformer
    from lexmill.training.engine import FitResult
    from lexmill.training.translation import TranslationTask

CODE = ("data", "models/__init__.py", "models/common", "stages/train_translator.py", "tokenizers", "training")


def main(name: str) -> None:
    """Train `translators.<name>`."""
    choices = params.load()
    if name not in choices.translators:
        raise UserError(f"translators.{name} is not in params.yaml{nearest(name, choices.translators)}")
    model = choices.translators[name]
    execution = load_execution()

    from lexmill import models, tokenizers
    from lexmill.models import folder as model_folder
    from lexmill.training import engine, identity
    from lexmill.training.curve import write_csv
    from lexmill.training.seeding import derive, seed_all
    from lexmill.training.settings import TrainingSettings
    from lexmill.training.translation import TranslationTask

    shards = layout.tokens(model.corpus, model.tokenizer)
    train = _batches(shards, "train", model, choices.data_seed)
    valid = _batches(shards, "valid", model, choices.data_seed)
    tokenizer_folder = layout.tokenizer(model.tokenizer)
    if tokenizers.load(tokenizer_folder).fingerprint != train.source.tokenizer_fingerprint:
        raise UserError(
            f"the shards were made with another tokenizer than {tokenizer_folder}; run encode again", shards
        )
    config: dict[str, Any] = {
        "kind": "translator",
        "family": model.family,
        "shape": dataclasses.asdict(model.shape),
        "vocab_size": train.source.vocab_size,
        "tokenizer_fingerprint": train.source.tokenizer_fingerprint,
        "corpus": model.corpus,
    }
    seed_all(derive(choices.training_seed, "weights"))
    module: Any = models.build(config)
    task = TranslationTask(module, train, valid, model.label_smoothing)
    settings = TrainingSettings(
        optimizer=model.optimizer,
        schedule=model.schedule,
        steps=model.steps,
        seed=choices.training_seed,
        precision=model.precision,
        clip_norm=model.clip_norm,
        evaluate_every=model.evaluate_every,
        keep=model.keep,
        average_last=model.average_last,
    )
    trajectory = {
        "config": config,
        "batch_tokens": model.batch_tokens,
        "label_smoothing": model.label_smoothing,
        "data_seed": choices.data_seed,
        "tokens": sha256_file(shards / "manifest.json"),
        "code": identity.code(*CODE, f"models/{model.family}"),
        "libraries": identity.libraries(),
    }
    result = engine.fit(task, settings, execution, name=f"train_translator-{name}", identity=trajectory)
    if not result.first_rank:
        return
    with new_folder(layout.model(name)) as folder:
        model_folder.save(folder, config, module)
        shutil.copytree(tokenizer_folder, folder / model_folder.TOKENIZER)
    write_csv(layout.curve(name), result.rows)
    write_json(layout.metrics("train_translator", name), metrics(result, task))
    _report_speed(name, result, module)
    engine.checkpoint_folder(settings, execution, f"train_translator-{name}", trajectory).remove()


def _batches(shards: Path, split: str, model: params.Translator, seed: int) -> Any:
    """The batches of a split; every pair of valid fits, as long as the network has positions for it."""
    from lexmill.data.parallel import ParallelBatches
    from lexmill.data.shards import TokenShards

    positions = model.shape.max_positions
    tokens = model.batch_tokens if split == "train" else max(model.batch_tokens, positions)
    sides = (TokenShards(shards, split, "source"), TokenShards(shards, split, "target"))
    batches = ParallelBatches(*sides, tokens, seed, positions)
    if batches.dropped:
        progress.say(f"{split}: {batches.dropped} pairs longer than {min(tokens, positions)} tokens are left out")
    return batches


def metrics(result: FitResult, task: TranslationTask) -> dict[str, float]:
    """The stage's metrics: losses in nats a token (train's is the smoothed one), counts, no times."""
    return {
        "train_loss": result.train_loss,
        "valid_loss": result.metrics["valid_loss"],
        "valid_perplexity": result.metrics["valid_perplexity"],
        "valid_targets": result.metrics["valid_targets"],
        "best_step": result.best_step,
        "steps": result.step,
        "tokens": result.tokens,
        "epochs": task.epochs(result.step),
        "parameters": task.module.count_parameters(),
        "train_pairs": len(task.train.pairs),
        "train_dropped": task.train.dropped,
        "valid_dropped": task.valid.dropped,
        "padding_share": task.train.padding_share(),
    }


def _report_speed(name: str, result: FitResult, module: Transformer) -> None:
    seconds, targets = max(result.seconds, 1e-9), result.tokens * result.steps_now // result.step
    speed = {
        "seconds": result.seconds,
        "steps": result.steps_now,
        "tokens_per_second": targets / seconds,
        # Sources are about as long as targets; padding and validation are not counted.
        "gflop_per_second": module.training_flops(targets, targets) / seconds / 1e9,
    }
    write_json(Path(".lexmill") / "metrics" / f"train_translator-{name}.json", speed)
    progress.say(
        f"train_translator {name}: valid loss {result.metrics['valid_loss']:.3f} nats a token,"
        f" {speed['tokens_per_second']:,.0f} targets/s, {speed['gflop_per_second']:.0f} GFLOP/s"
    )


if __name__ == "__main__":
    run_stage(main)
