"""Classifiers on bags of n-grams: each method beside scikit-learn or by hand, through the stages and back from disk."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import BernoulliNB, MultinomialNB
from sklearn.svm import LinearSVC

from lexmill import tokenizers
from lexmill.base import layout
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import sha256_folder
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.kinds.classifier import KIND, LinearSVM, NaiveBayes, Perceptron
from lexmill.kinds.classifier.linear_svm import fit_svm
from lexmill.kinds.classifier.naive_bayes import fit_naive_bayes
from lexmill.kinds.classifier.perceptron import fit_perceptron
from lexmill.kinds.classifier.predict import Predictor, classify_texts
from lexmill.kinds.classifier.solution import Solution, Texts, measure, with_temperature
from lexmill.kinds.classifier.telling import shown
from lexmill.models import folder as model_folder
from lexmill.models.common.heads import BagClassifier
from lexmill.models.common.sparse_rows import SparseRows
from lexmill.params import load
from lexmill.stages import evaluate, train
from tests.kinds.classifier.made_models import RECIPES, write_bag
from tests.support.prepared import write_prepared
from tests.support.small_project import whole

WEIGHTINGS = {"bernoulli": "binary", "softmax": "tfidf", "sigmoid": "log_tfidf", "svm": "tfidf"}


def texts_of(split: str) -> tuple[list[str], list[str]]:
    found = list(PreparedCorpus(layout.corpus("reviews")).records(split))
    return [one["text"] for one in found], [one["label"] for one in found]


def trained() -> tuple[dict[str, Any], BagClassifier, Any]:
    train.main("sentiment")
    config, module = model_folder.load(layout.model("sentiment"))
    assert isinstance(module, BagClassifier)
    return config, module, tokenizers.load(layout.model("sentiment") / model_folder.TOKENIZER)


def vectorizer(weighting: str, **more: Any) -> Any:
    split = {"tokenizer": str.split, "token_pattern": None, "ngram_range": (1, 2)} | more
    if weighting in ("count", "binary"):
        return CountVectorizer(binary=weighting == "binary", **split)
    return TfidfVectorizer(sublinear_tf=weighting == "log_tfidf", **split)


def oracle(name: str) -> Any:
    strength = 1 / 0.5
    return {
        "multinomial": MultinomialNB(alpha=0.5),
        "bernoulli": BernoulliNB(alpha=2.0),
        "softmax": LogisticRegression(C=strength, tol=1e-10, max_iter=10_000),
        "sigmoid": OneVsRestClassifier(LogisticRegression(C=strength, tol=1e-10, max_iter=10_000)),
        "svm": LinearSVC(loss="hinge", C=strength, tol=1e-8, max_iter=100_000, random_state=0),
    }[name]


@pytest.mark.usefixtures("word_workspace")
@pytest.mark.parametrize("name", ["multinomial", "bernoulli", "softmax", "sigmoid", "svm"])
def test_each_method_is_scikit_learns_on_the_same_features(name: str) -> None:
    weighting = WEIGHTINGS.get(name, "count")
    write_bag(RECIPES[name], weighting=weighting)
    config, module, words = trained()
    (texts, labels), (unseen, _) = texts_of("train"), texts_of("test")
    made = vectorizer(weighting)
    model = oracle(name).fit(made.fit_transform(texts), labels)
    probabilities = classify_texts(module, words, unseen, config, 4096)
    assert [config["labels"][i] for i in probabilities.argmax(1)] == list(model.predict(made.transform(unseen)))
    if name in ("multinomial", "bernoulli", "softmax"):
        np.testing.assert_allclose(probabilities, model.predict_proba(made.transform(unseen)), atol=2e-4)
    else:  # margins: equal up to one factor for all labels
        logits = np.log(probabilities) - np.log(probabilities).mean(1, keepdims=True)
        margins = model.decision_function(made.transform(unseen))
        margins -= margins.mean(1, keepdims=True)
        factor = float((logits * margins).sum() / (margins * margins).sum())
        np.testing.assert_allclose(logits, factor * margins, atol=5e-3 * np.abs(logits).max())
    evaluate.main("sentiment")
    found = json.loads(layout.metrics("evaluate", "sentiment").read_text(encoding="utf-8"))
    assert found["test"]["accuracy"] > 0.9


@pytest.mark.usefixtures("word_workspace")
@pytest.mark.parametrize("weighting", ["count", "binary", "tfidf", "log_tfidf"])
def test_the_features_are_scikit_learns(weighting: str) -> None:
    write_bag(RECIPES["averaged"], weighting=weighting, least_texts=3)
    _, module, words = trained()
    texts, _ = texts_of("train")
    texts = [*texts[:5], "so so so film film", "unheard words", ""]
    made = vectorizer(weighting, min_df=3).fit(texts_of("train")[0])
    names = [words.decode(module.encoder.n_gram(i)).strip() for i in range(module.width)]  # type: ignore[operator]
    assert sorted(names) == sorted(made.get_feature_names_out())
    wanted = made.transform(texts).toarray()[:, [made.vocabulary_[name] for name in names]]
    ids = [[words.bos_id, *words.encode(text), words.eos_id] for text in texts]
    width = max(map(len, ids))
    tokens = torch.tensor([[*one, *[5] * (width - len(one))] for one in ids])  # padding that would be a word
    mask = torch.arange(width)[None] < torch.tensor([[len(one)] for one in ids])
    np.testing.assert_allclose(module.features(tokens, mask), wanted, atol=1e-6)


@pytest.mark.usefixtures("word_workspace")
def test_of_more_n_grams_those_in_most_texts_are_kept() -> None:
    write_bag(RECIPES["multinomial"], n_feature=5)
    config, module, words = trained()
    texts, _ = texts_of("train")
    made = CountVectorizer(tokenizer=str.split, token_pattern=None, ngram_range=(1, 2), binary=True)
    counts = np.asarray(made.fit_transform(texts).sum(0))[0]
    names = [words.decode(module.encoder.n_gram(i)).strip() for i in range(5)]  # type: ignore[operator]
    assert sorted(counts[made.vocabulary_[name]] for name in names) == sorted(counts)[-5:]
    assert (config["shape"]["n_feature"], module.head.weight.shape) == (5, (3, 5))


@pytest.mark.usefixtures("word_workspace")
@pytest.mark.parametrize("name", ["perceptron", "averaged", "svm"])
def test_it_is_the_same_to_the_bit_each_time_and_no_answer_depends_on_other_texts(name: str) -> None:
    write_bag(RECIPES[name], weighting="tfidf")
    config, module, words = trained()
    first = sha256_folder(layout.model("sentiment")), layout.curve("sentiment").read_bytes()
    train.main("sentiment")
    assert (sha256_folder(layout.model("sentiment")), layout.curve("sentiment").read_bytes()) == first
    texts = ["a fine film", "", "dull " * 50, "so and unheard"]
    together = classify_texts(module, words, texts, config, 4096)
    for text, row in zip(texts, together, strict=True):
        (alone,) = classify_texts(module, words, [text], config, 1)
        assert row == pytest.approx(alone, abs=1e-6)


@pytest.mark.usefixtures("word_workspace")
def test_the_planted_words_are_the_telling_ones() -> None:
    write_bag(RECIPES["averaged"], longest=1, weighting="binary")
    config, module, words = trained()
    evaluate.main("sentiment")
    assert not (layout.plots("sentiment") / "words.png").exists(), "a bag has no embeddings"
    found = json.loads(layout.samples("sentiment").read_text(encoding="utf-8"))["telling"]
    assert {one["label"]: one["features"][0]["n_gram"] for one in found} == {
        "positive": "fine",
        "negative": "dull",
        "so-so": "so",
    }
    names = [words.decode(module.encoder.n_gram(i)).strip() for i in range(module.width)]  # type: ignore[operator]
    weights = module.head.weight[:, names.index("dull")].tolist()
    assert found[0]["features"][0]["weight"] == pytest.approx(weights[0] - (weights[1] + weights[2]) / 2)
    predictor = Predictor("sentiment", config, module, words)
    assert predictor.telling() == found


@pytest.mark.usefixtures("word_workspace")
def test_what_does_not_fit_together_is_refused() -> None:
    mean = RECIPES["softmax"] | {"pooling": "mean"}
    write_bag(mean)
    with pytest.raises(UserErrors, match=r"models\.sentiment\.recipe\.pooling: family 'bag' gives one vector"):
        load()
    layered = {"n_layer": 1, "n_head": 1, "d_model": 8, "d_ffn": 8}
    for recipe, error in (
        (RECIPES["multinomial"], "recipe.method: naive_bayes counts"),
        (RECIPES["softmax"], "set mean"),
    ):
        write_bag(recipe)
        plain = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))
        plain["models"]["sentiment"] |= {"family": "efficient_encoder", "shape": layered}
        Path("params.yaml").write_text(yaml.safe_dump(whole(plain)), encoding="utf-8")
        with pytest.raises(UserErrors, match=error):
            load()
    write_bag(RECIPES["multinomial"], least_texts=1000)
    with pytest.raises(UserError, match=r"no n-gram is in 1000 texts of train; lower shape\.least_texts"):
        train.main("sentiment")


def test_white_space_is_shown_where_it_is_all() -> None:
    assert [shown(text) for text in (" a b", "\n", " ")] == ["a b", r"'\n'", "' '"]


# Four texts over three words and three labels, two of the same label.
FEATURES = SparseRows(
    torch.tensor([0, 2, 3, 5, 6]), torch.tensor([0, 1, 1, 0, 2, 2]), torch.tensor([1.0, 2, 1, 1, 1, 3]).double(), 3
)
LABELS = [0, 1, 2, 1]


def by_hand(epochs: int, orders: list[list[int]]) -> tuple[list[list[float]], list[list[float]]]:
    """The last weights and the mean over all texts of the weights after each, the bias last, one number at a time."""
    rows = [[*row, 1.0] for row in FEATURES.dense().tolist()]
    weight = [[0.0] * 4 for _ in range(3)]
    summed, seen = [[0.0] * 4 for _ in range(3)], 0
    for epoch in range(epochs):
        for text in orders[epoch]:
            scores = [sum(w * x for w, x in zip(weight[label], rows[text], strict=True)) for label in range(3)]
            given = scores.index(max(scores))
            if given != LABELS[text]:
                for place, x in enumerate(rows[text]):
                    weight[LABELS[text]][place] += x
                    weight[given][place] -= x
            seen += 1
            for label in range(3):
                for place in range(4):
                    summed[label][place] += weight[label][place]
    return weight, [[value / seen for value in row] for row in summed]


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("average", [False, True])
def test_the_perceptron_moves_by_each_mistake(average: bool, dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = [[2, 0, 3, 1], [1, 3, 2, 0]]
    left = iter([np.array(order) for order in orders])
    monkeypatch.setattr("lexmill.kinds.classifier.perceptron.permute", lambda *_: next(left))
    texts = Texts(FEATURES.dense() if dense else FEATURES, torch.tensor(LABELS), 3)
    found = fit_perceptron(texts, Perceptron("perceptron", epochs=2, average=average), 1, lambda _: None)
    wanted = by_hand(2, orders)[average]
    assert torch.cat([found.weight, found.bias[:, None]], dim=1).tolist() == pytest.approx(np.array(wanted))


def test_the_first_two_updates_of_the_perceptron_are_those_on_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text 0 is right by the tie (all 0 give label 0); text 1 is not: its word and the bias move from label 0 to 1."""
    monkeypatch.setattr("lexmill.kinds.classifier.perceptron.permute", lambda *_: np.array([0, 1]))
    texts = Texts(FEATURES, torch.tensor(LABELS), 3)
    found = fit_perceptron(texts, Perceptron("perceptron", epochs=1, average=False), 1, lambda _: None)
    assert found.weight.tolist() == [[0, -1, 0], [0, 1, 0], [0, 0, 0]]
    assert found.bias.tolist() == [-1, 1, 0]


def test_a_perceptron_cannot_learn_exclusive_or() -> None:
    texts = Texts(torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]]).double(), torch.tensor([0, 1, 1, 0]), 2)
    found = fit_perceptron(texts, Perceptron("perceptron", epochs=200, average=False), 1, lambda _: None)
    assert measure(texts, found.weight, found.bias)[1] <= 0.75


@pytest.mark.parametrize("classes", [2, 3])
def test_the_support_vector_machine_is_at_the_optimum_of_its_equation(classes: int) -> None:
    """Any step away from the solution raises the written objective."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % classes
    features = torch.randn(60, 4, generator=generator, dtype=torch.float64) + labels[:, None]
    settings = LinearSVM("linear_svm", l2=0.7, tolerance=1e-9, max_iterations=1_000_000)
    found = fit_svm(Texts(features, labels, classes), settings, lambda _: None)
    pairs = [(found.weight[1] - found.weight[0], found.bias[1] - found.bias[0], 1)] if classes == 2 else []
    for weight, bias, label in pairs or [(found.weight[i], found.bias[i], i) for i in range(classes)]:
        sign = torch.where(labels == label, 1.0, -1.0).double()

        def objective(w: torch.Tensor, b: torch.Tensor, sign: torch.Tensor = sign) -> float:
            hinge = (1 - sign * (features @ w + b)).clamp(min=0).sum()
            return float(0.35 * (w @ w + b * b) + hinge)

        least = objective(weight, bias)
        for _ in range(50):
            step = 1e-3 * torch.randn(5, generator=generator, dtype=torch.float64)
            assert objective(weight + step[:4], bias + step[4]) > least - 1e-9


def test_a_label_that_no_text_of_train_has_is_never_predicted() -> None:
    """Of three labels the last one is absent: the other two are as without it, and all losses are finite."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40) % 2
    features = torch.rand(40, 3, generator=generator, dtype=torch.float64) + labels[:, None]
    two, three = (Texts(features, labels, classes) for classes in (2, 3))
    settings = LinearSVM("linear_svm", l2=0.7)
    pair, found = (fit_svm(one, settings, lambda _: None) for one in (two, three))
    assert torch.equal(found.weight[:2], 2 * pair.weight)
    assert found.weight[2].tolist() == [0, 0, 0]
    assert found.bias[2] == -1
    starts = torch.arange(0, 121, 3)
    sparse = SparseRows(starts, torch.arange(3).repeat(40), features.flatten(), 3)
    bayes = fit_naive_bayes(Texts(sparse, labels, 3), NaiveBayes("naive_bayes"), lambda _: None)
    assert bayes.bias.exp().tolist() == pytest.approx([0.5, 0.5, 1e-12])
    assert np.isfinite(measure(Texts(sparse, labels + 1, 3), bayes.weight, bayes.bias)[0])


@pytest.mark.usefixtures("word_workspace")
def test_a_train_split_of_one_label_is_refused() -> None:
    folder = layout.corpus("reviews")
    splits = {split: list(PreparedCorpus(folder).records(split)) for split in ("train", "valid", "test")}
    label = splits["train"][0]["label"]
    same = [record for record in splits["train"] if record["label"] == label]
    shutil.rmtree(folder)
    write_prepared(folder, "labelled", splits | {"train": same})
    write_bag(RECIPES["svm"])
    with pytest.raises(UserError, match="all texts of train have one label"):
        train.main("sentiment")


def test_a_temperature_gives_the_lowest_loss_and_changes_no_answer() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    labels = (features[:, 0] + torch.randn(200, generator=generator, dtype=torch.float64) > 0).long()
    texts = Texts(features, labels, 2)
    weight = 1000 * torch.tensor([[-1.0, 0, 0], [1, 0, 0]]).double()
    margins = Solution(number=1, passes=1, loss=0.0, weight=weight, bias=torch.zeros(2).double())
    found = with_temperature(margins, texts, texts)
    for factor in (0.9, 1.1):
        assert found.loss < measure(texts, found.weight * factor, found.bias * factor)[0]
    assert torch.equal((features @ found.weight.T).argmax(1), (features @ weight.T).argmax(1))


def test_a_card_says_whether_scores_are_calibrated() -> None:
    recipes = {"gradient": True, "linear_svm": True, "perceptron": True, "naive_bayes": False, "linear_probe": False}
    for method, calibrated in recipes.items():
        limits = KIND.limits({"recipe": {"method": method}, "data": {"max_tokens": 9}})
        assert ("Scores are calibrated" in limits[1]) == calibrated, method
    limits = KIND.limits({"recipe": {"method": "gradient", "calibrate": False}, "data": {"max_tokens": 9}})
    assert "Scores are not calibrated" in limits[1]
