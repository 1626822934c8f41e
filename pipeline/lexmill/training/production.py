"""What every training stage does once its task stands: train or go on, then put the results in place.

The order matters for a kill: outputs first, each whole or not at all, and the resumable checkpoint goes last.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lexmill.base import layout, progress
from lexmill.base.errors import UserError
from lexmill.base.storage import new_folder, write_json
from lexmill.compute.execution import load_execution
from lexmill.models import folder as model_folder
from lexmill.params import LanguageModel, Translator, WarmupStableDecaySchedule
from lexmill.params.length import Length
from lexmill.training import engine
from lexmill.training.curve import write_csv
from lexmill.training.engine import FitResult
from lexmill.training.settings import TrainingSettings
from lexmill.training.speed import Meter, peak_of
from lexmill.training.task import Task
from lexmill.training.watching import FOLDER, Sampler, Sender, Watch


def settings_of(model: LanguageModel | Translator, steps_per_epoch: int, seed: int) -> TrainingSettings:
    """The engine's settings, as an entry of params.yaml has them, with its lengths counted in steps.

    Raises:
        UserError: the schedule does not fit into the length, which lengths of different units show only now.
    """

    def steps(length: Length) -> int:
        return length.steps(model.batch_tokens, steps_per_epoch)

    schedule = model.schedule
    total, warmup = steps(model.length), steps(schedule.warmup)
    decay = steps(schedule.decay) if isinstance(schedule, WarmupStableDecaySchedule) else 0
    if warmup >= total > 1:
        raise UserError(f"schedule.warmup: its {warmup} steps must be fewer than those of length ({total})")
    if warmup + decay > total:
        raise UserError(
            f"schedule.decay: warm-up and decay take {warmup} + {decay} steps, but length has {total}; shorten them"
        )
    return TrainingSettings(
        optimizer=model.optimizer,
        schedule=schedule,
        steps=total,
        warmup_steps=warmup,
        decay_steps=decay,
        seed=seed,
        precision=model.precision,
        clip_norm=model.clip_norm,
        evaluate_every=model.evaluate_every,
        keep=model.keep,
        average_last=model.average_last,
        ema_decay=model.ema_decay,
        patience=model.patience,
    )


def produce(
    stage: str,
    name: str,
    task: Task,
    settings: TrainingSettings,
    *,
    config: dict[str, Any],
    trajectory: dict[str, Any],
    add_tokenizer: Callable[[Path], object],
    metrics: Callable[[FitResult], dict[str, float]],
    speed: Callable[[FitResult], tuple[dict[str, float], str]],
    flops_per_token: int = 0,
    sampler: Sampler | None = None,
    sender: Sender | None = None,
) -> None:
    """Train the task's network and write the model folder, the curve, the metrics and the speed.

    Args:
        stage, name: the stage and the model's name.
        config: the model folder's config.json.
        trajectory: all that shapes the training beside its settings: a checkpoint of another is never gone on from.
        add_tokenizer: copies the tokenizer into the folder it is given.
        metrics: the stage's metrics; they hold no times.
        speed: figures of the speed, for .lexmill/metrics/ alone, and how they are told.
        flops_per_token: of training, for the utilisation; 0 where it is unknown.
        sampler: writes a text now and then; None: nothing does.
        sender: who sends on what is seen while it runs; None: nobody.
    """
    execution, run = load_execution(), f"{stage}-{name}"
    meter = Meter(flops_per_token, peak_of(execution, settings.precision))
    watch = Watch(
        run,
        meter,
        sender=sender,
        sampler=sampler,
        sample_every=execution.sample_every,
        system_seconds=execution.system_metrics_seconds,
        counted=task.counted,
    )
    with watch:
        result = engine.fit(task, settings, execution, name=run, identity=trajectory, watch=watch)
        if not result.first_rank:
            return
        with new_folder(layout.model(name)) as folder:
            model_folder.save(folder, config, task.module)
            add_tokenizer(folder / model_folder.TOKENIZER)
        write_csv(layout.curve(name), result.rows)
        write_json(layout.metrics(stage, name), metrics(result))
        figures, told = speed(result)
        write_json(FOLDER / f"{run}.json", {"seconds": result.seconds, "steps": result.steps_now, **figures})
        progress.say(f"{stage} {name}: {told}")
        watch.made(layout.model(name) / model_folder.WEIGHTS)
        engine.checkpoint_folder(settings, execution, run, trajectory).finish()
