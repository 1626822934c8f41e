"""L-BFGS on logistic regression: the optimum that scikit-learn finds."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch.nn import functional

from lexmill.kinds.classifier import LinearProbe
from lexmill.kinds.classifier.convex import Iteration, fit_logistic


def data(texts: int, width: int, classes: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Clouds that overlap, of unequal size and scale."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(classes, texts, p=np.arange(1, classes + 1) / np.arange(1, classes + 1).sum())
    centres = generator.normal(size=(classes, width))
    features = (centres[labels] + 1.5 * generator.normal(size=(texts, width))) * generator.uniform(0.1, 2, width)
    return torch.from_numpy(features), torch.from_numpy(labels)


def fit(features: torch.Tensor, labels: torch.Tensor, classes: int, **settings: float) -> tuple[Iteration, list[float]]:
    losses: list[float] = []
    chosen = LinearProbe("linear_probe", **settings)  # type: ignore[arg-type]
    found = fit_logistic(features, labels, classes, chosen, lambda at: losses.append(at.loss))
    return found, losses


@pytest.mark.parametrize(("classes", "l2"), [(3, 1.0), (3, 0.01), (5, 20.0)])
def test_it_is_scikit_learns_optimum(classes: int, l2: float) -> None:
    features, labels = data(300, 8, classes)
    found, _ = fit(features, labels, classes, l2=l2, tolerance=1e-9)
    oracle = LogisticRegression(C=1 / l2, tol=1e-10, max_iter=10_000).fit(features.numpy(), labels.numpy())
    np.testing.assert_allclose(found.weight.numpy(), oracle.coef_, atol=1e-4)
    # A number added to all biases changes nothing.
    np.testing.assert_allclose(found.bias - found.bias.mean(), oracle.intercept_ - oracle.intercept_.mean(), atol=1e-4)


def test_two_labels_are_scikit_learns_with_twice_its_strength() -> None:
    features, labels = data(200, 5, 2)
    found, _ = fit(features, labels, 2, l2=0.5, tolerance=1e-9)
    oracle = LogisticRegression(C=2 / 0.5, tol=1e-10, max_iter=10_000).fit(features.numpy(), labels.numpy())
    np.testing.assert_allclose((found.weight[1] - found.weight[0]).numpy(), oracle.coef_[0], atol=1e-4)
    np.testing.assert_allclose((found.bias[1] - found.bias[0]).item(), oracle.intercept_[0], atol=1e-4)


def test_at_the_default_tolerance_the_probabilities_are_those_of_the_optimum() -> None:
    features, labels = data(500, 20, 4)
    found, losses = fit(features, labels, 4)
    oracle = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000).fit(features.numpy(), labels.numpy())
    probabilities = functional.linear(features, found.weight, found.bias).softmax(1)
    np.testing.assert_allclose(probabilities, oracle.predict_proba(features.numpy()), atol=1e-4)
    assert found.largest_gradient <= 1e-6
    assert found.number == len(losses) < 100
    assert found.loss == losses[-1] < losses[0]


def test_it_is_the_same_to_the_bit_each_time() -> None:
    features, labels = data(100, 6, 3)
    (one, _), (other, _) = (fit(features, labels, 3) for _ in range(2))
    assert torch.equal(one.weight, other.weight)
    assert torch.equal(one.bias, other.bias)


def test_a_search_that_is_cut_off_says_how_far_it_came() -> None:
    features, labels = data(100, 6, 3)
    found, losses = fit(features, labels, 3, max_iterations=2)
    assert (found.number, len(losses)) == (2, 2)
    assert found.largest_gradient > 1e-6


def test_separable_texts_without_a_penalty_come_to_an_end() -> None:
    """There is no optimum: the weights grow, and the search stops at its bound or where rounding is larger."""
    features = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    found, _ = fit(features, torch.tensor([0, 1]), 2, l2=0.0, tolerance=1e-300, max_iterations=200)
    assert found.loss < 1e-6
    assert found.weight.isfinite().all()


def test_an_optimum_at_the_start_needs_no_step() -> None:
    features = torch.zeros(4, 2, dtype=torch.float64)
    found, losses = fit(features, torch.tensor([0, 1, 0, 1]), 2)
    assert (found.number, losses) == (0, [])
    assert found.loss == pytest.approx(np.log(2))
