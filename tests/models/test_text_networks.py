"""Encoders of bags, windows and pixels, beside slow sums; and the ways of pooling their states."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.models import build
from lexmill.models.bag.model import Bag
from lexmill.models.bag.shape import Shape as BagShape
from lexmill.models.common.heads import NearestNeighbours, PooledClassifier
from lexmill.models.pixel_cnn.font import drawn, glyph
from lexmill.models.text_mlp.model import ACTIVATIONS

BY_HAND = {
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "tanh": lambda x: (math.exp(x) - math.exp(-x)) / (math.exp(x) + math.exp(-x)),
    "relu": lambda x: max(0.0, x),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "elu": lambda x: x if x > 0 else math.exp(x) - 1,
    "softplus": lambda x: math.log(1 + math.exp(x)),
    "swish": lambda x: x / (1 + math.exp(-x)),
    "gelu": lambda x: x * (1 + math.erf(x / 2**0.5)) / 2,
    "sine": math.sin,
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_each_activation_is_its_formula(name: Any) -> None:
    points = [-2.0, -0.3, 0.4, 3.0]
    found = ACTIVATIONS[name](torch.tensor(points, dtype=torch.float64))
    assert found.tolist() == pytest.approx([BY_HAND[name](x) for x in points], abs=1e-7)


def classifier(family: str, shape: dict[str, Any], pooling: str = "mean", vocab_size: int = 8) -> Any:
    torch.manual_seed(0)
    config = {"family": family, "shape": shape, "vocab_size": vocab_size, "labels": ["a", "b"], "dropout": 0.0}
    return build({**config, "pooling": pooling})


# Exclusive or: one of the words 0 and 1, then one of 2 and 3.
TEXTS, LABELS = torch.tensor([[0, 2], [0, 3], [1, 2], [1, 3]]), torch.tensor([0, 1, 1, 0])


def learned(module: nn.Module) -> float:
    """The share of the four texts that are right after a short training."""
    mask = torch.ones_like(TEXTS, dtype=torch.bool)
    search = torch.optim.Adam(module.parameters(), lr=0.05)
    for _ in range(300):
        search.zero_grad()
        nn.functional.cross_entropy(module(TEXTS, mask), LABELS).backward()
        search.step()
    return float((module(TEXTS, mask).argmax(1) == LABELS).float().mean())


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name not in ("leaky_relu", "swish")])
def test_one_hidden_layer_learns_exclusive_or(activation: str) -> None:
    module = classifier("text_mlp", {"n_layer": 1, "d_model": 16, "activation": activation})
    nn.init.normal_(module.encoder.embedding.weight)
    assert learned(module) == 1.0


def test_the_mean_alone_cannot_learn_exclusive_or() -> None:
    """It adds up what each word says; no weights of the words give the four answers."""
    module = classifier("text_mlp", {"n_layer": 0, "d_model": 16})
    nn.init.normal_(module.encoder.embedding.weight)
    assert learned(module) <= 0.75


def test_a_text_cnn_is_the_sum_over_its_windows() -> None:
    module = classifier("text_cnn", {"d_embedding": 3, "filters": 2, "widths": (2, 3)}, "max")
    tokens, lengths = torch.tensor([[1, 4, 2, 7, 5], [6, 3, 7, 7, 7]]), (5, 2)
    mask = torch.arange(5)[None] < torch.tensor(lengths)[:, None]
    found = module.encoder.hidden(tokens, mask)
    table = module.encoder.embedding.weight
    for text, length in enumerate(lengths):
        states = []
        for width, convolution in zip((2, 3), module.encoder.convolutions, strict=True):
            for which in range(2):
                row = []
                for at in range(length):
                    total = convolution.bias[which].clone()
                    for step in range(width):
                        place = at + step - (width - 1) // 2
                        if 0 <= place < length:
                            total = total + (convolution.weight[which, :, step] * table[tokens[text, place]]).sum()
                    row.append(total.clamp(min=0))
                states.append(torch.stack(row))
        wanted = torch.stack(states, dim=1)  # (T, D)
        torch.testing.assert_close(found[text, :length], wanted)
        torch.testing.assert_close(module.features(tokens, mask)[text], wanted.max(dim=0).values)


@pytest.mark.parametrize("pooling", ["mean", "max", "last", "attention"])
@pytest.mark.parametrize("family", ["text_cnn", "lstm", "llama"])
def test_each_pooling_is_of_real_tokens_only(family: str, pooling: str) -> None:
    """Causal networks too: padding comes after the text."""
    from lexmill.models import family as declared

    module = classifier(family, dict(declared(family).tiny), pooling).eval()
    tokens = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 7]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    network = module.encoder
    hidden = network.hidden(tokens[1:, :2], mask[1:, :2]) if family == "text_cnn" else network.hidden(tokens[1:, :2])
    first, last = hidden[0]
    wanted = {"mean": (first + last) / 2, "max": torch.maximum(first, last), "last": last}
    if pooling == "attention":
        scores = [float((module.attention.weight[0] * one).sum()) for one in (first, last)]
        share = math.exp(scores[0]) / (math.exp(scores[0]) + math.exp(scores[1]))
        wanted["attention"] = share * first + (1 - share) * last
    torch.testing.assert_close(module.features(tokens, mask)[1], wanted[pooling], rtol=1e-4, atol=1e-5)


def test_a_causal_network_reads_as_far_as_it_can() -> None:
    from lexmill.models import family as declared

    assert classifier("llama", dict(declared("llama").tiny)).max_positions == declared("llama").tiny["context"]
    assert classifier("lstm", dict(declared("lstm").tiny)).max_positions > 1_000_000


def test_neighbours_vote_as_in_scikit_learn() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    torch.manual_seed(0)
    shape = {"n_layer": 0, "d_model": 6}
    config = {"family": "text_mlp", "shape": shape, "vocab_size": 50, "labels": ["a", "b", "c"], "dropout": 0.0}
    module = build({**config, "neighbours": 5, "train_texts": 40})
    assert isinstance(module, NearestNeighbours)
    tokens, unseen, labels = torch.randint(50, (40, 4)), torch.randint(50, (30, 4)), torch.randint(3, (40,))
    features = [module.features(one, torch.ones_like(one, dtype=torch.bool)).detach() for one in (tokens, unseen)]
    module.vectors.copy_(nn.functional.normalize(features[0], dim=1))
    module.labels.copy_(labels)
    oracle = KNeighborsClassifier(5, metric="cosine").fit(features[0].numpy(), labels.numpy())
    found = module(unseen, torch.ones_like(unseen, dtype=torch.bool)).softmax(1)
    wanted = (torch.from_numpy(oracle.predict_proba(features[1].numpy())) * 5 + 1) / (5 + 3)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-6)


def ink(rows: list[list[int]]) -> list[str]:
    return ["".join(".#"[pixel] for pixel in row) for row in rows]


def test_letters_look_like_letters() -> None:
    assert ink(drawn("Li", 3)) == [
        "####......##............",
        ".##.....................",
        ".##......###............",
        ".##.......##............",
        ".##...#...##............",
        ".##..##...##............",
        "#######..####...........",
        "........................",
    ]
    assert drawn("abcd", 2) == drawn("ab", 2)
    assert glyph("é") == glyph("e")
    assert sum(map(sum, glyph(" "))) == 0
    every = [str(glyph(chr(code))) for code in [*range(32, 127), 0x3B1, 0x3B2, 0x4E2D, 0x1F600]]
    assert len(set(every)) == len(every)


def drawn_network() -> Any:
    torch.manual_seed(0)
    shape = {"d_model": 4, "characters": 2, "filters": 3}
    module: Any = build({"family": "pixel_cnn", "shape": shape, "vocab_size": 6})
    module.draw(["ab", "cd", "x", "yz", "", "Q!"])
    return module


def test_a_pixel_cnn_is_the_sum_over_its_pixels() -> None:
    """The first layer, pixel by pixel, in eval mode: batch norm is a factor and a number for each filter."""
    module = drawn_network().eval()
    layer = module.layers[0]
    layer.norm.running_mean.copy_(torch.tensor([0.1, -0.2, 0.3]))
    layer.norm.running_var.copy_(torch.tensor([1.0, 2.0, 0.5]))
    strip = torch.tensor([a + b for a, b in zip(drawn("cd", 2), drawn("x", 2), strict=True)]).float()  # (8, 32)
    found = layer(strip[None, None], torch.ones(1, 16, dtype=torch.bool))[0]
    assert found.shape == (3, 4, 16)
    for filter_, row, column in [(0, 0, 0), (1, 3, 15), (2, 2, 7), (0, 1, 4), (1, 0, 9)]:
        total = 0.0
        for up in range(3):
            for side in range(3):
                y, x = 2 * row + up - 1, 2 * column + side - 1
                if 0 <= y < 8 and 0 <= x < 32:
                    total += float(layer.convolution.weight[filter_, 0, up, side] * strip[y, x])
        mean, variance = float(layer.norm.running_mean[filter_]), float(layer.norm.running_var[filter_])
        assert found[filter_, row, column].item() == pytest.approx(
            max(0.0, (total - mean) / (variance + 1e-5) ** 0.5), abs=1e-5
        )


def test_batch_norm_counts_no_padding() -> None:
    """In training: the statistics of two texts padded to one width are those of their real columns."""
    module = drawn_network().train()
    tokens, mask = torch.tensor([[0, 1, 2], [3, 4, 4]]), torch.tensor([[True] * 3, [True, False, False]])
    module.hidden(tokens, mask)
    first = module.layers[0]
    strips = [module.pixels[row[keep]].transpose(0, 1).flatten(1) for row, keep in zip(tokens, mask, strict=True)]
    kept = [first.convolution(strip[None, None]) for strip in strips]
    values = torch.cat([one[0].flatten(1) for one in kept], dim=1)  # (C, pixels)
    torch.testing.assert_close(first.norm.running_mean, 0.1 * values.mean(dim=1), rtol=1e-4, atol=1e-5)


def test_more_n_grams_than_numbers_are_refused() -> None:
    with pytest.raises(UserError, match=r"longest: n-grams of 3 tokens over a vocabulary of 16,777,216 are more"):
        Bag(BagShape(10, longest=3), 1 << 24)


def test_a_pooled_head_is_as_it_was() -> None:
    module = classifier("efficient_encoder", {"n_layer": 1, "n_head": 1, "d_model": 8, "d_ffn": 8})
    assert isinstance(module, PooledClassifier)
    tokens, mask = torch.tensor([[1, 2, 3]]), torch.ones(1, 3, dtype=torch.bool)
    hidden: Tensor = module.encoder.hidden(tokens, mask)
    assert torch.equal(module.features(tokens, mask), hidden.sum(dim=1) / 3)
