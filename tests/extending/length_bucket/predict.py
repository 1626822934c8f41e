"""The answer is the bucket's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lexmill.decoding import predictor
from lexmill.kinds.length_bucket import BUCKETS
from lexmill.kinds.length_bucket.texts import arrays
from lexmill.tokenizers import Tokenizer


class Predictor(predictor.Predictor):
    """Says how long texts are."""

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[str]:
        return buckets(self.module, self.tokenizer, texts, self.config["max_tokens"])


def buckets(module: Any, tokenizer: Tokenizer, texts: Sequence[str], max_tokens: int) -> list[str]:
    """The most probable bucket of each text."""
    import torch

    device = next(module.parameters()).device
    with torch.inference_mode():
        found = {name: torch.from_numpy(one).to(device) for name, one in arrays(tokenizer, texts, max_tokens).items()}
        best = module(found["tokens"], found["mask"]).argmax(dim=1).tolist()
    return [BUCKETS[i] for i in best]
