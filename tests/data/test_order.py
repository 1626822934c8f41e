"""What bites others, of every kind of batches: order by (seed, step) alone, for any ranks, resumed anywhere.

Each kind is seen as items: the windows, texts or pairs of a global batch, each named by its content or number.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.data.mixture import MixtureBatches, open_train, write_mixture
from lexmill.data.windows import WindowBatches
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.translator.batches import ParallelBatches
from tests.data.made_shards import pairs, random_documents, text_shards, write_shards

SEED = 11


def windows(rows):
    inputs, targets = rows
    return [(*row, last) for row, last in zip(inputs.tolist(), targets[:, -1].tolist(), strict=True)]


def numbers(batch):
    return batch.index.tolist()


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Of each kind: what makes its batches afresh, and what names their items."""
    folder = tmp_path_factory.mktemp("order")
    train = text_shards(folder / "text", [list(range(5, 1400))], vocab_size=2000)
    for name, start in (("a", 5), ("b", 3000)):
        write_shards(folder / name, {"train": {"text": [list(range(start, start + 900))]}}, vocab_size=5000)
    (folder / "mix").mkdir()
    write_mixture(folder / "mix", {"a": (folder / "a", 2.0), "b": (folder / "b", 1.0)})
    source, target = pairs(folder / "pairs", random_documents(150, 1), random_documents(150, 2))
    texts = [[5 + i] * (1 + i % 13) for i in range(83)]
    return {
        "language_model": (lambda seed=SEED: WindowBatches(train, 10, 80, seed), windows),
        "mixture": (lambda seed=SEED: MixtureBatches(open_train(folder / "mix"), 10, 80, seed), windows),
        "classification": (lambda seed=SEED: ClassificationBatches(texts, [0] * 83, 8, seed, 0), numbers),
        "parallel": (lambda seed=SEED: ParallelBatches(source, target, 120, 60, seed), numbers),
    }


KINDS = ["language_model", "mixture", "classification", "parallel"]


@pytest.mark.parametrize("kind", KINDS)
@given(step=st.integers(0, 60), world=st.integers(1, 8))
@settings(max_examples=25, deadline=None)
def test_any_number_of_ranks_has_the_same_global_batch(kinds, kind, step, world):
    make, items = kinds[kind]
    whole = items(make().rows(step, 0, 1))
    shares = [items(make().rows(step, rank, world)) for rank in range(world)]
    assert [share for rank in range(world) for share in [whole[rank::world]]] == shares


@pytest.mark.parametrize("kind", KINDS)
@given(stop=st.integers(0, 24), world=st.integers(1, 4), later=st.integers(1, 4))
@settings(max_examples=12, deadline=None)
def test_a_resume_repeats_nothing_and_skips_nothing_also_on_other_ranks(kinds, kind, stop, world, later):
    make, items = kinds[kind]

    def seen(steps, ranks):
        batches = [make() for _ in range(ranks)]  # each rank has its own process
        return [
            sorted(item for rank in range(ranks) for item in items(batches[rank].rows(step, rank, ranks)))
            for step in steps
        ]

    straight = seen(range(25), 1)
    assert seen(range(stop), world) + seen(range(stop, 25), later) == straight


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", [2, 3])
def test_no_two_ranks_draw_the_same(kinds, kind, world):
    make, items = kinds[kind]
    for step in range(5):
        drawn = [item for rank in range(world) for item in items(make().rows(step, rank, world))]
        assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize("kind", ["language_model", "classification", "parallel"])
def test_an_epoch_has_every_item_once_in_another_order_each_time(kinds, kind):
    make, items = kinds[kind]
    batches = make()
    epochs, step = [], 0
    for epoch in range(3):
        seen = []
        while batches.epoch(step) < epoch + 1 - 1e-9:
            seen += items(batches.rows(step, 0, 1))
            step += 1
        epochs.append(seen)
    if kind == "language_model":  # a batch may reach into the next epoch: in the endless row, epoch by epoch
        row, size = [item for seen in epochs for item in seen], batches.windows
        epochs = [row[epoch * size : (epoch + 1) * size] for epoch in range(2)]
        firsts = [sorted(target for window in seen for target in window[1:]) for seen in epochs]
        assert all(len(set(targets)) == len(targets) == size * 10 for targets in firsts)
    else:
        assert all(len(set(seen)) == len(seen) for seen in epochs)
        assert len({frozenset(seen) for seen in epochs}) == 1
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_is_another_order_and_nothing_outside_counts(kinds, kind):
    make, items = kinds[kind]
    first = items(make().rows(3, 0, 1))
    np.random.seed(5)  # what others do to the global generator
    assert items(make().rows(3, 0, 1)) == first
    assert items(make(SEED + 1).rows(3, 0, 1)) != first
