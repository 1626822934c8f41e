"""What every training does: build the network, train or resume, write the results.

A kill at any moment is safe: outputs come first, each written whole or not at all; the checkpoint is removed last.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import models, tokenizers
from lexmill.base import layout, progress
from lexmill.base.errors import UserError
from lexmill.base.storage import new_folder, sha256_file, write_json
from lexmill.compute.execution import load_execution
from lexmill.models import folder as model_folder
from lexmill.models.start import digest, start
from lexmill.params import Params
from lexmill.params.adaptation import Adaptation
from lexmill.params.length import Length
from lexmill.params.models import Model
from lexmill.params.optimizers import WarmupStableDecaySchedule
from lexmill.params.recipe import Steps
from lexmill.tokenizers.task_tokens import TASK_TOKENS, add_task_tokens
from lexmill.tracking.live import sender_of
from lexmill.training import engine, identity
from lexmill.training.adapting import adapt, merge
from lexmill.training.curve import write_csv
from lexmill.training.engine import FitResult
from lexmill.training.seeding import derive, seed_all
from lexmill.training.settings import TrainingSettings
from lexmill.training.speed import Meter, peak_of
from lexmill.training.task import Task
from lexmill.training.watching import FOLDER, Sampler, Watch

if TYPE_CHECKING:
    from torch import nn

    from lexmill.tokenizers import Tokenizer

STAGE = "train"


@dataclass(frozen=True)
class Training:
    """A training of a model of params.yaml.

    Attributes:
        name, model: the entry.
        config: the model folder's config.json.
        task: the network, its batches and its loss.
        steps_per_epoch: optimizer steps in one pass over train.
        metrics: the stage's metrics from a result, without times.
        speed: metrics of the speed, for .lexmill/metrics/ only, and a sentence of them.
        flops_per_token: of training, for the utilisation; 0: unknown.
        sampler: writes a sample text at intervals; None: no samples.
        finish: turns the trained network into the one that is written.
    """

    name: str
    model: Model
    config: dict[str, Any]
    task: Task
    steps_per_epoch: int
    metrics: Callable[[FitResult], dict[str, float]]
    speed: Callable[[FitResult], tuple[dict[str, float], str]]
    flops_per_token: int = 0
    sampler: Sampler | None = None
    finish: Callable[[], None] = lambda: None


def config_of(model: Model, tokenizer: Tokenizer, vocab_size: int, **more: Any) -> dict[str, Any]:
    """Return the model folder's config.json: what the network is built from and trained on."""
    return {
        "kind": model.kind,
        "family": model.family,
        "shape": dataclasses.asdict(model.shape),
        "vocab_size": vocab_size,
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "corpus": model.data.corpus,
        **({"direction": "both"} if model.both_directions else {}),
        **({"task_tokens": len(TASK_TOKENS)} if model.task_tokens else {}),
        **more,
    }


def new_network(model: Model, config: dict[str, Any], seed: int) -> nn.Module:
    """Return the network with its initial weights, a function of the seed and of what `start` names."""
    seed_all(derive(seed, "weights"))
    module = models.build(config)
    folder = layout.tokenizer(model.data.tokenizer)
    start(module, config, model.start, folder)
    parts: list[Any] = list(module.modules())
    for part in parts:
        if hasattr(part, "draw"):  # it reads its tokens as they look
            tokenizer = tokenizers.load(folder)
            part.draw([tokenizer.decode([number]) for number in range(config["vocab_size"])])
    return module


def check_positions(name: str, max_tokens: int, positions: int) -> None:
    """Raise `UserError` where the model `name` is to read more tokens than its network has positions."""
    if max_tokens > positions:
        raise UserError(
            f"models.{name}.data.max_tokens is {max_tokens}, but the network has {positions} positions; lower it"
        )


def metrics_of(result: FitResult, task: Task) -> dict[str, float]:
    """Return the metrics that the trainings of many kinds share: losses a target, counts, no times."""
    return {
        "train_loss": result.train_loss,
        **result.metrics,
        "best_step": result.best_step,
        "steps": result.step,
        "epochs": task.epochs(result.step),
        "stopped_early": int(result.stopped_early),
        "parameters": sum(parameter.numel() for parameter in task.module.parameters()),
    }


def settings_of(recipe: Steps, steps_per_epoch: int, seed: int) -> TrainingSettings:
    """Return the engine's settings from a recipe, with lengths in steps.

    Raises:
        UserError: the schedule does not fit into the length (known only once both are in steps).
    """
    total = recipe.length.steps(recipe.batch, steps_per_epoch)

    def steps(length: Length) -> int:
        return length.steps(recipe.batch, steps_per_epoch, total)

    schedule = recipe.schedule
    warmup = steps(schedule.warmup)
    decay = steps(schedule.decay) if isinstance(schedule, WarmupStableDecaySchedule) else 0
    if warmup >= total > 1:
        raise UserError(f"recipe.schedule.warmup: its {warmup} steps must be fewer than those of length ({total})")
    if warmup + decay > total:
        raise UserError(
            f"recipe.schedule.decay: warm-up and decay take {warmup} + {decay} steps, but length has {total};"
            " shorten them"
        )
    return TrainingSettings(
        optimizer=recipe.optimizer,
        schedule=schedule,
        steps=total,
        warmup_steps=warmup,
        decay_steps=decay,
        seed=seed,
        precision=recipe.precision,
        clip_norm=recipe.clip_norm,
        validate_every=max(1, steps(recipe.validate_every)),
        keep=recipe.keep,
        averaged=recipe.averaged,
        ema_decay=recipe.ema_decay,
        patience=recipe.patience,
    )


def produce(training: Training, choices: Params) -> None:
    """Train, and write the model folder, the curve, the metrics and the speed."""
    model, task = training.model, training.task
    execution, run = load_execution(), f"{STAGE}-{training.name}"
    settings = settings_of(model.steps, training.steps_per_epoch, choices.training_seed)
    inputs = choices.inputs[training.name]
    # All that shapes the training besides its settings: no other training's checkpoint is ever resumed.
    trajectory = {
        "config": training.config,
        "start": digest(model.start),
        "data": [sha256_file(Path(path) / "manifest.json") for path in dict.fromkeys((inputs.data, inputs.valid))],
        "reading": repr(model.data),
        "recipe": _beyond(model.steps, settings),
        "data_seed": choices.data_seed,
        "code": identity.code(model.kind, model.family),
        "libraries": identity.libraries(model.family),
    }
    watch = Watch(
        run,
        Meter(training.flops_per_token, peak_of(execution, settings.precision)),
        sender=sender_of(execution, choices.experiment, training.name),
        sampler=training.sampler,
        sample_every=execution.sample_every,
        system_seconds=execution.system_metrics_seconds,
        counted=task.counted,
    )
    if isinstance(model.recipe, Adaptation):
        task.pace = adapt(task.module, model.recipe, training.steps_per_epoch)
    with watch:
        result = engine.fit(task, settings, execution, name=run, identity=trajectory, watch=watch)
        if not result.first_rank:
            return
        if isinstance(model.recipe, Adaptation):
            merge(task.module, model.recipe)
        training.finish()
        write_model(training.name, model, training.config, task.module)
        write_csv(layout.curve(training.name), result.rows)
        write_json(layout.metrics(STAGE, training.name), training.metrics(result))
        metrics, sentence = training.speed(result)
        write_json(FOLDER / f"{run}.json", {"seconds": result.seconds, "steps": result.steps_now, **metrics})
        progress.say(f"{STAGE} {training.name}: {sentence}")
        watch.made(layout.model(training.name) / model_folder.WEIGHTS)
        engine.checkpoint_folder(settings, execution, run, trajectory).finish()


def _beyond(recipe: Steps, settings: TrainingSettings) -> dict[str, str]:
    """Return what shapes a training in a recipe outside the engine's settings, but the length (see `continuing`)."""
    names = vars(recipe).keys() - vars(settings).keys() - {"length"}
    return {name: repr(getattr(recipe, name)) for name in sorted(names)}


def write_fitted(
    name: str,
    model: Model,
    config: Mapping[str, Any],
    module: nn.Module,
    *,
    rows: list[dict[str, float]],
    metrics: dict[str, float],
    seconds: float,
    sentence: str,
) -> None:
    """Write what a training without the engine gives: the model folder, the curve, the metrics and the time."""
    write_model(name, model, config, module)
    write_csv(layout.curve(name), rows)
    write_json(layout.metrics(STAGE, name), metrics)
    write_json(FOLDER / f"{STAGE}-{name}.json", {"seconds": seconds, "steps": metrics["steps"]})
    progress.say(f"{STAGE} {name}: {sentence}")


def write_model(name: str, model: Model, config: Mapping[str, Any], module: nn.Module) -> None:
    """Write the model folder: weights, config, tokenizer."""
    with new_folder(layout.model(name)) as folder:
        model_folder.save(folder, config, module)
        shutil.copytree(layout.tokenizer(model.data.tokenizer), folder / model_folder.TOKENIZER)
        if model.task_tokens:
            add_task_tokens(folder / model_folder.TOKENIZER)
