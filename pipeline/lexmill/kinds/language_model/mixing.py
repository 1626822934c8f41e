"""Fits a mixture of a trained network and n-grams: counts train, and finds the weights that suit valid best.

The network stays as it is. Kneser-Ney n-grams are counted over train; the weights of the parts, for each length of the
context that a document repeats, come from expectation maximisation (Jelinek and Mercer 1980) over the tokens of valid.

Cost: a forward pass over valid with half a window before each token, a sort of train for each order, seconds besides;
memory about 40 bytes * order * tokens of train.
"""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from lexmill import models
from lexmill.base import layout, progress
from lexmill.base.errors import UserError
from lexmill.compute.execution import load_execution
from lexmill.data.mixture import MixedShards
from lexmill.data.shards import TokenShards
from lexmill.evaluation.scoring import NetworkScorer
from lexmill.kinds.language_model import LanguageModel, MixtureRecipe
from lexmill.kinds.language_model.mixture_scores import stream
from lexmill.kinds.language_model.ngrams.kneser_ney import KneserNey
from lexmill.models.common.mixture import Mixture
from lexmill.models.start import start
from lexmill.training.engine import set_threads
from lexmill.training.production import STAGE, write_fitted

ITERATIONS = 50
_OVERLAP = 0.5  # of the windows over valid
_BATCH_TOKENS = 16384
_FEW = 1000  # tokens of valid: repeated contexts of a length that has fewer take the weights of all


def fit(
    name: str, model: LanguageModel, config: dict[str, Any], train: TokenShards | MixedShards, valid: TokenShards
) -> None:
    """Make the mixture `models.<name>` and write a training's outputs.

    Args:
        config: that of the network.

    Raises:
        UserError: the start does not fit, or train is a mixture of corpora.
    """
    begun, recipe = time.monotonic(), model.recipe
    assert isinstance(recipe, MixtureRecipe)
    if isinstance(train, MixedShards):
        raise UserError(f"models.{name}.data.train: the n-grams of a mixture count one corpus; name one", train.folder)
    execution = load_execution()
    set_threads(execution)
    ngrams = KneserNey(recipe.ngram_order, config["vocab_size"], train.eos_id)
    ngrams.fit([train.document(i)[:-1].astype(np.int64) for i in range(len(train))])
    whole = config | {
        "mixture": {
            "ngrams": [[len(level.keys), len(level.rest)] for level in ngrams.levels],
            "document_order": recipe.document_order,
            "eos_id": train.eos_id,
        }
    }
    module = cast(Mixture, models.build(whole))
    start(module.network, config, model.start, layout.tokenizer(model.data.tokenizer))
    for order, level in enumerate(ngrams.levels, start=1):
        for part, values in (("keys", level.keys), ("share", level.share), ("rest", level.rest)):
            module.tables.get_buffer(f"{part}_{order}").copy_(torch.from_numpy(values))
    documents = [valid.document(i)[:-1].tolist() for i in range(len(valid))]
    parts, longest = _parts(module.eval(), documents, train.eos_id, torch.device(execution.accelerator))
    rows = []
    with progress.bar(f"{STAGE}-{name}", ITERATIONS) as bar:
        for step in range(1, ITERATIONS + 1):
            loss = improve(module.weights, parts, longest)
            rows.append({"step": step, "tokens": step * len(parts), "epoch": float(step), "valid_loss": loss})
            bar.update(1, valid=loss)
    loss = nats(module.weights, parts, longest)
    metrics = {
        "valid_loss": loss,
        "network_valid_loss": float(-parts[:, 0].log().mean()),
        "ngram_valid_loss": float(-parts[:, 1].log().mean()),
        "best_step": ITERATIONS,
        "steps": ITERATIONS,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "ngrams": sum(len(level.keys) for level in ngrams.levels),
    }
    sentence = f"valid loss {loss:.3f} nats a token, {metrics['network_valid_loss']:.3f} by the network alone"
    seconds = time.monotonic() - begun
    write_fitted(name, model, whole, module, rows=rows, metrics=metrics, seconds=seconds, sentence=sentence)


def improve(weights: Tensor, parts: Tensor, longest: Tensor) -> float:
    """Take one step of expectation maximisation in place; return the mean nats before it.

    Args:
        weights: (K + 1, 2 + K), see `Mixture`; zeros at first: then all parts that a context has are alike.
        parts, longest: (N, 2 + K) and (N,), of `Mixture.parts`.
    """
    order = len(weights) - 1
    if not weights.any():
        weights[:] = torch.tril(torch.ones_like(weights), diagonal=1)
        weights /= weights.sum(dim=1, keepdim=True)
    before = nats(weights, parts, longest)
    own = weights[longest] * parts
    shares = own / own.sum(dim=1, keepdim=True)  # (N, 2 + K)
    counted = torch.bincount(longest, minlength=order + 1)
    found = torch.zeros_like(weights).index_add_(0, longest, shares)
    for length, count in enumerate(counted.tolist()):
        if count >= _FEW:
            weights[length] = found[length] / count
            continue
        pooled = torch.where(torch.arange(weights.shape[1]) < 2 + length, found.sum(dim=0), 0.0)
        weights[length] = pooled / pooled.sum()
    return before


def nats(weights: Tensor, parts: Tensor, longest: Tensor) -> float:
    """Return the mean nats of the targets under a mixture."""
    return float(-(weights[longest] * parts).sum(dim=1).log().mean())


def _parts(module: Mixture, documents: list[list[int]], eos_id: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return what is mixed for all targets of some documents."""
    network = cast(nn.Module, module.network).to(device)
    scorer = NetworkScorer(network, module.context, eos_id, _BATCH_TOKENS, _OVERLAP)
    found = [
        module.parts(torch.from_numpy(scores).exp(), stream(document, eos_id))
        for document, scores in zip(documents, scorer.log_probabilities(documents), strict=True)
    ]
    module.cpu()
    return torch.cat([parts for parts, _ in found]), torch.cat([longest for _, longest in found])
