"""Trains a tagger of whole words: a hidden Markov model or an averaged perceptron, without a gradient.

Cost: a second for 200,000 words and the Markov model, two minutes for the perceptron; memory 8 bytes a feature and tag.
"""

from __future__ import annotations

import time

import numpy as np

from lexmill import tokenizers
from lexmill.base import layout, progress
from lexmill.base.tag_schemes import Scheme, entities
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.texts import records_of
from lexmill.kinds.tagger import AveragedPerceptron, Tagger, markov_model, perceptron
from lexmill.kinds.tagger.alignment import in_scheme
from lexmill.kinds.tagger.perceptron import Pairs
from lexmill.kinds.tagger.whole_words import Learned, loaded, stored
from lexmill.training.production import STAGE, config_of, write_fitted


def fit(name: str, model: Tagger, corpus: PreparedCorpus, scheme: Scheme, seed: int) -> None:
    """Train `models.<name>` and write a training's outputs.

    The curve has a row for each pass, with the loss of the weights that are kept.

    Args:
        scheme: in which entities are learned.
        seed: of the order of train.

    Raises:
        UserError: train or valid is empty.
    """
    begun, recipe = time.monotonic(), model.recipe
    train, valid = (
        [(record["words"], in_scheme(record["tags"], scheme)) for record in records_of(corpus, split)]
        for split in ("train", "valid")
    )
    words = sum(len(of_words) for of_words, _ in train)
    rows: list[dict[str, float]] = []
    learned: Learned
    if isinstance(recipe, AveragedPerceptron):
        shares: list[float] = []
        with progress.bar(f"{STAGE}-{name}", recipe.epochs) as bar:

            def note(epoch: int, right: float) -> None:
                shares.append(right)
                rows.append({"step": epoch, "tokens": epoch * words, "epoch": float(epoch)})
                bar.update(1, right=right)

            learned = perceptron.learn(train, valid, seed, recipe.epochs, note)
        best = 1 + shares.index(max(shares))
    else:
        learned, best = markov_model.learn(train), 1
        rows.append({"step": 1, "tokens": words, "epoch": 1.0})
    tokenizer = tokenizers.load(layout.tokenizer(model.data.tokenizer))
    config = config_of(
        model, tokenizer, tokenizer.vocab_size, tags=list(learned.tags), scheme=scheme, method=recipe.method
    )
    module = stored(learned, config)
    measured = _measured(loaded(module, config), valid, marked=scheme != "none")
    rows[best - 1]["valid_loss"] = measured["valid_loss"]
    sizes = {"train_sentences": len(train), "train_words": words, "parameters": module.scores.numel()}
    steps = {"best_step": best, "steps": len(rows), "epochs": len(rows), "stopped_early": 0}
    metric = "valid_accuracy" if scheme == "none" else "valid_entity_f1"
    write_fitted(
        name,
        model,
        config,
        module,
        rows=rows,
        metrics={**measured, **steps, **sizes},
        seconds=time.monotonic() - begun,
        sentence=f"{metric.replace('_', ' ')} {100 * measured[metric]:.1f}, {len(module.scores) - 1:,} features",
    )


def _measured(learned: Learned, valid: Pairs, *, marked: bool) -> dict[str, float]:
    """Return the metrics of valid: nats a word, words with the right tag, F1 of entities."""
    number = {tag: i for i, tag in enumerate(learned.tags)}
    words = right = counted = 0
    nats, hits = 0.0, np.zeros(3)
    for of_words, tags in valid:
        found = learned.tag(of_words)
        words += len(tags)
        right += sum(a == b for a, b in zip(found, tags, strict=True))
        if number.keys() >= set(tags):  # a tag that train does not have has no probability
            nats += learned.nats(of_words, [number[tag] for tag in tags])
            counted += len(tags)
        truth, predicted = set(entities(tags)), set(entities(found))
        hits += len(truth & predicted), len(truth), len(predicted)
    both, truth_count, predicted_count = hits.tolist()
    f1 = {"valid_entity_f1": 2 * both / max(truth_count + predicted_count, 1.0)} if marked else {}
    return {"valid_loss": nats / max(counted, 1), "valid_accuracy": right / words, **f1, "valid_words": words}
