"""Training: nats of the right bucket, one target a text. B texts, T tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.permutation import fold, permute
from lexmill.kinds.length_bucket import BUCKETS, LengthBucket, bucket
from lexmill.kinds.length_bucket.texts import arrays
from lexmill.params import Params
from lexmill.training.production import Training, config_of, new_network, produce
from lexmill.training.task import Arrays, Task


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`."""
    model = choices.models[name]
    assert isinstance(model, LengthBucket)
    data, tokenizer = model.data, tokenizers.load(layout.tokenizer(model.data.tokenizer))
    more = {"labels": list(BUCKETS), "dropout": 0.0, "max_tokens": data.max_tokens, "long_from": data.long_from}
    config = config_of(model, tokenizer, tokenizer.vocab_size, **more)
    corpus = PreparedCorpus(layout.corpus(data.corpus))
    splits = {}
    for split in ("train", "valid"):
        texts = [record["text"] for record in corpus.records(split)]
        labels = np.array([BUCKETS.index(bucket(text, data.long_from)) for text in texts])
        splits[split] = {**arrays(tokenizer, texts, data.max_tokens), "labels": labels}
    task = LengthTask(new_network(model, config, choices.training_seed), splits, model.recipe.batch, choices.data_seed)
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=-(-len(splits["train"]["labels"]) // model.recipe.batch),
            metrics=lambda result: {"train_loss": result.train_loss, **result.metrics, "steps": result.step},
            speed=lambda result: ({}, f"valid loss {result.metrics['valid_loss']:.3f}"),
        ),
        choices,
    )


class LengthTask(Task):
    """Texts to buckets."""

    counted = "texts"

    def __init__(self, module: nn.Module, splits: Mapping[str, Arrays], batch: int, seed: int) -> None:
        self.module, self.train, self.valid, self.size, self.seed = (
            module,
            splits["train"],
            splits["valid"],
            batch,
            seed,
        )

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        texts = len(self.train["labels"])
        places = np.arange(step * self.size, (step + 1) * self.size) % texts  # a pure function of step and seed
        rows = permute(places, texts, fold(self.seed, "texts"))[rank::world]
        return {name: array[rows] for name, array in self.train.items()}

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        logits = module(batch["tokens"], batch["mask"]).float()  # (B, 2)
        return functional.cross_entropy(logits, batch["labels"], reduction="sum"), len(logits)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        yield {name: array[rank::world] for name, array in self.valid.items()}

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        nats, texts = self.loss_sum(module, batch)
        return torch.stack([nats.double(), torch.tensor(float(texts)).to(nats).double()])

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        return {"valid_loss": sums[0] / max(sums[1], 1.0)}

    def epochs(self, step: int) -> float:
        return step * self.size / len(self.train["labels"])
