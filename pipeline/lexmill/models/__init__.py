"""Networks as plain torch modules: shared blocks in `common/`, one folder for each architecture.

Importing this package, or the `shape` of a family, loads no torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserErrors
from lexmill.models.declaration import Family, config_errors, families, family

if TYPE_CHECKING:
    from torch import nn

LOADS = ("lexmill.models.{family}", "lexmill.models.{family}.model")  # by name, see lexmill.base.code

__all__ = ["Family", "build", "families", "family"]


def build(config: Mapping[str, Any]) -> nn.Module:
    """Return a network with fresh weights from a model folder's `config.json` (at least family, shape, vocab_size).

    A config with `labels` describes a network under a head that pools its states, one with `tags` an encoder that tags
    words, or a table of them, one with `spans` an encoder that points at spans, one with `pretraining` an encoder under
    the heads that it is pre-trained with, one with `embedding` an encoder that gives a text a vector, one with `reward`
    a causal network under a reward, one with `mixture` a causal network beside n-grams, one with `begins`
    an encoder-decoder that itself reads these ids before each source and each target. With `direction: both` the mask
    of a causal network is lifted.

    Raises:
        UserErrors: an unknown family, or wrong sizes.
    """
    errors = config_errors(config)
    if errors:
        raise UserErrors(errors)
    declared = family(config["family"])
    network = getattr(importlib.import_module(f"lexmill.models.{config['family']}.model"), declared.network)
    more = {"begins": config["begins"]} if "begins" in config else {}
    module: nn.Module = network(declared.shape(**config["shape"]), config["vocab_size"], **more)
    if config.get("direction") == "both":
        from lexmill.models.common.both_directions import BothDirections

        module = BothDirections(module)
    if "mixture" in config:
        from lexmill.models.common.mixture import Mixture

        mixture = config["mixture"]
        return Mixture(module, mixture["ngrams"], mixture["document_order"], mixture["eos_id"])
    if "pretraining" in config:
        from lexmill.models.common.pretraining import MaskedLanguageModel, ReplacedTokenDetection

        heads = config["pretraining"]
        if heads["objective"] == "masked":
            return MaskedLanguageModel(module, heads["pairs"] != "none")
        small = network(declared.shape(**{**config["shape"], **heads["generator"]}), config["vocab_size"])
        return ReplacedTokenDetection(module, MaskedLanguageModel(small))
    if "labels" in config:
        from lexmill.models.common.heads import BagClassifier, NearestNeighbours, PooledClassifier

        if "neighbours" in config:
            many = (config["neighbours"], config["train_texts"])
            return NearestNeighbours(module, len(config["labels"]), config.get("pooling", "mean"), *many)
        headed = BagClassifier if declared.role == "bag" else PooledClassifier
        pooling, separator = config.get("pooling", "mean"), config.get("separator")
        bias = bool(config.get("head_bias", True))
        return headed(module, len(config["labels"]), config["dropout"], pooling, separator, bias=bias)
    if "tags" in config and declared.role == "words":
        from lexmill.models.common.word_tagging import WordTagger

        return WordTagger(module, len(config["tags"]), chained=config["method"] == "hidden_markov_model")
    if "tags" in config:
        from lexmill.models.common.tagging import Tagger

        choices = {key: config[key] for key in ("scheme", "pieces", "head", "dropout")}
        return Tagger(module, config["tags"], **choices)
    if "embedding" in config:
        from lexmill.models.common.sentence_vectors import SentenceVectors

        return SentenceVectors(module)
    if config.get("reward"):
        from lexmill.models.common.heads import RewardModel

        return RewardModel(module)
    if config.get("spans"):
        from lexmill.models.common.span_head import SpanHead

        return SpanHead(module)
    return module
