"""Batches of labelled texts: every text once an epoch, padded to the longest, no hidden state."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from lexmill.base.errors import UserError
from lexmill.kinds.classifier.batches import ClassificationBatches, encode
from lexmill.tokenizers import load
from lexmill.tokenizers.imported import import_tokenizer
from tests.support.tiny_bert import make_tiny_bert


def made(count=103, batch_size=8, seed=0):
    random = np.random.default_rng(1)
    ids = [random.integers(5, 300, random.integers(1, 40)).tolist() for _ in range(count)]
    return ClassificationBatches(ids, [len(text) % 2 for text in ids], batch_size, seed, pad_id=0)


def same(a, b):
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in vars(a))


@given(count=st.integers(1, 60), batch_size=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_an_epoch_has_every_text_once(count, batch_size):
    batches = made(count, batch_size)
    for epoch in range(2):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        seen = [text for step in steps for text in batches.batch(step).index.tolist()]
        assert sorted(seen) == list(range(count))
    assert batches.epoch(batches.steps_per_epoch) == 1


def test_rows_are_padded_to_the_longest_and_keep_their_label():
    batches = made()
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        assert batch.tokens.shape[1] == max(len(batches.ids[i]) for i in batch.index)
        for row, text in enumerate(batch.index):
            assert batch.tokens[row][batch.mask[row]].tolist() == batches.ids[text]
            assert (batch.tokens[row][~batch.mask[row]] == 0).all()
            assert batch.labels[row] == len(batches.ids[text]) % 2


def test_a_batch_is_a_pure_function_of_seed_and_step():
    forwards = [made().batch(step) for step in range(30)]
    again = made()
    assert all(same(again.batch(step), forwards[step]) for step in reversed(range(30)))
    assert not same(made(seed=1).batch(0), forwards[0])
    assert again.batch(0).index.tolist() != again.batch(again.steps_per_epoch).index.tolist()


def test_batches_of_an_epoch_are_visited_in_no_order_of_length():
    """Short texts first would be a curriculum that nobody asked for."""
    batches = made(250)  # one pool, in rising order
    for epoch in range(2):
        steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
        widths = [batches.batch(step).tokens.shape[1] for step in steps]
        assert abs(np.corrcoef(np.arange(len(widths)), widths)[0, 1]) < 0.5
        assert sum(a <= b for a, b in pairwise(widths)) < 0.75 * len(widths)


def test_ranks_share_the_global_batch():
    batches = made()
    for step in range(batches.steps_per_epoch):
        whole = batches.batch(step).index.tolist()
        assert [batches.rows(step, rank, 3).index.tolist() for rank in range(3)] == [whole[r::3] for r in range(3)]


def test_evaluation_has_every_text_once():
    batches = made()
    assert sorted(i for batch in batches.evaluation_batches() for i in batch.index.tolist()) == list(range(103))


@pytest.mark.parametrize(
    ("ids", "labels", "message"),
    [
        ([], [], "no labelled texts"),
        ([[1]], [0, 1], "1 texts but 2 labels"),
        ([[1], []], [0, 1], "text 1 has no tokens"),
    ],
)
def test_what_makes_no_batch_is_refused(ids, labels, message):
    with pytest.raises(UserError, match=message):
        ClassificationBatches(ids, labels, 4, 0, 0)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """An encoder whose tokenizer.json pads and cuts by itself."""
    folder = tmp_path_factory.mktemp("encoder") / "checkpoint"
    make_tiny_bert(folder, ["a", "good", "bad", "film", "sep", "[", "]", "##s"])
    return folder


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    folder = checkpoint.parent / "tokenizer"
    folder.mkdir()
    return import_tokenizer(checkpoint, folder)


def test_texts_stand_between_the_marks_are_cut_and_not_padded(tokenizer, checkpoint):
    texts = ["A good film", "", "good " * 40]
    assert encode(tokenizer, texts, 6) == [[2, 5, 6, 8, 3], [2, 3], [2, 6, 6, 6, 6, 3]]
    theirs = AutoTokenizer.from_pretrained(checkpoint)
    assert encode(tokenizer, texts[:1], 6)[0] == theirs(texts[0])["input_ids"]


def test_a_special_token_in_a_text_stays_text(tokenizer, checkpoint):
    for each in (tokenizer, load(checkpoint.parent / "tokenizer")):
        assert encode(each, ["a [SEP] film"], 20) == [[2, 5, 10, 9, 11, 8, 3]]


def test_a_text_that_is_not_unicode_is_reported(tokenizer):
    with pytest.raises(UserError, match="text 1 is not Unicode"):
        encode(tokenizer, ["a", "\ud800"], 6)
