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

from lexmill import params
from lexmill.base import layout, progress
from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_file
from lexmill.base.strict import nearest
from lexmill.compute.execution import load_execution
from lexmill.stages.entry import run_stage
from lexmill.tracking.live import sender_of

if TYPE_CHECKING:
    from lexmill.models.transformer.model import Transformer
    from lexmill.training.engine import FitResult
    from lexmill.training.translation import TranslationTask

CODE = ("data", "models/__init__.py", "models/common", "stages/train_translator.py", "tokenizers", "training")


def main(name: str) -> None:
    """Train `translators.<name>`."""
    choices = params.load()
    if name not in choices.translators:
        raise UserError(f"translators.{name} is not in params.yaml{nearest(name, choices.translators)}")
    model = choices.translators[name]

    from lexmill import models, tokenizers
    from lexmill.training import identity
    from lexmill.training.production import produce, settings_of
    from lexmill.training.seeding import derive, seed_all
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
    trajectory = {
        "config": config,
        "batch_tokens": model.batch_tokens,
        "label_smoothing": model.label_smoothing,
        "data_seed": choices.data_seed,
        "tokens": sha256_file(shards / "manifest.json"),
        "code": identity.code(*CODE, f"models/{model.family}"),
        "libraries": identity.libraries(),
    }
    produce(
        "train_translator",
        name,
        task,
        settings_of(model, train.steps_per_epoch, choices.training_seed),
        config=config,
        trajectory=trajectory,
        add_tokenizer=lambda folder: shutil.copytree(tokenizer_folder, folder),
        metrics=lambda result: metrics(result, task),
        speed=lambda result: speed(result, module),
        sender=sender_of(load_execution(), choices.experiment, name),
    )


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


def speed(result: FitResult, module: Transformer) -> tuple[dict[str, float], str]:
    """Targets and GFLOP a second, as figures and as a sentence; padding and looks at valid are not counted."""
    seconds, targets = max(result.seconds, 1e-9), result.tokens * result.steps_now // result.step
    rate = targets / seconds
    gflops = module.training_flops(targets, targets) / seconds / 1e9  # sources are about as long as targets
    told = f"valid loss {result.metrics['valid_loss']:.3f} nats a token, {rate:,.0f} targets/s, {gflops:.0f} GFLOP/s"
    return {"tokens_per_second": rate, "gflop_per_second": gflops}, told


if __name__ == "__main__":
    run_stage(main)
