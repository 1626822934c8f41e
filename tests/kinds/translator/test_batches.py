"""Batches by token count: within the budget, every pair once an epoch, little padding, no hidden state."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from lexmill.data.mixture import open_train, write_mixture
from lexmill.kinds.translator.batches import POOL, ParallelBatches, cut
from tests.data.made_shards import EOS, pairs, random_documents, write_shards


def made(tmp_path, count=200, batch_tokens=200, seed=0, max_positions=25):
    source, target = pairs(tmp_path / "p", random_documents(count, 1), random_documents(count, 2))
    return ParallelBatches(source, target, batch_tokens, seed, max_positions)


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in vars(a))


def test_a_batch_frames_and_pads_its_sentences(tmp_path):
    source, target = pairs(tmp_path / "p", [[10, 11], [12]], [[20], [21, 22, 23]])
    (batch,) = ParallelBatches(source, target, 100, 0, 10).evaluation_batches()
    assert batch.index.tolist() == [0, 1]
    assert batch.source.tolist() == [[10, 11, EOS], [12, EOS, 0]]
    assert batch.source_mask.tolist() == [[True, True, True], [True, True, False]]
    assert batch.target_in.tolist() == [[2, 20, 0, 0], [2, 21, 22, 23]]
    assert batch.target_out.tolist() == [[20, EOS, 0, 0], [21, 22, 23, EOS]]
    assert batch.target_mask.tolist() == [[True, True, False, False], [True] * 4]
    assert batch.source.dtype == batch.target_in.dtype == np.int64
    assert batch.source_mask.dtype == np.bool_


def test_an_epoch_has_every_pair_that_fits_once_within_the_budget(tmp_path):
    batches = made(tmp_path)
    longest = np.maximum(np.diff(batches.source.offsets), np.diff(batches.target.offsets))
    assert batches.dropped == (longest > 25).sum() > 0
    step = 0
    for epoch in range(4):
        seen = []
        while int(batches.epoch(step)) == epoch:
            batch = batches.batch(step)
            assert batch.source.size <= 200
            assert batch.target_out.size <= 200
            seen += batch.index.tolist()
            step += 1
        assert sorted(seen) == np.flatnonzero(longest <= 25).tolist()


def test_pairs_stay_together(tmp_path):
    batches = made(tmp_path)
    for step in range(10):
        batch = batches.batch(step)
        for row, pair in enumerate(batch.index.tolist()):
            assert batch.source[row][batch.source_mask[row]].tolist() == batches.source.document(pair).tolist()
            assert batch.target_out[row][batch.target_mask[row]].tolist() == batches.target.document(pair).tolist()
            kept = batch.target_in[row][batch.target_mask[row]].tolist()
            assert kept == [2, *batches.target.document(pair).tolist()[:-1]]


def test_a_batch_is_a_pure_function_of_seed_and_step(tmp_path):
    first = made(tmp_path)
    forwards = [first.batch(step) for step in range(60)]
    again = ParallelBatches(first.source, first.target, 200, 0, 25)
    assert again.epoch(59) == first.epoch(59) > 2
    assert all(same(again.batch(step), forwards[step]) for step in reversed(range(60)))
    other = ParallelBatches(first.source, first.target, 200, 1, 25)
    assert not same(other.batch(0), forwards[0])
    assert set(map(tuple, (b.index for b in forwards[:15]))) != set(map(tuple, (b.index for b in forwards[15:30])))


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_share_the_global_batch(tmp_path, world):
    batches = made(tmp_path)
    for step in range(12):
        whole = batches.batch(step).index.tolist()
        shares = [batches.rows(step, rank, world).index.tolist() for rank in range(world)]
        assert [whole[rank::world] for rank in range(world)] == shares


def test_a_rank_without_rows_gets_an_empty_batch(tmp_path):
    source, target = pairs(tmp_path / "p", [[5]], [[6]])
    batch = ParallelBatches(source, target, 8, 0, 8).rows(0, 1, 2)
    assert batch.source.shape == batch.target_in.shape == (0, 1)


def naive_cut(source, target, batch_tokens):
    bounds, start = [0], 0
    for stop in range(1, len(source) + 1):
        rows = stop - start
        if max(*source[start:stop], *target[start:stop]) * rows > batch_tokens:
            bounds.append(stop - 1)
            start = stop - 1
    return [*bounds, len(source)]


@given(
    lengths=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=60),
    batch_tokens=st.integers(12, 60),
)
@settings(deadline=None)
def test_cutting_equals_adding_pair_after_pair(lengths, batch_tokens):
    source, target = (np.array(side) for side in zip(*lengths, strict=True))
    assert cut(source, target, batch_tokens).tolist() == naive_cut(source, target, batch_tokens)


def test_padding_is_little_and_its_share_is_reported(tmp_path):
    random = np.random.default_rng(0)
    lengths = random.geometric(1 / 12, 3000).clip(1, 60)
    source = [[5] * n for n in lengths]
    target = [[6] * n for n in (lengths + random.integers(-2, 3, 3000)).clip(1, 60)]
    batches = ParallelBatches(*pairs(tmp_path / "p", source, target), 2048, 0, 64)
    share = batches.padding_share()
    padded = real = 0
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        padded += batch.source.size + batch.target_out.size
        real += int(batch.source_mask.sum() + batch.target_mask.sum())
    assert share == pytest.approx((padded - real) / padded)
    assert share < 0.12


def test_pools_keep_batches_random_in_a_large_corpus(tmp_path, monkeypatch):
    monkeypatch.setattr("lexmill.kinds.translator.batches.POOL", 32)
    batches = made(tmp_path)
    row, bounds = batches.plan(0)
    assert sorted(row.tolist()) == list(range(len(batches.pairs)))
    lengths = [batches.target_lengths[row[start : start + 32]].tolist() for start in range(0, len(row), 32)]
    assert all(pool == sorted(pool, reverse=number % 2 == 1) for number, pool in enumerate(lengths))
    assert all(stop > start for start, stop in pairwise(bounds))
    assert POOL >= 1000


def test_evaluation_has_every_pair_once(tmp_path):
    batches = made(tmp_path)
    seen = [pair for batch in batches.evaluation_batches() for pair in batch.index.tolist()]
    assert sorted(seen) == batches.pairs.tolist()


def test_sides_of_different_length_are_refused(tmp_path):
    source, target = pairs(tmp_path / "p", [[5], [6]], [[7]])
    with pytest.raises(UserError, match="2 source sentences but 1 target sentences"):
        ParallelBatches(source, target, 100, 0, 10)


def test_no_pair_left_is_refused_with_the_number_dropped(tmp_path):
    source, target = pairs(tmp_path / "p", [[5] * 20, [6] * 30], [[7], [8]])
    with pytest.raises(UserError, match=r"at most 10 tokens a side \(2 are longer\)"):
        ParallelBatches(source, target, 100, 0, 10)


def halves(ids, seed):
    """Each token as one or two, by the seed: a stand-in for a tokenizer's draw."""
    return [one for i, token in enumerate(ids) for one in ([token] if (seed >> i) & 1 else [token, token])]


def redrawn(tmp_path, seed=0, redraw=halves):
    source, target = pairs(tmp_path / "p", random_documents(200, 1), random_documents(200, 2))
    return ParallelBatches(source, target, 200, seed, 40, redraw=redraw)


def sentences(batch):
    """Each pair's number with its two sides, as they are after each other in a batch."""
    sides = (batch.source, batch.source_mask), (batch.target_out, batch.target_mask)
    rows = zip(*([ids[real].tolist() for ids, real in zip(*side, strict=True)] for side in sides), strict=True)
    return [(i, *both) for i, both in zip(batch.index.tolist(), rows, strict=True)]


def once(ids):
    """The ids without the doubles of `halves`."""
    return [token for place, token in enumerate(ids) if place == 0 or token != ids[place - 1]]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_sentences_are_drawn_anew_in_each_epoch_alike_for_any_ranks_and_after_a_resume(tmp_path, world):
    whole, again = redrawn(tmp_path), redrawn(tmp_path)
    seen = {}
    for step in range(40, -1, -1):  # `again` has not seen the steps before
        batch = sentences(whole.batch(step))
        assert [sentences(again.rows(step, rank, world)) for rank in range(world)] == [
            batch[rank::world] for rank in range(world)
        ]
        for index, *sides in batch:
            seen.setdefault(index, {})[int(whole.epoch(step))] = sides
    assert len(seen) > 100
    differing = [sides[0] != sides[1] for sides in seen.values() if len(sides) > 1 and len(sides[0][0]) > 8]
    assert sum(differing) > 0.9 * len(differing) > 0
    other = redrawn(tmp_path, seed=1)
    assert sentences(other.batch(0)) != sentences(whole.batch(0))


def test_a_draw_keeps_the_sentences_and_their_masks_and_validation_is_not_drawn(tmp_path):
    batches = redrawn(tmp_path)
    plain = ParallelBatches(batches.source, batches.target, 200, 0, 40)
    for step in range(12):
        for index, source, target in sentences(batches.batch(step)):
            assert once(source) == once(batches.source.document(index).tolist())
            assert once(target) == once(batches.target.document(index).tolist())
            assert len(source) <= 40 >= len(target)
        batch = batches.batch(step)
        assert np.array_equal(
            batch.target_in[:, 1:][batch.target_mask[:, 1:]], batch.target_out[:, :-1][batch.target_mask[:, 1:]]
        )
        assert batch.index.tolist() == plain.batch(step).index.tolist()
    for drawn, own in zip(batches.evaluation_batches(), plain.evaluation_batches(), strict=True):
        assert same(drawn, own)


def test_a_draw_that_is_longer_than_the_network_reads_is_not_taken(tmp_path):
    batches = redrawn(tmp_path, redraw=lambda ids, seed: [9] * 40)
    for index, source, target in sentences(batches.batch(0)):
        assert source == batches.source.document(index).tolist()
        assert target == batches.target.document(index).tolist()


def mixed(tmp_path, weights, sizes=(30, 90)):
    """Pairs whose one-token sentences tell their member: 100, 101, ... and 200, 201, ..."""
    folders = {}
    for name, start, size in zip("ab", (100, 300), sizes, strict=True):
        documents = [[start + i] for i in range(size)]
        write_shards(tmp_path / name, {"train": {"source": documents, "target": documents}}, vocab_size=500)
        folders[name] = (tmp_path / name, weights[name])
    (tmp_path / "mix").mkdir()
    write_mixture(tmp_path / "mix", folders)
    return ParallelBatches(open_train(tmp_path / "mix", "source"), open_train(tmp_path / "mix", "target"), 8, 3, 10)


def test_a_mixture_has_its_shares_and_each_member_its_own_epochs(tmp_path):
    batches = mixed(tmp_path, {"a": 2.0, "b": 1.0})
    drawn, step = [], 0
    while batches.epoch(step) < 3:
        drawn += batches.batch(step).source[:, 0].tolist()
        step += 1
    assert len(drawn) == 3 * 120
    for epoch in range(3):
        part = drawn[120 * epoch : 120 * (epoch + 1)]
        assert abs(sum(token < 300 for token in part) - 80) <= 1
    counts = Counter(drawn)
    assert {counts[100 + i] for i in range(30)} == {8}  # 240 of 30: each as often as any other
    assert {counts[300 + i] for i in range(90)} == {1, 2}
    assert batches.member_epochs(step) == {"a": 8.0, "b": 120 / 90}
    again = mixed(tmp_path / "again", {"a": 2.0, "b": 1.0})
    assert same(again.batch(17), batches.batch(17))
    assert 0 <= batches.padding_share() < 0.1


def test_a_member_without_a_pair_that_fits_is_an_error(tmp_path):
    for name, documents in (("a", [[5]]), ("b", [[6] * 20])):
        write_shards(tmp_path / name, {"train": {"source": documents, "target": documents}})
    (tmp_path / "mix").mkdir()
    write_mixture(tmp_path / "mix", {name: (tmp_path / name, 1.0) for name in "ab"})
    sides = [open_train(tmp_path / "mix", side) for side in ("source", "target")]
    with pytest.raises(UserError, match="no pair of the train split of b has at most 10 tokens"):
        ParallelBatches(*sides, 100, 3, 10)
