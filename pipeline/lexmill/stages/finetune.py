"""Fine-tune a pretrained encoder into a classifier, whole or (optimizer lbfgs) its head alone.

Reads   artifacts/corpora/<corpus>/, artifacts/checkpoints/<checkpoint>/
Writes  artifacts/models/<name>/, metrics/finetune/<name>.json, reports/curves/<name>.csv
Identity: params `classifiers.<name>`, the two seeds, the corpus, the checkpoint, the code it imports.
Cost: epochs passes over train, about 6 * (parameters without embeddings) FLOPs a token; all texts in memory. With
lbfgs one pass forward (2 FLOPs in place of 6), then seconds.

Wall time and speed go to .lexmill/metrics/finetune-<name>.json, which git ignores.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.storage import new_folder, sha256_file, sha256_folder, write_json
from lexmill.base.strict import nearest
from lexmill.compute.execution import load_execution
from lexmill.stages.entry import run_stage
from lexmill.tracking.live import sender_of

if TYPE_CHECKING:
    from lexmill.corpora.prepared import PreparedCorpus
    from lexmill.data.classification import ClassificationBatches
    from lexmill.models.bert.tokenizer import PretrainedTokenizer
    from lexmill.training.classification import ClassificationTask
    from lexmill.training.engine import FitResult
    from lexmill.training.settings import TrainingSettings

CODE = ("corpora/prepared.py", "data", "models/__init__.py", "models/bert", "models/common", "stages/finetune.py")
VALID_BATCH = 64  # texts scored at once; the figures do not depend on it
MEANINGLESS = "epochs, batch_size, warmup_fraction, dropout, patience, evaluations_per_epoch, precision and clip_norm"


def main(name: str) -> None:
    """Fine-tune `classifiers.<name>`."""
    choices = params.load()
    if name not in choices.classifiers:
        raise UserError(f"classifiers.{name} is not in params.yaml{nearest(name, choices.classifiers)}")
    chosen = choices.classifiers[name]

    from lexmill.corpora.prepared import PreparedCorpus
    from lexmill.models import pretrained
    from lexmill.models.bert import tokenizer as bert_tokenizer
    from lexmill.training import identity
    from lexmill.training.classification import ClassificationTask
    from lexmill.training.production import produce
    from lexmill.training.seeding import derive, seed_all

    corpus = PreparedCorpus(layout.corpus(chosen.corpus))
    if len(corpus.labels) < 2:
        raise UserError(f"the corpus has {len(corpus.labels)} label(s); a classifier needs two or more", corpus.folder)
    checkpoint = layout.checkpoint(chosen.checkpoint)
    tokenizer = bert_tokenizer.load(checkpoint)
    seed_all(derive(choices.training_seed, "weights"))
    module, built = pretrained.classifier(checkpoint, corpus.labels, chosen.dropout)
    if chosen.max_tokens > module.max_positions:
        raise UserError(
            f"classifiers.{name}.max_tokens is {chosen.max_tokens}, but the checkpoint '{chosen.checkpoint}' has"
            f" {module.max_positions} positions; lower it"
        )
    if tokenizer.vocab_size > built["vocab_size"]:
        raise UserError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the encoder only {built['vocab_size']}: the two do not"
            " belong together",
            checkpoint,
        )
    config: dict[str, Any] = {
        **built,
        "kind": "classifier",
        "tokenizer_fingerprint": tokenizer.fingerprint,
        "corpus": chosen.corpus,
        "max_tokens": chosen.max_tokens,
    }
    train, valid = (_batches(corpus, split, tokenizer, chosen, choices.data_seed) for split in ("train", "valid"))
    task = ClassificationTask(module, train, valid)

    def add_tokenizer(folder: Path) -> None:
        bert_tokenizer.copy(checkpoint, folder)

    if isinstance(chosen.optimizer, params.LBFGS):
        _fit_head(name, task, chosen, config, add_tokenizer)
        return
    trajectory = {
        "config": config,
        "batch_size": chosen.batch_size,
        "max_train": chosen.max_train,
        "data_seed": choices.data_seed,
        "corpus": sha256_file(corpus.folder / "manifest.json"),
        "checkpoint": sha256_folder(checkpoint),
        "code": identity.code(*CODE, "training"),
        "libraries": {**identity.libraries(), **_versions("transformers", "tokenizers")},
    }
    produce(
        "finetune",
        name,
        task,
        settings_of(chosen, train.steps_per_epoch, choices.training_seed),
        config=config,
        trajectory=trajectory,
        add_tokenizer=add_tokenizer,
        metrics=lambda result: metrics(result, task, chosen.max_tokens),
        speed=speed,
        sender=sender_of(load_execution(), choices.experiment, name),
    )


def settings_of(chosen: params.Classifier, steps_per_epoch: int, seed: int) -> TrainingSettings:
    """The training's settings: a linear rise and fall of the learning rate over all epochs, the best weights kept."""
    from lexmill.training.settings import TrainingSettings

    assert not isinstance(chosen.optimizer, params.LBFGS)
    steps = chosen.epochs * steps_per_epoch
    warmup = int(chosen.warmup_fraction * steps)
    return TrainingSettings(
        optimizer=chosen.optimizer,
        schedule=params.LinearSchedule(name="linear", warmup=params.Length(warmup, "steps"), final_fraction=0.0),
        warmup_steps=warmup,
        steps=steps,
        seed=seed,
        precision=chosen.precision,
        clip_norm=chosen.clip_norm,
        evaluate_every=max(1, round(steps_per_epoch / chosen.evaluations_per_epoch)),
        keep="best",
        patience=chosen.patience,
    )


def _batches(
    corpus: PreparedCorpus, split: str, tokenizer: PretrainedTokenizer, chosen: params.Classifier, seed: int
) -> ClassificationBatches:
    """The batches of a split; of train at most `max_train` texts, chosen by the data seed."""
    import numpy as np

    from lexmill.data.classification import ClassificationBatches
    from lexmill.data.permutation import fold, permute

    records = list(corpus.records(split))
    if not records:
        raise UserError(f"the {split} split is empty; give `splits` other shares", corpus.folder)
    # The optimum over all texts does not hang on batches: those of its one pass are for speed.
    batch_size = VALID_BATCH if isinstance(chosen.optimizer, params.LBFGS) else chosen.batch_size
    if split == "train":
        if 0 < chosen.max_train < len(records):
            places = permute(np.arange(chosen.max_train), len(records), fold(seed, "max_train"))
            records = [records[i] for i in sorted(places.tolist())]
    else:
        batch_size = max(batch_size, VALID_BATCH)
    number = {label: i for i, label in enumerate(corpus.labels)}
    ids = tokenizer.encode_batch([record["text"] for record in records], chosen.max_tokens)
    labels = [number[record["label"]] for record in records]
    return ClassificationBatches(ids, labels, batch_size, seed, pad_id=0)  # padding is masked: any id does


def _fit_head(
    name: str,
    task: ClassificationTask,
    chosen: params.Classifier,
    config: dict[str, Any],
    add_tokenizer: Callable[[Path], None],
) -> None:
    """Find the optimum of the head alone, and write what a whole fine-tuning would."""
    from lexmill.base import progress
    from lexmill.models import folder as model_folder
    from lexmill.training.curve import write_csv
    from lexmill.training.head import fit_head

    assert isinstance(chosen.optimizer, params.LBFGS)
    run = f"finetune-{name}"
    progress.say(f"{run}: lbfgs finds the optimum of the head alone, to which {MEANINGLESS} mean nothing")
    found = fit_head(run, task, chosen.optimizer, load_execution())
    with new_folder(layout.model(name)) as folder:
        model_folder.save(folder, config, task.module)
        add_tokenizer(folder / model_folder.TOKENIZER)
    write_csv(layout.curve(name), found.rows)
    measured = {
        "train_loss": found.train_loss,
        **found.metrics,
        "best_step": found.step,
        "steps": found.step,
        "epochs": found.passes,
        "stopped_early": 0,
        "largest_gradient": found.largest_gradient,
        **_sizes(task, chosen.max_tokens),
    }
    write_json(layout.metrics("finetune", name), measured)
    write_json(Path(".lexmill") / "metrics" / f"{run}.json", {"seconds": found.seconds, "steps": found.step})
    accuracy, loss = 100 * found.metrics["valid_accuracy"], found.metrics["valid_loss"]
    progress.say(f"finetune {name}: valid accuracy {accuracy:.1f}, loss {loss:.3f}, {found.step} iterations")


def metrics(result: FitResult, task: ClassificationTask, max_tokens: int) -> dict[str, float]:
    """The stage's metrics: losses in nats a text, counts, no times."""
    return {
        "train_loss": result.train_loss,
        "valid_loss": result.metrics["valid_loss"],
        "valid_accuracy": result.metrics["valid_accuracy"],
        "valid_texts": result.metrics["valid_texts"],
        "best_step": result.best_step,
        "steps": result.step,
        "epochs": task.epochs(result.step),
        "stopped_early": int(result.stopped_early),
        **_sizes(task, max_tokens),
    }


def _sizes(task: ClassificationTask, max_tokens: int) -> dict[str, int]:
    return {
        "train_texts": len(task.train.ids),
        "train_texts_at_max_tokens": int((task.train.lengths >= max_tokens).sum()),
        "parameters": sum(parameter.numel() for parameter in task.module.parameters()),
    }


def _versions(*names: str) -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in names}


def speed(result: FitResult) -> tuple[dict[str, float], str]:
    """Texts a second, as a figure and as a sentence."""
    rate = result.tokens / result.step * result.steps_now / max(result.seconds, 1e-9)  # one target a text
    accuracy, loss = 100 * result.metrics["valid_accuracy"], result.metrics["valid_loss"]
    return {"texts_per_second": rate}, f"valid accuracy {accuracy:.1f}, loss {loss:.3f}, {rate:.0f} texts/s"


if __name__ == "__main__":
    run_stage(main)
