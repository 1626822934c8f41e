"""The chain beside the enumeration of all paths, with gradients; the vectors of words; what a tagger cannot say."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import pytest
import torch

from lexmill import models
from lexmill.base.errors import UserErrors
from lexmill.base.tag_schemes import check
from lexmill.models.common.chain import FORBIDDEN, IGNORED, Chain, log_partition, nats, viterbi
from lexmill.models.common.tagging import Scores, Tagger

B, W, L = 3, 4, 3
LENGTHS = [4, 1, 3]
IOB2 = ["O", "B-per", "I-per", "B-loc", "I-loc"]


def chain(count: int = L, seed: int = 0) -> Chain:
    generator = torch.Generator().manual_seed(seed)
    return Chain(*(torch.randn(*size, generator=generator) for size in ((count, count), (count,), (count,))))


def score_of(path: tuple[int, ...], emissions: Any, scores: Chain) -> Any:
    """The sum of a path, term by term."""
    total = scores.first[path[0]] + scores.last[path[-1]]
    for word, tag in enumerate(path):
        total = total + emissions[word, tag]
    for before, after in pairwise(path):
        total = total + scores.transitions[before, after]
    return total


def made(seed: int = 1) -> tuple[Any, Any]:
    """Emissions and labels of sentences of several lengths; what is after an end is arbitrary."""
    generator = torch.Generator().manual_seed(seed)
    emissions = torch.randn(B, W, L, generator=generator)
    labels = torch.randint(L, (B, W), generator=generator)
    for row, length in enumerate(LENGTHS):
        labels[row, length:] = IGNORED
    return emissions, labels


def test_the_probability_is_that_of_the_enumeration() -> None:
    emissions, labels = made()
    scores = chain()
    found = nats(emissions, labels, scores)
    for row, length in enumerate(LENGTHS):
        every = torch.stack([score_of(path, emissions[row], scores) for path in product(range(L), repeat=length)])
        right = score_of(tuple(labels[row, :length].tolist()), emissions[row], scores)
        torch.testing.assert_close(found[row], every.logsumexp(0) - right, rtol=1e-5, atol=1e-5)


def test_the_best_path_is_that_of_the_enumeration() -> None:
    for seed in range(5):
        emissions, _ = made(seed)
        scores = chain(seed=seed)
        found = viterbi(emissions, torch.tensor(LENGTHS), scores)
        for row, length in enumerate(LENGTHS):
            paths = list(product(range(L), repeat=length))
            best = max(paths, key=lambda path: float(score_of(path, emissions[row], scores)))
            assert found[row].tolist() == [*best, *[0] * (W - length)]


def test_gradients_are_those_of_finite_differences() -> None:
    emissions, labels = made()
    inputs = [one.double().requires_grad_() for one in (emissions, *chain())]
    assert torch.autograd.gradcheck(lambda e, t, a, z: nats(e, labels, Chain(t, a, z)), inputs)


def test_padding_has_no_part_in_it() -> None:
    emissions, labels = made()
    scores = chain()
    for row, length in enumerate(LENGTHS):
        alone = nats(emissions[row : row + 1, :length], labels[row : row + 1, :length], scores)
        torch.testing.assert_close(nats(emissions, labels, scores)[row], alone[0])


def network(head: str, pieces: str = "first", scheme: str = "iob2", seed: int = 0, **changes: Any) -> Any:
    config = {
        "family": "birnn",
        "shape": {"n_layer": 1, "d_embedding": 8, "d_state": 6, "max_positions": 20},
        "vocab_size": 30,
        "tags": IOB2 if scheme == "iob2" else ["O", "S-per", "B-per", "I-per", "E-per"],
        "scheme": scheme,
        "pieces": pieces,
        "head": head,
        "dropout": 0.0,
    }
    torch.manual_seed(seed)
    module = models.build(config | changes)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return module.eval()


@pytest.mark.parametrize("scheme", ["iob2", "bioes"])
def test_a_chain_gives_only_sequences_that_the_scheme_allows(scheme: Any) -> None:
    module = network("crf", scheme=scheme)
    scores = module.chain()
    names = IOB2 if scheme == "iob2" else ["O", "S-per", "B-per", "I-per", "E-per"]
    generator = torch.Generator().manual_seed(3)
    emissions = 4 * torch.randn(40, 5, len(names), generator=generator)
    lengths = torch.randint(1, 6, (40,), generator=generator)
    for row, length in zip(viterbi(emissions, lengths, scores).tolist(), lengths.tolist(), strict=True):
        check([names[tag] for tag in row[:length]], scheme)
    # All probability is that of the allowed sequences.
    one = emissions[:1, :3]
    allowed = []
    for path in product(range(len(names)), repeat=3):
        total = score_of(path, one[0], scores)
        if total > FORBIDDEN / 2:
            check([names[tag] for tag in path], scheme)
            allowed.append(total)
    assert 0 < len(allowed) < len(names) ** 3
    real = torch.ones(1, 3, dtype=torch.bool)
    torch.testing.assert_close(log_partition(one, real, scores)[0], torch.stack(allowed).logsumexp(0))


TOKENS = torch.tensor([[1, 7, 8, 9, 3, 2], [1, 5, 2, 0, 0, 0]])
MASK = torch.tensor([[True] * 6, [True] * 3 + [False] * 3])
WORDS = torch.tensor([[-1, 0, 0, 1, 2, -1], [-1, 0, -1, -1, -1, -1]])


@pytest.mark.parametrize("pieces", ["first", "mean"])
def test_a_words_vector_is_that_of_its_pieces(pieces: str) -> None:
    module = network("softmax", pieces)
    hidden = module.encoder.hidden(TOKENS, MASK)
    first = hidden[0, 1] if pieces == "first" else (hidden[0, 1] + hidden[0, 2]) / 2
    wanted = module.head(torch.stack([first, hidden[0, 3], hidden[0, 4]]))
    emissions, of_chain = module(TOKENS, MASK, WORDS)
    assert of_chain is None
    assert emissions.shape == (2, 3, len(IOB2))
    torch.testing.assert_close(emissions[0], wanted)
    torch.testing.assert_close(emissions[1, 0], module.head(hidden[1, 1]))


def test_the_loss_of_a_softmax_is_that_of_each_word() -> None:
    scores = network("softmax")(TOKENS, MASK, WORDS)
    labels = torch.tensor([[1, 2, 0], [3, IGNORED, IGNORED]])
    logs = scores.emissions.log_softmax(-1)
    torch.testing.assert_close(scores.nats(labels)[0], -(logs[0, 0, 1] + logs[0, 1, 2] + logs[0, 2, 0]))
    torch.testing.assert_close(scores.nats(labels)[1], -logs[1, 0, 3])
    assert scores.best(torch.tensor([3, 1]))[0].tolist() == scores.emissions[0].argmax(-1).tolist()


def test_a_share_without_sentences_has_no_loss() -> None:
    module = network("crf")
    empty = torch.zeros(0, 1, dtype=torch.int64)
    scores = module(empty, empty.bool(), empty)
    assert scores.nats(empty).shape == (0,)


def test_what_is_no_batch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must be \(B, T\) all three"):
        network("crf")(TOKENS, MASK, WORDS[:, :3])


def test_a_damaged_config_is_refused_with_all_its_errors() -> None:
    with pytest.raises(UserErrors) as raised:
        network("viterbi", pieces="last", scheme="iob2", dropout=2, tags=[1])
    assert len(raised.value.errors) == 4
    assert isinstance(network("crf"), Tagger)
    assert isinstance(network("crf")(TOKENS, MASK, WORDS), Scores)
