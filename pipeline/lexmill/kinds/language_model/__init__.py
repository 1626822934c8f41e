"""Language models: the probability of each next token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.models.declaration import families, family
from lexmill.params.models import Model
from lexmill.params.recipe import Method, Recipe, Steps


@dataclass(frozen=True)
class Data:
    """Windows of the encoded corpus."""

    corpus: str = spec("the corpus it is validated and tested on")
    train: str = spec("what it learns from: a corpus, or a mixture that has `corpus` in it")
    tokenizer: str = spec("its tokenizer, or the checkpoint whose tokenizer it takes")
    mask_documents: bool = spec("no token sees another document of its window", False)
    carry_state: bool = spec("a window goes on from the state of the one before; for recurrent families", False)


@dataclass(frozen=True)
class NGrams:
    """The baselines: n-grams over its tokens (Kneser-Ney, add-k, stupid back-off) and over bytes (Kneser-Ney)."""

    order: int = spec("order of the token n-grams", 3, low=1, high=6)
    byte_order: int = spec("order of the byte n-gram", 3, low=1, high=6)
    add_k: float = spec("what add-k adds to each count", 0.01, above=0, high=1000)


@dataclass(frozen=True)
class Evaluate:
    """How the test split is scored, and which texts are written."""

    prompts: tuple[str, ...] = spec("prompts of the sample texts", ("",))
    ngrams: NGrams = spec("its baselines", factory=NGrams)


@dataclass(frozen=True)
class Hybrid(Steps):
    """Next tokens in some windows, masked tokens in the others, of one network (GPT-BERT, Charpentier and Samuel 2024).

    In a masked window each token sees all others, and a masked token is predicted at the position before it, as a next
    token is.
    """

    method: Literal["hybrid"] = spec("how the weights are found")
    masked_windows: float = spec("the share of windows that are masked", 0.5, above=0, below=1)
    masking: Literal["token", "word", "span"] = spec("what is masked as one: tokens, words, or spans of words", "span")
    share: float = spec("of a masked window's tokens that is masked", 0.15, above=0, below=1)


@dataclass(frozen=True)
class MixtureRecipe(Method):
    """A trained network, `start`, mixed with n-grams of train and of the document that it reads; it stays as it is."""

    method: Literal["mixture"] = spec("how the weights are found")
    ngram_order: int = spec("order of the n-grams of train", 5, low=1, high=8)
    document_order: int = spec("order of the n-grams of the document so far", 6, low=1, high=8)


@dataclass(frozen=True)
class LanguageModel(Model):
    """A causal language model."""

    data: Data = spec("what it learns from")
    recipe: Recipe | Hybrid | MixtureRecipe = spec("how it is trained")
    evaluate: Evaluate = spec("how it is evaluated")

    def cross_errors(self) -> list[str]:
        if isinstance(self.recipe, MixtureRecipe):
            return _mixture_errors(self)
        batch, context = self.recipe.batch, self.shape.context
        found = [f"recipe.batch: {batch} is not a multiple of shape.context ({context})"] if batch % context else []
        if self.data.carry_state and not family(self.family).carries:
            known = ", ".join(name for name in families("causal") if family(name).carries)
            found.append(f"data.carry_state: '{self.family}' has no state to carry from window to window; {known} have")
        if self.data.carry_state and self.data.train != self.data.corpus:
            found.append("data.carry_state: windows of a mixture do not follow one another; train on one corpus")
        if isinstance(self.recipe, Hybrid) and not family(self.family).both_directions:
            known = ", ".join(name for name in families("causal") if family(name).both_directions)
            found.append(f"recipe.method: a token of '{self.family}' cannot see those after it; one of {known} can")
        if isinstance(self.recipe, Hybrid) and batch == context:
            found.append(f"recipe.batch: {batch} is one window; the method hybrid needs two, a masked one and another")
        if isinstance(self.recipe, Hybrid) and self.data.mask_documents:
            found.append("data.mask_documents: a masked window is seen whole; leave it out with the method hybrid")
        return found


def _mixture_errors(model: LanguageModel) -> list[str]:
    """Return what a mixture of a network and n-grams cannot do."""
    found = []
    if model.start.endswith((".yaml", ".yml")):
        found.append(f"start: a mixture takes a trained network, such as {layout.model('gpt')}, not a recipe")
    if model.data.train != model.data.corpus:
        found.append("data.train: the n-grams of a mixture count one corpus; name that of data.corpus")
    return found


def _inputs(entry: Mapping[str, Any]) -> Inputs:
    data = entry["data"]
    return Inputs(
        data=layout.tokens(data["train"], data["tokenizer"]).as_posix(),
        encodings=((data["corpus"], data["tokenizer"]),),  # those of a mixture follow from the mixture
    )


def _baseline(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    evaluate = entry["evaluate"]
    ngrams = {**asdict(NGrams()), **evaluate.get("ngrams", {})}
    return {**ngrams, "samples": list(evaluate.get("prompts", Evaluate.prompts))}


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    shape = family(entry["family"]).shape(**entry["shape"])
    context = entry["shape"]["context"]
    return (
        "It knows the style and the facts of its corpus only; what it writes is likely text, not true text.",
        f"Its state carries on without end, but it learned to use only the last {context} tokens."
        if shape.unlimited
        else f"Text before the last {context} tokens has no effect on what it writes.",
    )


KIND = Kind(
    name="language_model",
    words="language model",
    does="continues text: it gives each next token a probability",
    verb="generate",
    corpus="text",
    entry=LanguageModel,
    role="causal",
    metrics=(
        Metric("bits_per_byte", "bits per byte", higher_is_better=False),
        Metric("word_perplexity", "perplexity a word", higher_is_better=False),
        Metric("perplexity", "perplexity a token", higher_is_better=False, over_tokens=True),
    ),
    counted="tokens",
    inputs=_inputs,
    baseline=_baseline,
    baseline_tokenizer=True,
    facts=lambda entry: [("context", f"{entry.shape.context:,} tokens")],
    example=lambda sample: (sample["prompt"], sample["text"]),
    limits=_limits,
)
