"""Packed batches: every token a target, the same global batch for any number of ranks, every target evaluated once."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill.base.errors import UserError
from lexmill.data.windows import WindowBatches, evaluation_documents, evaluation_windows
from tests.data.made_shards import EOS, random_documents, text_shards


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """403 or so tokens whose ids tell nothing about their place."""
    return text_shards(tmp_path_factory.mktemp("shards") / "t", random_documents(30, seed=2))


def numbered(tmp_path, count):
    """A split whose tokens are their own positions (the end token apart), so that windows can be followed."""
    return text_shards(tmp_path / f"n{count}", [list(range(5, 5 + count - 1))], vocab_size=100_000, shard_bytes=256)


def test_targets_are_the_inputs_one_later(shards):
    inputs, targets = WindowBatches(shards, context=8, batch_tokens=32, seed=0).batch(5)
    assert inputs.shape == targets.shape == (4, 8)
    assert inputs.dtype == targets.dtype == np.int64
    assert (inputs[:, 1:] == targets[:, :-1]).all()


def test_a_batch_is_a_pure_function_of_seed_and_step(shards):
    first = WindowBatches(shards, context=8, batch_tokens=32, seed=0)
    forwards = [first.batch(step) for step in range(40)]
    second = WindowBatches(shards, context=8, batch_tokens=32, seed=0)
    for step in reversed(range(40)):
        assert np.array_equal(second.batch(step), forwards[step])
    other = WindowBatches(shards, context=8, batch_tokens=32, seed=1)
    assert not np.array_equal(other.batch(0), forwards[0])


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_share_the_global_batch(shards, world):
    batches = WindowBatches(shards, context=8, batch_tokens=32, seed=0)
    for step in (0, 7, 31):
        inputs, targets = batches.batch(step)
        for rank in range(world):
            mine = batches.rows(step, rank, world)
            assert np.array_equal(mine[0], inputs[rank::world])
            assert np.array_equal(mine[1], targets[rank::world])


def test_more_ranks_than_rows_are_refused(shards):
    with pytest.raises(UserError, match="8 devices share a batch of 4 windows"):
        WindowBatches(shards, context=8, batch_tokens=32, seed=0).rows(0, 0, 8)


@given(count=st.integers(2, 60), context=st.integers(1, 20), rows=st.integers(1, 6), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_an_epoch_predicts_each_token_at_most_once_and_leaves_out_fewer_than_a_window(
    tmp_path_factory, count, context, rows, seed
):
    shards = numbered(tmp_path_factory.mktemp("n"), count)
    batches = WindowBatches(shards, context, context * rows, seed)
    steps = -(-3 * batches.windows // rows)
    targets = np.concatenate([batches.batch(step)[1] for step in range(steps)])
    for epoch in range(3):
        seen = targets[epoch * batches.windows : (epoch + 1) * batches.windows].ravel()
        if count >= context:
            assert len(set(seen.tolist())) == len(seen) == count - count % context
        else:  # one window goes round the ring several times
            assert set(seen.tolist()) == set(shards.tokens[:].tolist())


def test_the_tokens_left_out_lie_elsewhere_in_each_epoch(tmp_path):
    shards = numbered(tmp_path, 61)  # 61 = 7 windows of 8 and 5 left over
    batches = WindowBatches(shards, 8, 8, seed=3)
    targets = np.stack([batches.batch(step)[1][0] for step in range(7 * 40)]).reshape(40, 56)
    left_out = [frozenset(shards.tokens[:].tolist()) - frozenset(row.tolist()) for row in targets]
    assert all(len(rest) == 5 for rest in left_out)
    assert len(set(left_out)) > 20
    assert len({tuple(row.tolist()) for row in targets}) == 40


def test_windows_go_on_from_the_last_document_to_the_first(tmp_path):
    shards = numbered(tmp_path, 10)
    inputs, targets = WindowBatches(shards, 7, 7 * 20, seed=0).batch(0)
    following = dict(zip([*range(5, 14), EOS], [*range(6, 14), EOS, 5], strict=True))
    assert (EOS, 5) in set(zip(inputs.ravel().tolist(), targets.ravel().tolist(), strict=True))
    assert all(following[a] == b for a, b in zip(inputs.ravel().tolist(), targets.ravel().tolist(), strict=True))


def test_epochs_are_counted(shards):
    batches = WindowBatches(shards, context=8, batch_tokens=32, seed=0)
    assert batches.windows == len(shards.tokens) // 8
    assert batches.steps_per_epoch == -(-batches.windows // 4)
    assert batches.epoch(0) == 0
    assert batches.epoch(batches.windows) == 4


def test_what_cannot_be_cut_is_refused(tmp_path, shards):
    with pytest.raises(UserError, match="no tokens to learn from"):
        WindowBatches(text_shards(tmp_path / "empty", []), 8, 32, 0)
    with pytest.raises(UserError, match="not one window fits"):
        WindowBatches(shards, 64, 32, 0)


@given(count=st.integers(1, 60), context=st.integers(1, 9), rows=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_every_target_is_evaluated_exactly_once(tmp_path_factory, count, context, rows):
    shards = numbered(tmp_path_factory.mktemp("n"), count)
    stream = shards.tokens[:].tolist()
    inputs, targets = [], []
    for batch in evaluation_windows(shards, context, rows):
        assert all(part.shape == (rows, context) for part in batch)
        inputs += batch[0][batch[2]].tolist()
        targets += batch[1][batch[2]].tolist()
        assert (batch[1][~batch[2]] == shards.pad_id).all()
        assert batch[2].any()
    assert targets == stream
    assert inputs == [EOS, *stream[:-1]]


def test_an_empty_split_has_no_evaluation_windows(tmp_path):
    assert list(evaluation_windows(text_shards(tmp_path / "empty", []), 8)) == []


def slow_documents(shards, start, width):
    """The document of each token from `start` on round the ring, one token at a time; a new lap is a new document."""
    owner = [i for i in range(len(shards)) for _ in range(len(shards.document(i)))]
    found = [(position // len(owner), owner[position % len(owner)]) for position in range(start, start + width)]
    numbers = [0]
    for before, here in itertools.pairwise(found):
        numbers.append(numbers[-1] + (before != here))
    return numbers


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8),
    context=st.integers(1, 30),
    rows=st.integers(1, 4),
    seed=st.integers(0, 9),
)
@settings(max_examples=60, deadline=None)
def test_each_target_is_numbered_by_its_document(tmp_path_factory, lengths, context, rows, seed):
    ids = iter(range(5, 1000))
    documents = [[next(ids) for _ in range(length)] for length in lengths]
    shards = text_shards(tmp_path_factory.mktemp("d") / "t", documents, vocab_size=100_000)
    batches = WindowBatches(shards, context, context * rows, seed)
    for step in range(3):
        starts = batches._starts(step * rows + np.arange(rows))
        expected = [slow_documents(shards, int(start) + 1, context) for start in starts]
        assert batches.documents(step, 0, 1).tolist() == expected
        for rank in range(rows):
            assert batches.documents(step, rank, rows).tolist() == expected[rank::rows]


def test_the_documents_of_a_window_by_hand(tmp_path):
    # The ring: 5 6 7 </s> 8 </s> 9 10 </s>, one window round it and on.
    shards = text_shards(tmp_path / "t", [[5, 6, 7], [8], [9, 10]])
    batches = WindowBatches(shards, 9, 9, seed=0)
    (targets,), (documents,) = batches.batch(0)[1], batches.documents(0, 0, 1)
    pieces = [targets[documents == number].tolist() for number in range(documents[-1] + 1)]
    whole = [[5, 6, 7, EOS], [8, EOS], [9, 10, EOS]]
    assert all(piece in whole for piece in pieces[1:-1])
    assert pieces[0] in [document[i:] for document in whole for i in range(len(document))]
    assert pieces[-1] in [document[:i] for document in whole for i in range(1, len(document) + 1)]


@given(lengths=st.lists(st.integers(0, 9), max_size=8), context=st.integers(1, 9), rows=st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_evaluated_targets_are_numbered_by_their_document(tmp_path_factory, lengths, context, rows):
    shards = text_shards(tmp_path_factory.mktemp("d") / "t", [[5] * length for length in lengths])
    windows = list(evaluation_windows(shards, context, rows))
    numbers = list(evaluation_documents(shards, context, rows))
    assert len(windows) == len(numbers)
    for batch, ((_, _, mask), found) in enumerate(zip(windows, numbers, strict=True)):
        for row in range(rows):
            start, count = (batch * rows + row) * context, int(mask[row].sum())
            if count:
                assert found[row][mask[row]].tolist() == slow_documents(shards, start, count)
