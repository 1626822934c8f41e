"""Batches of labelled texts: every text once an epoch, padded to the longest, no hidden state."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import AutoTokenizer

from lexmill.base.errors import UserError
from lexmill.data.texts import cut, encode
from lexmill.kinds.classifier.batches import ClassificationBatches
from lexmill.kinds.classifier.task import ClassificationTask
from lexmill.models import build, family
from lexmill.models.common.heads import PooledClassifier
from lexmill.tokenizers import load
from lexmill.tokenizers.imported import import_tokenizer
from lexmill.training.task import pass_cost
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
            assert batches.labels[text] == len(batches.ids[text]) % 2


def test_a_batch_is_a_pure_function_of_seed_and_step():
    forwards = [made().batch(step) for step in range(30)]
    again = made()
    assert all(same(again.batch(step), forwards[step]) for step in reversed(range(30)))
    assert not same(made(seed=1).batch(0), forwards[0])
    assert again.batch(0).index.tolist() != again.batch(again.steps_per_epoch).index.tolist()


SPAM = 0.13


def messages(count=4000, batch_size=32):
    """Short ham and long spam."""
    random = np.random.default_rng(3)
    labels = (random.random(count) < SPAM).astype(int)
    lengths = np.where(labels, random.normal(40, 8, count), random.lognormal(2.7, 0.6, count)).clip(5, 64).astype(int)
    return ClassificationBatches([[1] * n for n in lengths], labels.tolist(), batch_size, 0, pad_id=0)


def one_label(batches):
    """The share of batches that hold a single label."""
    return np.mean([len(set(labels.tolist())) == 1 for labels in batches])


def padding(passes):
    passes = list(passes)
    return 1 - sum(mask.sum() for mask in passes) / sum(mask.size for mask in passes)


def test_a_batch_has_the_labels_of_the_split_where_length_follows_the_label():
    """Batches of like length had ham or spam only, and the loss jumped from step to step."""
    texts = messages()
    batches = [texts.batch(step) for step in range(texts.steps_per_epoch)]
    pool = 32 * texts.batch_size
    random = np.random.default_rng(0).permutation(len(texts.ids))
    by_length = [part[np.argsort(texts.lengths[part])] for part in np.split(random, range(pool, len(random), pool))]
    like = [texts.labels[rows] for part in by_length for rows in np.split(part, range(32, len(part), 32))]
    assert one_label(like) > 0.5
    assert one_label(texts.labels[batch.index] for batch in batches) < 0.04  # 0.87^32 = 0.012 is expected
    spam = [texts.labels[batch.index].mean() for batch in batches]
    assert np.std(spam) == pytest.approx(np.sqrt(SPAM * (1 - SPAM) / 32), rel=0.2)


def test_parts_need_little_padding_and_are_the_batch():
    texts = messages()
    task = ClassificationTask(None, texts, texts)
    parts = []
    for step in range(texts.steps_per_epoch):
        batch = task.batch(step, 0, 1)
        mine = task.parts(batch, pass_cost("cpu", nn.Identity()))
        assert np.concatenate([part["labels"] for part in mine]).tolist() == batch["labels"].tolist()
        found = [row[mask].tolist() for part in mine for row, mask in zip(part["tokens"], part["mask"], strict=True)]
        wanted = [row[mask].tolist() for row, mask in zip(batch["tokens"], batch["mask"], strict=True)]
        assert found == wanted
        parts += mine
    assert padding(part["mask"] for part in parts) < 0.14
    assert padding(texts.batch(step).mask for step in range(texts.steps_per_epoch)) > 0.5
    assert len(parts) < 6 * texts.steps_per_epoch
    assert task.parts(task.batch(0, 40, 41), 32) == []  # more ranks than texts


def test_a_network_that_lays_texts_end_to_end_reads_a_batch_in_one_pass():
    texts = messages()
    shape = family("modern_encoder").tiny
    module = PooledClassifier(build({"family": "modern_encoder", "shape": shape, "vocab_size": 9}), 2, 0.0)
    task = ClassificationTask(module, texts, texts)
    (part,) = task.parts(task.batch(0, 0, 1), pass_cost("cpu", module))
    assert np.array_equal(part["tokens"], task.batch(0, 0, 1)["tokens"])
    assert pass_cost("cuda", module) == pass_cost("cuda", nn.Identity()), "elsewhere its padding is masked"


@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=7), pass_cost=st.integers(0, 40))
def test_a_batch_is_cut_where_it_costs_least(lengths, pass_cost):
    lengths = np.array(sorted(lengths, reverse=True))

    def cost(bounds):
        return sum(lengths[start] * (end - start) + pass_cost for start, end in pairwise(bounds))

    places = range(1, len(lengths))
    every = ([0, *chosen, len(lengths)] for n in range(len(lengths)) for chosen in combinations(places, n))
    assert cost(cut(lengths, pass_cost)) == min(map(cost, every))


def test_batches_of_an_epoch_are_visited_in_no_order_of_length():
    """Short texts first would be a curriculum that nobody asked for."""
    batches = made(250)
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
        ([], [], "no texts"),
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
