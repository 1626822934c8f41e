"""Conversations as tokens: the chat template, what is learned, packing, and the order of windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import transformers

from lexmill import tokenizers
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.data.conversations import (
    CHAT_TEMPLATE,
    IGNORED,
    ConversationBatches,
    Encoded,
    answer_prompt,
    encode,
    pack,
    windows,
)
from lexmill.data.preferences import PairBatches, Pairs
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save

BOS, EOS, PAD = 2, 3, 0
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": " Say </s> twice, 東京\n"},
    {"role": "assistant", "content": "</s></s>"},
    {"role": "user", "content": ""},
    {"role": "assistant", "content": "Yes."},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tokenizer")
    save(assemble("byte", byte_model(), lowercase=False), made)
    return made


def ids_of(text: str) -> list[int]:
    return [5 + byte for byte in text.encode()]


def test_the_tokens_of_a_conversation_by_hand(folder: Path) -> None:
    tokenizer = tokenizers.load(folder)
    found, learned = [EOS], [False]
    for message in TALK:
        text = ids_of(message["content"].strip())
        found += [*ids_of(message["role"]), BOS, *text, EOS]
        learned += [False] * (len(message["role"]) + 1) + [message["role"] == "assistant"] * (len(text) + 1)
    assert tokenizer.encode("a") == ids_of("a")
    (encoded,) = encode(tokenizer, [TALK])
    assert encoded.ids.tolist() == found
    assert encoded.learned.tolist() == learned
    # A typed end token is text: only the five ends of messages, and the first, are end tokens.
    assert encoded.ids.tolist().count(EOS) == 6
    asked = answer_prompt(tokenizer, TALK[:2])
    assert found[: len(asked)] == asked


def test_transformers_gives_the_same_tokens_by_the_template(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = storage.read_json(tmp_path / "tokenizer_config.json")
    more = {"chat_template": CHAT_TEMPLATE, "split_special_tokens": False}
    storage.write_json(tmp_path / "tokenizer_config.json", {**config, **more})
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path), tokenizers.load(folder)
    plain = [{**message, "content": message["content"].replace("</s>", "ends")} for message in TALK]
    (encoded,) = encode(ours, [plain])
    assert theirs.apply_chat_template(plain)["input_ids"] == encoded.ids.tolist()
    asked = theirs.apply_chat_template(plain[:2], add_generation_prompt=True)["input_ids"]
    assert asked == answer_prompt(ours, plain[:2])


def test_packing_is_best_fit_and_whole() -> None:
    assert pack([6, 5, 4, 3, 1], 10) == [[0, 2], [1, 3, 4]]
    assert pack([], 10) == []
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 33, 500).tolist()
    bins = pack(lengths, 32)
    assert sorted(item for some in bins for item in some) == list(range(500))
    assert max(sum(lengths[item] for item in some) for some in bins) <= 32
    assert len(bins) < 1.1 * sum(lengths) / 32
    with pytest.raises(ValueError, match="item 1 has size 11, a bin 10"):
        pack([3, 11], 10)


def conversation(length: int, learned: int, first: int = 10) -> Encoded:
    """Different tokens; the last ones are learned."""
    return Encoded(np.arange(first, first + length), np.arange(length) >= length - learned)


def test_windows_hold_whole_conversations_each_with_a_number() -> None:
    made = windows([conversation(5, 2), conversation(4, 1, 30), conversation(9, 3, 50)], 8, PAD)
    assert made.inputs.tolist() == [[10, 11, 12, 13, 30, 31, 32, PAD], [50, 51, 52, 53, 54, 55, 56, 57]]
    no = IGNORED
    assert made.targets.tolist() == [[no, no, 13, 14, no, no, 33, no], [no, no, no, no, no, 56, 57, 58]]
    assert made.documents.tolist() == [[0, 0, 0, 0, 1, 1, 1, 2], [0] * 8]
    assert (made.cut, made.unlearned) == (0, 0)


def test_of_a_long_conversation_the_end_is_used_and_one_without_answer_is_left_out() -> None:
    made = windows([conversation(20, 2), conversation(3, 0)], 8, PAD)
    assert made.inputs.tolist() == [list(range(21, 29))]
    assert made.targets.tolist() == [[IGNORED] * 6 + [28, 29]]
    assert (made.cut, made.unlearned) == (1, 1)


def test_each_epoch_reads_every_window_once_and_ranks_share_a_batch() -> None:
    batches = ConversationBatches([conversation(9, 3, 100 * i) for i in range(1, 11)], 8, 16, PAD, seed=1)
    assert (batches.size, batches.steps_per_epoch) == (2, 5)
    epochs = []
    for epoch in range(2):
        rows = [batches.rows(5 * epoch + step, 0, 1)["inputs"][:, 0].tolist() for step in range(5)]
        epochs.append([first for row in rows for first in row])
        assert sorted(epochs[-1]) == [100 * i for i in range(1, 11)]
    assert epochs[0] != epochs[1]
    whole = batches.rows(3, 0, 1)
    for name, rows in whole.items():
        shares = [batches.rows(3, rank, 2)[name] for rank in (0, 1)]
        np.testing.assert_array_equal(rows, np.concatenate(shares))
    assert batches.epoch(5) == 1


def test_nothing_to_learn_is_an_error() -> None:
    with pytest.raises(UserError, match="no answer to learn from"):
        ConversationBatches([conversation(5, 0)], 8, 16, PAD, seed=1)


def test_pairs_are_rows_of_both_sides_padded_and_cut_at_the_front() -> None:
    pairs = Pairs([conversation(4, 2), conversation(9, 1)], [conversation(3, 1, 40), conversation(5, 2, 60)], 6, PAD)
    found = pairs.rows([1, 0])
    no = IGNORED
    assert found["chosen_inputs"].tolist() == [[12, 13, 14, 15, 16, 17], [10, 11, 12, PAD, PAD, PAD]]
    assert found["chosen_targets"].tolist() == [[no, no, no, no, no, 18], [no, 12, 13, no, no, no]]
    assert found["rejected_inputs"].tolist() == [[60, 61, 62, 63], [40, 41, PAD, PAD]]
    assert found["rejected_targets"].tolist() == [[no, no, 63, 64], [no, 42, no, no]]


def test_each_epoch_reads_every_pair_once() -> None:
    some = [conversation(4, 2, 100 * i) for i in range(7)]
    batches = PairBatches(Pairs(some, some, 6, PAD), 3, seed=2)
    assert batches.steps_per_epoch == 3
    firsts = [row for step in range(7) for row in batches.rows(step, 0, 1)["chosen_inputs"][:, 0].tolist()]
    for epoch in range(3):
        assert sorted(firsts[7 * epoch : 7 * epoch + 7]) == [100 * i for i in range(7)]
