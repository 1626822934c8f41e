"""What is masked: shares, whole words, spans; batches as functions of seed and step, alone and in pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lexmill import tokenizers
from lexmill.base.errors import UserError
from lexmill.data.masking import SPAN_P, Masking, Plan, Vocabulary, mask, vocabulary
from lexmill.data.shards import TokenShards
from lexmill.data.texts import parts, piece_lengths
from lexmill.kinds.encoder.batches import MaskedBatches, Pieces, Reading
from lexmill.models.common.cross_entropy import IGNORED
from lexmill.tokenizers import saving
from lexmill.tokenizers.imported import import_tokenizer
from lexmill.tokenizers.training import train as train_tokenizer
from tests.support.tiny_bert import make_tiny_bert

MASK, END, FIRST = 4, 3, 5  # the mask, what ends a text, the first ordinary id
SIZE = 105
SPECIAL = np.arange(SIZE) < FIRST
# Odd ids continue the word before them.
PLAIN = Vocabulary(MASK, np.arange(FIRST, SIZE), SPECIAL, ~SPECIAL, (np.arange(SIZE) % 2 == 1) & ~SPECIAL)


def drawn(ids: Any, masking: Masking, share: float = 0.15, seed: int = 0, keep: bool = True) -> Any:
    return mask(np.asarray(ids), Plan(PLAIN, masking, share, keep), np.random.default_rng(seed))


def test_of_what_is_chosen_eight_tenths_are_masked_one_is_random_one_stays() -> None:
    ids = np.tile(np.arange(FIRST, SIZE), 2000)
    tokens, chosen = drawn(ids, "token")
    assert chosen.sum() == round(0.15 * len(ids))
    assert np.array_equal(tokens[~chosen], ids[~chosen])
    masked, same = tokens[chosen] == MASK, tokens[chosen] == ids[chosen]
    assert masked.mean() == pytest.approx(0.8, abs=0.01)
    assert same.mean() == pytest.approx(0.1 + 0.1 / 100, abs=0.01)  # a random one of 100 may be the same
    assert tokens[chosen][~masked].min() >= FIRST
    _, all_masked = drawn(ids, "token", keep=False)
    assert (drawn(ids, "token", keep=False)[0][all_masked] == MASK).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, SIZE - 1), max_size=60),
    st.sampled_from(["token", "word", "span"]),
    st.floats(0.01, 0.9),
    st.integers(0, 99),
)
def test_no_special_token_is_chosen_and_no_word_cut(ids: list[int], masking: Any, share: float, seed: int) -> None:
    ids_, able = np.array(ids, dtype=np.int64), ~SPECIAL[np.array(ids, dtype=np.int64)]
    tokens, chosen = drawn(ids_, masking, share, seed)
    assert not chosen[~able].any()
    assert np.array_equal(tokens[~chosen], ids_[~chosen])
    assert chosen.any() == able.any(), "at least one token is predicted"
    words = np.split(np.arange(len(ids)), PLAIN.word_starts(ids_)[1:])
    if masking != "token":
        assert all(chosen[word].all() or not chosen[word].any() for word in words if len(word))
    budget = max(1, round(share * able.sum()))
    longest = max((len(word) for word in words), default=0)
    assert chosen.sum() <= max(budget, longest)
    if masking == "token":
        assert chosen.sum() == (budget if able.any() else 0)


def test_spans_have_geometric_lengths_and_one_fate() -> None:
    """Words of one token; the lengths of SpanBERT: p = 0.2, at most 10, with a mean of 3.8."""
    ids, lengths = np.full(4000, 6), []
    for seed in range(40):
        tokens, chosen = drawn(ids, "span", 0.05, seed)
        runs = np.split(np.arange(4000), np.flatnonzero(np.diff(chosen)) + 1)
        spans = [run for run in runs if chosen[run[0]]]
        lengths += [len(run) for run in spans]
        fates = [set((tokens[run] == MASK).tolist()) for run in spans if len(run) <= 10]  # longer: two that meet
        assert np.mean([len(fate) == 1 for fate in fates]) > 0.9
    shares = SPAN_P * (1 - SPAN_P) ** np.arange(10)
    wanted = float((np.arange(1, 11) * shares / shares.sum()).sum())
    assert wanted == pytest.approx(3.8, abs=0.02)
    assert np.mean(lengths) == pytest.approx(wanted, abs=0.3)


@pytest.fixture
def tokenizer(tmp_path: Path) -> tokenizers.Tokenizer:
    (tmp_path / "bpe").mkdir()
    texts = ["To be, or not to be. Being, béing, tobacco 12"] * 3
    saving.save(train_tokenizer("bpe", lambda: iter(texts), vocab_size=275), tmp_path / "bpe")
    return tokenizers.load(tmp_path / "bpe")


def words_of(tokenizer: tokenizers.Tokenizer, text: str) -> list[str]:
    ids = np.array(tokenizer.encode(text))
    return [tokenizer.decode(part) for part in np.split(ids, vocabulary(tokenizer).word_starts(ids)[1:])]


def test_words_are_those_of_the_text(tokenizer: tokenizers.Tokenizer, tmp_path: Path) -> None:
    assert words_of(tokenizer, "To be, béing\n12") == ["To", " be", ",", " béing", "\n", "12"]
    make_tiny_bert(tmp_path / "bert", ["to", "be", "##ing", ",", "or"])
    (tmp_path / "made").mkdir()
    wordpiece = import_tokenizer(tmp_path / "bert", tmp_path / "made")
    ids = np.array(wordpiece.encode("To being, or"))
    assert vocabulary(wordpiece).word_starts(ids).tolist() == [0, 1, 3, 4]
    assert wordpiece.backend.id_to_token(vocabulary(wordpiece).mask_id) == "[MASK]"


def test_a_tokenizer_without_a_mask_token_is_refused(tokenizer: tokenizers.Tokenizer) -> None:
    tokenizer.mask_id = None
    with pytest.raises(UserError, match="has no mask token"):
        vocabulary(tokenizer)


@pytest.mark.parametrize(("total", "most", "wanted"), [(0, 5, []), (5, 5, [5]), (6, 5, [3, 3]), (11, 5, [4, 4, 3])])
def test_pieces_are_equal_to_within_one(total: int, most: int, wanted: list[int]) -> None:
    assert piece_lengths(total, most) == wanted


class Shards:
    """Documents of consecutive ids, each followed by the end token."""

    split, folder = "train", Path("shards")

    def __init__(self, *lengths: int) -> None:
        documents = [[FIRST + (10 * i + j) % 100 for j in range(length)] + [END] for i, length in enumerate(lengths)]
        self.tokens = np.array([token for document in documents for token in document])
        self.offsets = np.cumsum([0, *map(len, documents)])

    def __len__(self) -> int:
        return len(self.offsets) - 1


def made(*lengths: int, pairs: Any = "none", size: int = 4, most: int = 9, keep: bool = True) -> MaskedBatches:
    pieces = Pieces(cast(TokenShards, Shards(*lengths)), most, 1 if pairs == "none" else 2)
    reading = Reading(2, END, 0, Plan(PLAIN, "token", 0.3, keep), pairs)
    return MaskedBatches(pieces, reading, size, seed=7)


def originals(batch: Any) -> list[list[int]]:
    whole = np.where(batch["labels"] != IGNORED, batch["labels"], batch["tokens"])
    return [row[real].tolist() for row, real in zip(whole, batch["mask"], strict=True)]


def labels(*batches: Any) -> list[list[int]]:
    return sorted(row[row != IGNORED].tolist() for batch in batches for row in batch["labels"])


def test_an_epoch_reads_each_piece_once_with_new_masks_in_the_next() -> None:
    batches = made(20, 3, 0, 14, 9)
    assert [int(n) for n in batches.pieces.lengths] == [7, 7, 6, 3, 7, 7, 9]
    epochs = [[batches.rows(step + 2 * epoch, 0, 1) for step in range(2)] for epoch in range(2)]
    read = [sorted(row for batch in epoch for row in originals(batch)) for epoch in epochs]
    pieces = sorted([2, *batches.pieces.tokens(i).tolist(), END] for i in range(len(batches.pieces)))
    assert read == [pieces, pieces]
    first, second = ({tuple(row) for batch in epoch for row in batch["labels"].tolist()} for epoch in epochs)
    assert first != second
    again = made(20, 3, 0, 14, 9).rows(3, 0, 1)
    assert all(np.array_equal(again[name], epochs[1][1][name]) for name in again), "a function of seed and step"


@pytest.mark.parametrize("pairs", ["none", "next_sentence"])
def test_ranks_share_a_batch(pairs: Any) -> None:
    whole = made(20, 3, 14, 9, pairs=pairs).rows(0, 0, 1)
    shares = [made(20, 3, 14, 9, pairs=pairs).rows(0, rank, 2) for rank in range(2)]
    together = sorted(row for share in shares for row in originals(share))
    assert together == sorted(originals(whole))
    assert labels(*shares) == labels(whole)
    assert made(5, 5, size=2).rows(0, 1, 4)["tokens"].shape[0] <= 1, "a rank may have no row"


def test_next_sentences_come_from_another_document_half_of_the_time() -> None:
    batches = made(*[9] * 40, pairs="next_sentence", size=40)
    found = []
    for epoch in range(10):
        batch = batches.rows(epoch, 0, 1)
        for row, segments, follows in zip(originals(batch), batch["segments"].tolist(), batch["follows"], strict=True):
            found.append(follows)
            ends = [i for i, token in enumerate(row) if token == END]
            first, second = row[1 : ends[0]], row[ends[0] + 1 : ends[1]]
            assert first, "both segments have tokens"
            assert second
            assert segments[: len(row)] == [0] * (ends[0] + 1) + [1] * (len(row) - ends[0] - 1)
            continues = (first[-1] - FIRST + 1) % 100 == second[0] - FIRST
            assert continues or follows, "what follows is of the same document"
    assert np.mean(found) == pytest.approx(0.5, abs=0.1)


def test_a_second_sentence_is_never_of_the_same_document() -> None:
    """Two documents of disjoint ids, one of them long, so that a draw over pieces would mostly hit it again."""
    shards = Shards(90, 9)
    shards.tokens = np.where(np.arange(len(shards.tokens)) < 91, FIRST, FIRST + 50)
    shards.tokens[[90, 100]] = END
    pieces = Pieces(cast(TokenShards, shards), 9, 2)
    reading = Reading(2, END, 0, Plan(PLAIN, "token", 0.3), "next_sentence")
    batches = MaskedBatches(pieces, reading, 11, seed=0)
    for step in range(8):
        batch = batches.rows(step, 0, 1)
        for row, follows in zip(originals(batch), batch["follows"], strict=True):
            ids = set(row) - {2, END}
            assert len(ids) == (2 if follows else 1)


def test_one_document_has_no_other() -> None:
    with pytest.raises(UserError, match="from another document, but the train split has one"):
        made(30, pairs="next_sentence")
    made(30, pairs="sentence_order")


def test_sentence_order_swaps_the_halves() -> None:
    batches = made(*[8] * 30, pairs="sentence_order", size=30)
    batch = batches.rows(0, 0, 1)
    for row, follows in zip(originals(batch), batch["follows"], strict=True):
        end = row.index(END)
        first, second = row[1:end], row[end + 1 : -1]
        ahead, behind = (second, first) if follows else (first, second)
        assert (ahead[-1] - FIRST + 1) % 100 == behind[0] - FIRST
    assert 0 < batch["follows"].sum() < 30


def test_validation_is_the_same_each_time_and_parts_cover_a_batch() -> None:
    batches = made(20, 3, 14, 9, keep=False)
    first, again = ([batch for batch in batches.evaluation_batches()] for _ in range(2))
    assert all(np.array_equal(a[k], b[k]) for a, b in zip(first, again, strict=True) for k in a)
    batch = batches.rows(0, 0, 1)
    cut = parts(batch, 0)
    assert sum(len(part["tokens"]) for part in cut) == len(batch["tokens"])
    assert batch["noise"].shape == batch["tokens"].shape
    assert ((batch["noise"] >= 0) & (batch["noise"] < 1)).all()


def test_without_text_there_is_nothing_to_mask() -> None:
    with pytest.raises(UserError, match="holds no document of 1 tokens or more"):
        made(0, 0)
