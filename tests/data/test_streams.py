"""Windows in streams: each row goes on where it ended, all of a stream is read once an epoch, starts are marked."""

from __future__ import annotations

import numpy as np
import pytest

from lexmill.data.shards import TokenShards
from lexmill.data.streams import StreamBatches
from tests.data.made_shards import random_documents, write_shards

CONTEXT, ROWS = 5, 3


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> TokenShards:
    folder = write_shards(tmp_path_factory.mktemp("shards") / "t", {"train": {"text": random_documents(20, 1, 12)}})
    return TokenShards(folder, "train")


def streams(shards: TokenShards, seed: int = 5) -> StreamBatches:
    return StreamBatches(shards, CONTEXT, ROWS * CONTEXT, seed)


def test_a_row_goes_on_where_it_ended_one_step_before(shards: TokenShards) -> None:
    batches = streams(shards)
    assert batches.steps_per_epoch == len(shards.tokens) // ROWS // CONTEXT > 3
    for step in range(2 * batches.steps_per_epoch - 1):
        _, ended = batches.batch(step)
        begins, _ = batches.batch(step + 1)
        if (step + 1) % batches.steps_per_epoch:
            assert np.array_equal(begins[:, 0], ended[:, -1])
            assert not batches.fresh(step + 1, 0, 1, separate=False).any()
        else:
            assert batches.fresh(step + 1, 0, 1, separate=False).all()
    assert batches.fresh(0, 0, 1, separate=False).all()
    assert batches.epoch(batches.steps_per_epoch) == 1


def test_the_streams_are_pieces_of_the_ring_of_which_each_token_is_read_at_most_once(shards: TokenShards) -> None:
    batches, ring = streams(shards), np.asarray(shards.tokens).tolist() * 2
    for epoch in (0, 1):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        rows = np.concatenate([batches.batch(step)[1] for step in steps], axis=1)  # (B, targets of an epoch)
        places = [next(i for i in range(len(shards.tokens)) if ring[i : i + len(row)] == row) for row in rows.tolist()]
        apart = np.diff(sorted([*places, min(places) + len(shards.tokens)]))
        assert (apart >= rows.shape[1]).all(), "they do not overlap"


def test_a_document_that_starts_with_a_row_starts_afresh(shards: TokenShards) -> None:
    """The end token is the input then. By the shards' offsets and by the tokens."""
    batches, some = streams(shards), 0
    for step in range(batches.steps_per_epoch):
        inputs, _ = batches.batch(step)
        wanted = inputs[:, 0] == shards.eos_id if step else np.ones(ROWS, dtype=bool)
        assert np.array_equal(batches.fresh(step, 0, 1, separate=True), wanted)
        some += int(wanted.sum()) if step else 0
    assert some > 0


def test_ranks_share_the_rows_and_seeds_differ(shards: TokenShards) -> None:
    batches, other = streams(shards), streams(shards, seed=6)
    whole, shares = batches.batch(4)[0], [batches.rows(4, rank, 2)[0] for rank in range(2)]
    assert np.array_equal(whole[0::2], shares[0])
    assert np.array_equal(whole[1::2], shares[1])
    assert not np.array_equal(whole, other.batch(4)[0])
