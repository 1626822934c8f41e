"""Mixtures: exact shares, each member read through in its own order, one global batch for any number of ranks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.data.mixture import MixtureBatches, Shares, open_train, open_valid, training_batches, write_mixture
from lexmill.data.permutation import fold
from lexmill.data.shards import TokenShards
from lexmill.data.windows import WindowBatches
from tests.data.made_shards import EOS, TOKENIZER, random_documents, write_shards

WEIGHTS = st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=9)


def mixed(folder, weights, sizes=(400, 90, 1500), documents=None):
    """Members a, b, c ... whose ids tell them apart: 10000, 20000, 30000 ... plus the place."""
    members = {}
    for i, (weight, size) in enumerate(zip(weights, sizes, strict=False)):
        name = "abcdefgh"[i]
        row = list(range(10_000 * (i + 1), 10_000 * (i + 1) + size))
        train = [row] if documents is None else [row[j : j + documents] for j in range(0, size, documents)]
        write_shards(
            folder / "tokens" / name,
            {"train": {"text": train}, "valid": {"text": [[7 + i]]}},
            vocab_size=100_000,
            shard_bytes=256,
        )
        members[name] = (folder / "tokens" / name, weight)
    (folder / "mix").mkdir()
    write_mixture(folder / "mix", members)
    return folder / "mix"


@given(weights=WEIGHTS, total=st.integers(1, 3000))
@settings(max_examples=80, deadline=None)
def test_each_member_has_its_share_at_every_moment(weights, total):
    shares = Shares({str(i): weight for i, weight in enumerate(weights)})
    member, place = shares.deal(np.arange(total))
    wanted = np.array(weights) / sum(weights)
    given = np.cumsum(member[:, None] == np.arange(len(weights)), axis=0)
    error = np.abs(given - np.arange(1, total + 1)[:, None] * wanted)
    assert error.max() < (0.5001 if len(weights) == 2 else 2)
    assert list(shares.counts(total).values()) == given[-1].tolist()
    for i in range(len(weights)):  # each member's places are 0, 1, 2, ...: none is left out, none comes twice
        assert place[member == i].tolist() == list(range(given[-1, i]))


@given(weights=WEIGHTS, numbers=st.lists(st.integers(0, 2**32), min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_a_number_is_dealt_alone_as_among_others(weights, numbers):
    shares = Shares({str(i): weight for i, weight in enumerate(weights)})
    together = shares.deal(np.array(numbers))
    for i, number in enumerate(numbers):
        alone = shares.deal(np.array([number]))
        assert (alone[0][0], alone[1][0]) == (together[0][i], together[1][i])
        before, after = shares.counts(number), shares.counts(number + 1)
        name = shares.names[alone[0][0]]
        assert after == {**before, name: before[name] + 1}
        assert alone[1][0] == before[name]


def test_the_shares_of_a_batch_by_hand(tmp_path):
    batches = MixtureBatches(open_train(mixed(tmp_path, [0.5, 0.25, 0.25])), 10, 80, seed=1)
    inputs, _ = batches.batch(0)
    assert sorted((inputs.max(axis=1) // 10_000).tolist()) == [1, 1, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_ranks_share_the_global_batch(tmp_path, world):
    batches = MixtureBatches(open_train(mixed(tmp_path, [2, 1, 1], documents=7)), 10, 70, seed=1)
    for step in (0, 3, 40):
        inputs, targets = batches.batch(step)
        documents = batches.documents(step, 0, 1)
        for rank in range(world):
            mine = batches.rows(step, rank, world)
            assert np.array_equal(mine[0], inputs[rank::world])
            assert np.array_equal(mine[1], targets[rank::world])
            assert np.array_equal(batches.documents(step, rank, world), documents[rank::world])


def test_a_batch_is_a_pure_function_of_seed_and_step(tmp_path):
    train = open_train(mixed(tmp_path, [3, 1, 2]))
    first, second = (MixtureBatches(train, 10, 70, seed=1) for _ in range(2))
    forwards = [first.batch(step) for step in range(30)]
    for step in reversed(range(30)):
        assert np.array_equal(second.batch(step), forwards[step])
    assert not np.array_equal(MixtureBatches(train, 10, 70, seed=2).batch(0), forwards[0])


def test_each_member_goes_through_its_own_windows_epoch_by_epoch(tmp_path):
    folder = mixed(tmp_path, [0.6, 0.3, 0.1])
    batches = MixtureBatches(open_train(folder), 10, 70, seed=1)
    targets = np.concatenate([batches.batch(step)[1] for step in range(60)])
    of_member = {name: [] for name in "abc"}
    for row in targets:
        name = "abc"[int(np.max(row)) // 10_000 - 1]
        of_member[name].append(row.tolist())
    for name, seen in of_member.items():
        alone = WindowBatches(TokenShards(folder / name, "train"), 10, 10, fold(1, "member", name))
        assert seen == [alone.batch(i)[1][0].tolist() for i in range(len(seen))]
        assert batches.epochs(60)[name] == len(seen) / alone.windows
    assert batches.epochs(60)["b"] > 2  # the small member was repeated
    assert batches.windows == 40 + 9 + 150
    assert batches.steps_per_epoch == -(-199 // 7)
    assert batches.epoch(199) == 7


def test_a_mixture_keeps_the_members_bytes_and_adds_none(tmp_path):
    folder = mixed(tmp_path, [2, 1])
    for name in "ab":
        assert storage.sha256_folder(folder / name) == storage.sha256_folder(tmp_path / "tokens" / name)
        source = tmp_path / "tokens" / name / "train-text-00000.bin"
        assert (folder / name / "train-text-00000.bin").samefile(source)
    train = open_train(folder)
    assert train.weights == {"a": 2, "b": 1}
    assert (train.vocab_size, train.tokenizer_fingerprint) == (100_000, TOKENIZER)


@pytest.mark.parametrize("side", ["text", "source"])
def test_documents_that_another_member_holds_out_are_counted(tmp_path, side):
    def sides(*rows):
        return {side: rows} if side == "text" else {"source": rows, "target": [[9]] * len(rows)}

    splits = {
        "a": {"train": sides([5, 6], [7], [5, 6], [8]), "valid": sides([4]), "test": sides([6, 6])},
        "b": {"train": sides([6, 6, 6], [4, 4]), "valid": sides([7]), "test": sides([5, 6], [8, 8])},
        "c": {"train": sides([6, 6], [7], [3])},
    }
    members = {name: (write_shards(tmp_path / name, each), 1.0) for name, each in splits.items()}
    (tmp_path / "mix").mkdir()
    found = write_mixture(tmp_path / "mix", members)["members"]
    assert [found[name].get("held_out_by") for name in "abc"] == [{"b": 3}, None, {"a": 1, "b": 1}]


def test_files_are_copied_where_links_are_not_possible(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    folder = mixed(tmp_path, [2, 1])
    assert storage.sha256_folder(folder / "a") == storage.sha256_folder(tmp_path / "tokens" / "a")
    assert not (folder / "a" / "manifest.json").samefile(tmp_path / "tokens" / "a" / "manifest.json")


def test_a_corpus_alone_is_opened_by_the_same_door(tmp_path):
    folder = write_shards(tmp_path / "t", {"train": {"text": random_documents(9, 0)}, "valid": {"text": [[5]]}})
    train = open_train(folder)
    assert isinstance(training_batches(train, 4, 8, 0), WindowBatches)
    assert open_valid(folder, "anything").tokens[:].tolist() == [5, EOS]


def test_valid_is_that_of_the_member_named(tmp_path):
    folder = mixed(tmp_path, [2, 1])
    assert open_valid(folder, "b").tokens[:].tolist() == [8, EOS]
    with pytest.raises(UserError, match="'c' is not in the mixture; there are: a, b"):
        open_valid(folder, "c")
    with pytest.raises(UserError, match="a mixture of corpora"):
        TokenShards(folder, "train")


def test_what_does_not_go_together_is_refused(tmp_path):
    write_shards(tmp_path / "a", {"train": {"text": [[5]]}})
    write_shards(tmp_path / "b", {"train": {"text": [[5]]}}, vocab_size=301)
    (tmp_path / "mix").mkdir()
    with pytest.raises(UserError, match="another tokenizer"):
        write_mixture(tmp_path / "mix", {"a": (tmp_path / "a", 1), "b": (tmp_path / "b", 1)})
    manifest = storage.read_json(tmp_path / "b" / "manifest.json")
    storage.write_json(tmp_path / "b" / "manifest.json", {**manifest, "kind": "parallel"})
    (tmp_path / "other").mkdir()
    with pytest.raises(UserError, match="a parallel corpus cannot be mixed with a text one"):
        write_mixture(tmp_path / "other", {name: (tmp_path / name, 1) for name in "ab"})
