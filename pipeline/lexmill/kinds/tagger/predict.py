"""Predictions of a packaged tagger: {"words", "tags", "entities": [{"type", "text", "start", "stop"}]}.

A text's words are what white space separates. With the param `split_punctuation` signs of punctuation at the edges of
words are words of their own, as in corpora that are cut in that way.

Letters: B windows, T tokens, W words, L tags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lexmill.base.tag_schemes import OUTSIDE, Scheme, entities, written
from lexmill.data.texts import pad
from lexmill.decoding import predictor
from lexmill.kinds.tagger.alignment import Window, best_window, pieces, windows

if TYPE_CHECKING:
    import torch
    from torch import nn

    from lexmill.tokenizers import Tokenizer

_WORDS = re.compile(r"\w+(?:[^\w\s]+\w+)*|[^\w\s]")


class Predictor(predictor.Predictor):
    """Tags texts."""

    @classmethod
    def params(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"split_punctuation": False}

    @classmethod
    def example(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        return {"words": ["a"], "tags": [OUTSIDE], "entities": [{"type": "", "text": "a", "start": 0, "stop": 1}]}

    def answer(self, texts: Sequence[str], chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
        sentences = [_WORDS.findall(text) if chosen["split_punctuation"] else text.split() for text in texts]
        found = tag_sentences(self.module, self.tokenizer, sentences, self.config, predictor.BATCH_TOKENS)
        marked = self.config["scheme"] != "none"
        return [
            {
                "words": words,
                "tags": tags,
                "entities": [
                    {"type": kind, "text": " ".join(words[start:stop]), "start": start, "stop": stop}
                    for kind, start, stop in (entities(tags) if marked else ())
                ],
            }
            for words, tags in zip(sentences, found, strict=True)
        ]


def tag_sentences(
    module: nn.Module,
    tokenizer: Tokenizer,
    sentences: Sequence[Sequence[str]],
    config: Mapping[str, Any],
    batch_tokens: int,
) -> list[list[str]]:
    """Return the tags of each sentence's words, entities in iob2; a sentence without words has none.

    Windows of similar length run together; no result depends on the other sentences.

    Args:
        module: a tagger in eval mode.
        config: its model's config.json.
        batch_tokens: tokens in one forward pass, padding included.

    Raises:
        UserError: a word is not Unicode.
    """
    import torch

    from lexmill.decoding.batching import by_length
    from lexmill.kinds.tagger.whole_words import loaded
    from lexmill.models.common.tagging import Scores
    from lexmill.models.common.word_tagging import WordTagger

    if isinstance(module, WordTagger):
        learned = loaded(module, config)
        return [_in_iob2(learned.tag(words), config["scheme"]) for words in sentences]
    filled = [i for i, words in enumerate(sentences) if words]
    of_sentence: dict[int, list[Window]] = {}
    for i, of_words in zip(filled, pieces(tokenizer, [sentences[i] for i in filled]), strict=True):
        of_sentence[i] = windows(i, of_words, tokenizer, config["max_tokens"])
    every = [window for i in filled for window in of_sentence[i]]
    device = next(module.parameters()).device
    emissions: dict[tuple[int, int], torch.Tensor] = {}  # by sentence and first word, (W, L)
    chain = None
    for group in by_length([len(window.tokens) for window in every], batch_tokens):
        some = [every[i] for i in group]
        tokens, mask = pad([window.tokens for window in some])  # (B, T); padding is masked: any id does
        words, _ = pad([window.words for window in some], -1)
        with torch.inference_mode():
            scores: Scores = module(*(torch.from_numpy(one).to(device) for one in (tokens, mask, words)))
        chain = scores.chain
        for window, of_window in zip(some, scores.emissions, strict=True):
            emissions[window.sentence, window.start] = of_window[: window.stop - window.start]
    found: list[list[str]] = [[] for _ in sentences]
    for i in filled:
        whole = _joined(of_sentence[i], emissions, len(sentences[i]))  # (W, L)
        with torch.inference_mode():
            best = Scores(whole[None], chain).best(torch.tensor([len(whole)], device=device))[0]
        found[i] = _in_iob2([config["tags"][number] for number in best.tolist()], config["scheme"])
    return found


def _in_iob2(tags: list[str], scheme: Scheme) -> list[str]:
    return written(entities(tags), len(tags), "iob2") if scheme == "bioes" else tags


def _joined(
    of_sentence: Sequence[Window], emissions: Mapping[tuple[int, int], torch.Tensor], words: int
) -> torch.Tensor:
    """Return the emissions (W, L) of a sentence, of each word from the window in which it has most context."""
    import torch

    if len(of_sentence) == 1:
        return emissions[of_sentence[0].sentence, 0]
    rows = []
    for word in range(words):
        window = of_sentence[best_window(word, of_sentence, words)]
        rows.append(emissions[window.sentence, window.start][word - window.start])
    return torch.stack(rows)
