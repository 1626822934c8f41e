"""Exact and near duplicates: the index on disk decides as datasketch's own index in memory does."""

import random

import pytest
from datasketch import MinHash, MinHashLSH
from hypothesis import given
from hypothesis import strategies as st

from lexmill.corpora.preparing.deduplicate import ExactDuplicates, NearDuplicates, Signatures, shingles
from lexmill.corpora.preparing.disk_index import DiskSet, open_index
from lexmill.corpora.preparing.record import Record, text_key
from lexmill.params.corpora import Deduplicate


def record(text, target=None):
    return Record("x", None, text, target)


def near_duplicates(index, choice):
    sign, decide = Signatures(choice), NearDuplicates(index, choice)
    return lambda one: decide(sign(one))


@pytest.fixture
def index(tmp_path):
    with open_index(tmp_path / "index") as connection:
        yield connection


def test_a_set_on_disk_is_a_set(index):
    ours, theirs = DiskSet(index, "ours"), set()
    draw = random.Random(0)
    for _ in range(3000):
        key = text_key(str(draw.randrange(1000)))
        assert (key in ours) == (key in theirs)
        assert ours.add(key) == (key not in theirs)
        theirs.add(key)
    assert len(ours) == len(theirs)
    other = DiskSet(index, "other")
    other.add(text_key("1"))
    other.add(text_key("not there"))
    assert ours.shared_with(other) == 1


def test_exact_duplicates_compare_both_sides_and_know_where_one_ends(index):
    seen = ExactDuplicates(index)
    records = [record("a", "b"), record("a", "c"), record("ab", ""), record("", "ab"), record("a", "b")]
    assert [seen(text_key(*r.sides)) for r in records] == [False, False, False, False, True]


@pytest.mark.parametrize(
    ("text", "size", "wanted"),
    [
        ("One, two THREE four", 3, ["one two three", "two three four"]),
        ("one two", 3, ["one two"]),
        ("one two", 1, ["one", "two"]),
        ("?!", 3, ["?!"]),
        ("", 3, [""]),
    ],
)
def test_shingles(text, size, wanted):
    assert list(shingles(text, size)) == wanted


def corpus_with_near_copies(count):
    draw = random.Random(1)
    words = [f"w{i}" for i in range(400)]
    texts = []
    for _ in range(count):
        if texts and draw.random() < 0.5:
            copy = draw.choice(texts).split()
            for _ in range(draw.randrange(4)):
                copy[draw.randrange(len(copy))] = draw.choice(words)
            texts.append(" ".join(copy))
        else:
            texts.append(" ".join(draw.choices(words, k=draw.randrange(8, 60))))
    return texts


def test_decisions_equal_those_of_datasketch_in_memory(index):
    choice = Deduplicate(near=True, threshold=0.7, permutations=64, shingle=2)
    ours = near_duplicates(index, choice)
    theirs = MinHashLSH(threshold=choice.threshold, num_perm=choice.permutations)
    kept = {}
    decisions = []
    for number, text in enumerate(corpus_with_near_copies(300)):
        minhash = MinHash(num_perm=choice.permutations, seed=1, scheme="affine32")
        for gram in shingles(text, choice.shingle):
            minhash.update(gram.encode())
        wanted = any(kept[other].jaccard(minhash) >= choice.threshold for other in theirs.query(minhash))
        if not wanted:
            kept[number] = minhash
            theirs.insert(number, minhash)
        decisions.append(wanted)
        assert ours(record(text)) == wanted
    assert 50 < sum(decisions) < 250


def test_near_copies_go_and_others_stay(index):
    near = near_duplicates(index, Deduplicate(near=True, threshold=0.8, shingle=3))
    text = " ".join(f"word{i}" for i in range(200))
    assert not near(record(text))
    assert near(record(text.upper().replace(" ", ",  ")))
    assert near(record(text.replace("word100", "other")))
    assert not near(record(" ".join(f"word{i}" for i in range(100, 300))))
    assert not near(record("short"))
    assert near(record("Short!"))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_the_same_text_twice_is_always_a_near_duplicate(tmp_path_factory, numbers):
    with open_index(tmp_path_factory.mktemp("near") / "index") as connection:
        near = near_duplicates(connection, Deduplicate(near=True, permutations=16, shingle=2))
        text = " ".join(map(str, numbers))
        near(record(text))
        assert near(record(text))


def test_a_long_document_is_hashed_in_pieces(index):
    near = near_duplicates(index, Deduplicate(near=True, shingle=5, permutations=32))
    text = " ".join(str(i) for i in range(20_000))
    assert not near(record(text))
    assert near(record(text + " end"))
