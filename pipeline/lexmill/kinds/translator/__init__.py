"""Translators: a sentence in one language to a sentence in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.strict import spec
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.params.models import Model
from lexmill.params.recipe import Recipe


@dataclass(frozen=True)
class Data:
    """Pairs of encoded sentences."""

    corpus: str = spec("the parallel corpus; its valid and test decide")
    tokenizer: str = spec("the joint tokenizer")
    train: str = spec("a mixture or a translation that it learns from in place of the corpus; empty: the corpus", "")
    target_languages: dict[str, str] = spec(
        "for several: the target language of each corpus that it learns from, named by a tag before the source; empty:"
        " no tags",
        factory=dict,
    )

    @property
    def languages(self) -> list[str]:
        """Return the languages that a tag asks for, that of `corpus` first."""
        return list(dict.fromkeys([self.target_languages[self.corpus], *self.target_languages.values()]))

    @property
    def learned(self) -> str:
        """Return the name of what it learns from."""
        return self.train or self.corpus


@dataclass(frozen=True)
class TranslationRecipe(Recipe):
    """A recipe with the loss of a translator."""

    label_smoothing: float = spec("probability spread over the vocabulary", 0.1, low=0, below=1)
    r_drop: float = spec("weight of the difference between two passes under dropout (Liang et al. 2021)", 0.0, low=0)
    decided_by: Literal["loss", "bleu", "chrf"] = spec(
        "which of valid's decides what is kept and when to stop; bleu and chrf of greedy translations", "loss"
    )
    scheduled_sampling: float = spec(
        "share of the decoder's inputs that are its own predictions at the end of the training, rising from 0",
        0.0,
        low=0,
        high=1,
    )
    subword_dropout: float = spec(
        "probability that a merge of a bpe tokenizer is left out, drawn anew in each epoch (Provilkov et al. 2020)",
        0.0,
        low=0,
        below=1,
    )
    subword_alpha: float = spec(
        "exponent of the probabilities by which a unigram tokenizer's segmentation is drawn in each epoch (Kudo 2018);"
        " 0: not drawn",
        0.0,
        low=0,
        high=1000,
    )

    def errors(self) -> list[str]:
        both = self.subword_dropout and self.subword_alpha
        found = (
            ["subword_alpha: subword_dropout is for another kind of tokenizer; set one of them to 0"] if both else []
        )
        return [*super().errors(), *found]


@dataclass(frozen=True)
class MinimumRisk:
    """Translations drawn for each line; the one with the highest mean chrF against all is taken."""

    candidates: int = spec("translations drawn a line; 0: the search's best is taken", 0, low=0, high=256)
    temperature: float = spec("of the draws: divides the logits", 1.0, above=0, high=1000)
    top_p: float = spec("draw only from the fewest tokens that hold this probability; 1: all", 1.0, above=0, high=1)
    seed: int = spec("of the draws", 0)


@dataclass(frozen=True)
class Robustness:
    """Test sentences that are translated again in capitals, without the mark at their end, and with typing errors."""

    sentences: int = spec("so many, evenly spread over the test split; 0: none", 0, low=0, high=1_000_000)
    seed: int = spec("of the typing errors", 0)


@dataclass(frozen=True)
class Terms:
    """Phrases whose translation is given; the share of sentences that keep to it is a metric."""

    lexicon: dict[str, str] = spec("a phrase of the source: what its translation has", factory=dict)
    forced: bool = spec("search only translations that keep to it", False)

    def errors(self) -> list[str]:
        return [
            f"lexicon: '{source}': '{target}' has an empty side"
            for source, target in self.lexicon.items()
            if not (source.strip() and target.strip())
        ] + (["forced: the lexicon is empty; set it to false"] if self.forced and not self.lexicon else [])


@dataclass(frozen=True)
class Evaluate:
    """How the test split is translated."""

    beam: BeamSearch = spec("the search", factory=BeamSearch)
    mbr: MinimumRisk = spec("minimum Bayes risk in place of the search", factory=MinimumRisk)
    robustness: Robustness = spec("sources written otherwise", factory=Robustness)
    terms: Terms = spec("translations to keep to", factory=Terms)


@dataclass(frozen=True)
class Translator(Model):
    """A translation model."""

    data: Data = spec("what it learns from")
    recipe: TranslationRecipe = spec("how it is trained")
    evaluate: Evaluate = spec("how it is evaluated")

    def reference_errors(self, tokenizer: str | None, languages: Mapping[str, Sequence[str]]) -> list[str]:
        wanted = {"subword_dropout": "bpe", "subword_alpha": "unigram"}
        found = [
            f"recipe.{key}: '{self.data.tokenizer}' is of kind {tokenizer}, this is for {of}; set it to 0"
            for key, of in wanted.items()
            if getattr(self.recipe, key) and tokenizer != of
        ]
        pairs = {name: own[1] for name, own in languages.items() if len(own) == 2}
        if self.data.target_languages and self.data.target_languages != pairs:
            right = ", ".join(f"{name}: {language}" for name, language in pairs.items())
            found.append(f"data.target_languages: it learns from other pairs; write {{{right}}}, or {{}} for no tags")
        return found

    def cross_errors(self) -> list[str]:
        found = []
        if self.recipe.r_drop and not self.shape.dropout:
            found.append("recipe.r_drop: without dropout both passes are the same; set shape.dropout, or r_drop to 0")
        if self.evaluate.terms.forced and self.evaluate.mbr.candidates:
            found.append("evaluate.terms.forced: of a search; candidates are drawn, set evaluate.mbr.candidates to 0")
        return found


def _inputs(entry: Mapping[str, Any]) -> Inputs:
    corpus, tokenizer = entry["data"]["corpus"], entry["data"]["tokenizer"]
    train = entry["data"].get("train") or corpus
    return Inputs(
        data=layout.tokens(train, tokenizer).as_posix(),
        encodings=((corpus, tokenizer), (train, tokenizer)),
        valid=layout.tokens(corpus, tokenizer).as_posix(),
    )


KIND = Kind(
    name="translator",
    words="translator",
    does="translates a sentence",
    verb="translate",
    corpus="parallel",
    entry=Translator,
    role="encoder_decoder",
    metrics=(Metric("bleu", "BLEU", higher_is_better=True), Metric("chrf", "chrF", higher_is_better=True)),
    counted="tokens",
    inputs=_inputs,
    facts=lambda entry: [("beam", f"{entry.evaluate.beam.beam_size}")],
    example=lambda sample: (sample["source"], sample["hypothesis"]),
    limits=lambda _: (
        "It was trained on sentences; each line is translated by itself, without the lines around it.",
        "Outside its corpus's subject it can leave things out or make them up, fluently.",
    ),
)
