"""Classifiers: one label per text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base import layout
from lexmill.base.strict import spec
from lexmill.kinds import Inputs, Kind, Metric
from lexmill.models.declaration import Pooling, families, family
from lexmill.params.adaptation import Adaptation
from lexmill.params.labelled import LabelledTexts, long_text_words
from lexmill.params.models import Model, NoSettings
from lexmill.params.recipe import Method

By = Literal["margin", "least", "entropy"]
"""How a prediction is unsure."""


@dataclass(frozen=True)
class Data(LabelledTexts):
    """Labelled texts."""

    max_train: int = spec("train on at most so many texts; 0: all", 0, unit="texts", low=0)


FixedPooling = Literal["mean", "max", "last", "none"]
LearnedPooling = Literal[Pooling, "none"]
_POOLING = "what the head reads of the states of a text's tokens; none: the family gives one vector for a whole text"


@dataclass(frozen=True)
class LinearProbe(Method):
    """The optimum of the head alone on a frozen encoder, by L-BFGS (Liu and Nocedal 1989) over the whole of train."""

    method: Literal["linear_probe"] = spec("how the weights are found")
    loss: Literal["softmax", "sigmoid"] = spec("of all labels together, or of each label against the others", "softmax")
    l2: float = spec("L2 penalty on the head's weights, over the number of texts", 1.0, low=0, high=1e9)
    history: int = spec("pairs that approximate the curvature", 10, low=1, high=1000)
    max_iterations: int = spec("most iterations", 500, low=1, high=1_000_000)
    tolerance: float = spec("stop when the largest gradient is below", 1e-6, above=0, high=1)
    pooling: FixedPooling = spec(_POOLING, "mean")


@dataclass(frozen=True)
class LinearSVM(Method):
    """The optimum of the hinge loss of the head on a frozen encoder, by dual coordinate descent (Hsieh et al. 2008)."""

    method: Literal["linear_svm"] = spec("how the weights are found")
    l2: float = spec("L2 penalty on the head's weights and biases, over the number of texts", 1.0, above=0, high=1e9)
    max_iterations: int = spec("most passes over train", 10_000, low=1, high=1_000_000)
    tolerance: float = spec("stop when the dual gradients differ by less", 1e-4, above=0, high=1)
    pooling: FixedPooling = spec(_POOLING, "mean")


@dataclass(frozen=True)
class Perceptron(Method):
    """The perceptron (Rosenblatt 1958) on a frozen encoder: each mistake moves the head by the text's features."""

    method: Literal["perceptron"] = spec("how the weights are found")
    epochs: int = spec("passes over train", 10, low=1, high=1_000_000)
    average: bool = spec("take the mean of the weights after each text (Freund and Schapire 1999)", True)
    pooling: FixedPooling = spec(_POOLING, "mean")


@dataclass(frozen=True)
class NaiveBayes(Method):
    """Naive Bayes on a bag: the label's probability from those of the n-grams, as if these were independent."""

    method: Literal["naive_bayes"] = spec("how the weights are found")
    event: Literal["multinomial", "bernoulli"] = spec(
        "what is drawn given a label: each n-gram of a text, or whether each of all n-grams is in it", "multinomial"
    )
    alpha: float = spec("added to each count", 1.0, above=0, high=1e6)


@dataclass(frozen=True)
class NearestNeighbours(Method):
    """The labels of the texts of train whose pooled states are most similar, by cosine; nothing is trained."""

    method: Literal["nearest_neighbours"] = spec("how the weights are found")
    neighbours: int = spec("texts that vote", 10, unit="texts", low=1, high=100_000)
    pooling: FixedPooling = spec(_POOLING, "mean")


@dataclass(frozen=True)
class FineTuning(Adaptation):
    """A recipe with what the labels and a pretrained encoder ask for."""

    head_dropout: float = spec("dropout before the head", 0.1, low=0, below=1)
    decided_by: Literal["loss", "accuracy", "macro_f1"] = spec(
        "the validation metric that chooses the best weights and stops early", "loss"
    )
    class_weights: Literal["none", "balanced"] = spec(
        "weight of a text in the loss; balanced: N / (labels * texts with its label)", "none"
    )
    sampling: Literal["shuffled", "balanced"] = spec(
        "texts of a batch: each once an epoch, or labels in turn", "shuffled"
    )
    label_smoothing: float = spec("share of the target spread over all labels", 0.0, low=0, below=1)
    focal_gamma: float = spec("of the focal loss (Lin et al. 2017); 0: cross-entropy", 0.0, low=0, high=10)
    calibrate: bool = spec("divide the logits by the temperature that fits valid best (Guo et al. 2017)", True)
    answer_accuracy: float = spec(
        "abstain below the score at which this share of valid's answers is right; 0: never", 0.0, low=0, high=1
    )
    teacher: str = spec("a classifier of params.yaml that it also learns from (Hinton et al. 2015); empty: none", "")
    teacher_weight: float = spec("share of the teacher's probabilities in the loss", 0.5, above=0, high=1)
    teacher_temperature: float = spec("softens both models' probabilities in it", 2.0, above=0, high=100)
    language_loss: float = spec(
        "weight of a causal network's own loss on the texts, in nats a token (Radford et al. 2018); 0: none",
        0.0,
        low=0,
        high=100,
    )
    task_tokens: bool = spec(
        "read a text between start and extract tokens, a pair with a delimiter, all new to a causal network"
        " (Radford et al. 2018)",
        False,
    )
    direction: Literal["causal", "both"] = spec(
        "what a token of a causal network sees: those before it, or all (Charpentier and Samuel 2024)", "causal"
    )
    pooling: LearnedPooling = spec(_POOLING, "mean")

    def errors(self) -> list[str]:
        found = super().errors()
        if self.class_weights == "balanced" and self.sampling == "balanced":
            found.append("sampling: class_weights and sampling both balance the labels; choose one")
        return found


Fitted = LinearProbe | LinearSVM | Perceptron | NaiveBayes


@dataclass(frozen=True)
class Classifier(Model):
    """A classifier on an encoder, a causal network or a bag of n-grams."""

    data: Data = spec("what it learns from")
    recipe: FineTuning | Fitted | NearestNeighbours = spec("how it is trained")
    evaluate: NoSettings = spec("how it is evaluated")

    @property
    def both_directions(self) -> bool:
        return getattr(self.recipe, "direction", "causal") == "both"

    @property
    def task_tokens(self) -> bool:
        return getattr(self.recipe, "task_tokens", False)

    def cross_errors(self) -> list[str]:
        bag = family(self.family).role == "bag"
        pooling = getattr(self.recipe, "pooling", "none")
        if isinstance(self.recipe, NaiveBayes) and not bag:
            return [f"recipe.method: naive_bayes counts n-grams, which family '{self.family}' does not; take bag"]
        if isinstance(self.recipe, NearestNeighbours) and bag:
            return ["recipe.method: nearest_neighbours compares states of tokens, and a bag has none"]
        if self.data.windows is not None and bag:
            return ["data.long_texts: a bag reads a text of any length; set cut, and raise max_tokens"]
        if self.data.windows is not None and isinstance(self.recipe, NearestNeighbours):
            return ["data.long_texts: nearest_neighbours stores one state of each text; set cut"]
        if getattr(self.recipe, "language_loss", 0) and family(self.family).role != "causal":
            why = f"family '{self.family}' does not predict tokens from those before them"
            return [f"recipe.language_loss: {why}; set 0.0 or take a causal family"]
        if self.task_tokens and family(self.family).role != "causal":
            return [f"recipe.task_tokens: family '{self.family}' has tokens of its own for this; set false"]
        if self.both_directions:
            if not family(self.family).both_directions:
                known = ", ".join(name for name in families("causal") if family(name).both_directions)
                return [f"recipe.direction: '{self.family}' has no causal mask to lift; set causal or take {known}"]
            if getattr(self.recipe, "language_loss", 0):
                return ["recipe.language_loss: a token that sees those after it has none to predict; set 0.0"]
        if bag and pooling != "none":
            return [f"recipe.pooling: family '{self.family}' gives one vector for a whole text; set none"]
        if not bag and pooling == "none":
            return [f"recipe.pooling: family '{self.family}' gives a state for each token; set mean, max or last"]
        return []


def _limits(entry: Mapping[str, Any]) -> tuple[str, ...]:
    recipe = entry["recipe"]
    calibrated = recipe.get("calibrate", recipe["method"] in ("gradient", "linear_svm", "perceptron"))
    scores = "are calibrated on its validation split" if calibrated else "are not calibrated"
    return (
        "It knows only the labels of its corpus and always answers with one of them, even for a text that fits none.",
        f"{long_text_words(entry['data'])} Scores {scores}.",
    )


def _inputs(entry: Mapping[str, Any]) -> Inputs:
    teacher = entry.get("recipe", {}).get("teacher", "")
    folder = layout.model(teacher).as_posix() if teacher else ""
    return Inputs(layout.corpus(entry["data"]["corpus"]).as_posix(), teacher=folder)


def _facts(entry: Classifier) -> list[tuple[str, str]]:
    teacher = getattr(entry.recipe, "teacher", "")
    return [("longest text", f"{entry.data.max_tokens:,} tokens"), *([("teacher", teacher)] if teacher else [])]


KIND = Kind(
    name="classifier",
    words="classifier",
    does="gives a text one of its labels, with a score for each",
    verb="classify",
    corpus="labelled",
    entry=Classifier,
    role="encoder",
    further_roles=("causal", "bag"),
    metrics=(
        Metric("accuracy", "accuracy", higher_is_better=True),
        Metric("macro_f1", "macro F1", higher_is_better=True),
    ),
    counted="texts",
    inputs=_inputs,
    facts=_facts,
    example=lambda sample: (sample["text"], {"label": sample["predicted"], "score": sample["score"]}),
    limits=_limits,
)
