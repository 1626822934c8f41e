"""The language model's task: documents kept apart in a packed window, mixtures, every validation target once."""

import numpy as np
import pytest
import torch

from lexmill import models
from lexmill.data.mixture import open_train, write_mixture
from lexmill.data.shards import TokenShards
from lexmill.evaluation.scoring import NetworkScorer
from lexmill.kinds.language_model.next_token import LanguageModelTask
from lexmill.training.task import tensors
from tests.data.made_shards import EOS, random_documents, write_shards

CONTEXT = 24
SHAPES = {
    "gpt": {"n_layer": 2, "n_head": 2, "d_model": 16, "context": CONTEXT},
    "llama": {"n_layer": 2, "n_head": 2, "n_kv_head": 1, "d_model": 16, "d_ffn": 32, "context": CONTEXT},
    "lstm": {"n_layer": 1, "d_model": 16, "context": CONTEXT},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    splits = {"train": {"text": random_documents(20, 1, 12)}, "valid": {"text": random_documents(9, 2, 12)}}
    return write_shards(tmp_path_factory.mktemp("shards") / "t", splits)


def task(folder, family, **options):
    torch.manual_seed(3)
    module = models.build({"family": family, "shape": SHAPES[family], "vocab_size": 300})
    for parameter in module.parameters():  # large weights: what is seen by mistake moves the loss far
        torch.nn.init.normal_(parameter, std=0.3)
    train, valid = TokenShards(folder, "train"), TokenShards(folder, "valid")
    return LanguageModelTask(module, train, valid, context=CONTEXT, batch_tokens=4 * CONTEXT, data_seed=5, **options)


def pieces(batch):
    """Each document's part of each row: its inputs and targets."""
    for inputs, targets, numbers in zip(batch["inputs"], batch["targets"], batch["documents"], strict=True):
        for number in np.unique(numbers):
            here = numbers == number
            yield inputs[here], targets[here]


@pytest.mark.parametrize("family", SHAPES)
@torch.no_grad()
def test_a_packed_window_gives_the_losses_of_its_documents_alone(folder, family):
    apart, together = task(folder, family, mask_documents=True), task(folder, family)
    scorer = NetworkScorer(apart.module, CONTEXT, EOS, 256)
    whole = 0
    for step in range(3):
        batch = apart.batch(step, 0, 1)
        alone = 0.0
        for inputs, targets in pieces(batch):
            nats = apart.module.loss(torch.tensor(inputs)[None], torch.tensor(targets)[None])
            alone += float(nats)
            if inputs[0] == EOS and targets[-1] == EOS:  # a whole document: as evaluation scores it
                (scores,) = scorer.log_probabilities([targets[:-1].tolist()])
                assert float(nats) == pytest.approx(-scores.sum(), rel=1e-5)
                whole += 1
        arrays = tensors(batch, torch.device("cpu"))
        assert float(apart.loss_sum(apart.module, arrays)[0]) == pytest.approx(alone, rel=1e-5)
        plain = together.batch(step, 0, 1)
        assert set(plain) == {"inputs", "targets"}
        seen = float(together.loss_sum(together.module, tensors(plain, torch.device("cpu")))[0])
        assert seen != pytest.approx(alone, rel=1e-4)
    assert whole > 5


@pytest.mark.parametrize("masked", [False, True])
@torch.no_grad()
def test_validation_counts_every_target_once_whatever_the_ranks_and_the_rows(folder, masked, monkeypatch):
    found = []
    for world, tokens in ((1, 4096), (1, CONTEXT), (3, 2 * CONTEXT), (40, CONTEXT)):
        monkeypatch.setattr("lexmill.kinds.language_model.next_token._VALID_TOKENS", tokens)
        one = task(folder, "gpt", mask_documents=masked)
        sums = sum(
            one.validation_sums(one.module, tensors(batch, torch.device("cpu")))
            for rank in range(world)
            for batch in one.validation_batches(rank, world)
        )
        found.append(one.validation_metrics(sums.tolist())["valid_loss"])
        assert int(sums[1]) == len(one.valid.tokens)
    assert found == pytest.approx([found[0]] * 4, rel=1e-6)


@torch.no_grad()
def test_validation_keeps_documents_apart(folder):
    one = task(folder, "gpt", mask_documents=True)
    (batch,) = one.validation_batches(0, 1)
    alone = sum(
        float(one.module.loss(torch.tensor(inputs)[None], torch.tensor(targets)[None]))
        for inputs, targets in pieces(batch)
        if (targets != -100).any()
    )
    assert float(one.validation_sums(one.module, tensors(batch, torch.device("cpu")))[0]) == pytest.approx(alone)


def test_a_mixture_is_learned_from_like_a_corpus(folder, tmp_path):
    write_shards(tmp_path / "other", {"train": {"text": random_documents(10, 7)}, "valid": {"text": [[5]]}})
    (tmp_path / "mix").mkdir()
    write_mixture(tmp_path / "mix", {"t": (folder, 3.0), "other": (tmp_path / "other", 1.0)})
    module = models.build({"family": "gpt", "shape": SHAPES["gpt"], "vocab_size": 300})
    valid = TokenShards(folder, "valid")
    options = {"context": CONTEXT, "batch_tokens": 8 * CONTEXT, "data_seed": 5, "mask_documents": True}
    one = LanguageModelTask(module, open_train(tmp_path / "mix"), valid, **options)
    batch = one.batch(2, 0, 1)
    assert batch["documents"].shape == batch["inputs"].shape == (8, CONTEXT)
    assert one.epochs(0) == 0
    assert one.epochs(one.batches.windows) == 8
    found = one.member_epochs(one.batches.windows)
    assert list(found) == ["epochs_other", "epochs_t"]
    assert found["epochs_t"] == pytest.approx(6 * one.batches.windows / one.batches.members["t"].windows, rel=0.01)
    assert np.isfinite(float(one.loss_sum(module, tensors(batch, torch.device("cpu")))[0].detach()))
