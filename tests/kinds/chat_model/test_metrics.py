"""Metrics of chat models and their baselines: rows by hand, preferences, what decides between two models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lexmill import tokenizers
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.significance import compare
from lexmill.kinds.chat_model.baselines import ByteNgram, baselines
from lexmill.kinds.chat_model.metrics import TEST, score, summarise
from lexmill.params import Baseline as Chosen
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save
from tests.support.prepared import write_prepared

HOW = Resampling(samples=200, confidence=0.9, seed=1)


def talk(number: int, answer: str, rejected: str | None = None) -> dict[str, Any]:
    said = [{"role": "user", "content": f"{number}?"}, {"role": "assistant", "content": answer}]
    more = {} if rejected is None else {"rejected": rejected}
    return {"id": f"t:{number}", "group": str(number), "messages": said, **more}


class _EachByte:
    """Gives a token minus a hundredth of its id as its log-probability."""

    def log_probabilities(self, sequences: Any) -> list[Any]:
        return [-np.array([*ids, 3], dtype=np.float64) / 100 for ids in sequences]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizers.Tokenizer:
    made = tmp_path_factory.mktemp("tokenizer")
    save(assemble("byte", byte_model(), lowercase=False), made)
    return tokenizers.load(made)


def test_rows_count_the_answers_alone(tokenizer: tokenizers.Tokenizer) -> None:
    two = talk(1, "ab", "c")
    two["messages"] = [*two["messages"], {"role": "user", "content": "and?"}, {"role": "assistant", "content": "é"}]
    plain, other = score([talk(0, "ab"), two], tokenizer, _EachByte())
    ab, end = sum(5 + byte for byte in b"ab"), 3
    assert plain["nats"] == pytest.approx((ab + end) / 100)
    assert (plain["targets"], plain["bytes"], plain["unknown"]) == (3, 2, 0)
    assert "rejected_nats" not in plain
    last = sum(5 + byte for byte in "é".encode()) + end
    assert other["nats"] == pytest.approx((ab + end + last) / 100)
    assert (other["targets"], other["bytes"]) == (6, 4)
    assert other["chosen_nats"] == pytest.approx(last / 100)
    assert other["rejected_nats"] == pytest.approx((5 + ord("c") + end) / 100)


def test_metrics_by_hand(tokenizer: tokenizers.Tokenizer) -> None:
    rows = list(score([talk(0, "b", "a"), talk(1, "a", "b"), talk(2, "a", "a")], tokenizer, _EachByte()))
    found = summarise(rows, "conversation", HOW)
    nats = (5 + ord("b") + 2 * (5 + ord("a")) + 9) / 100
    assert found["bits_per_byte"] == pytest.approx(nats / math.log(2) / 3)
    assert found["perplexity"] == pytest.approx(math.exp(nats / 6))
    assert found["preference_accuracy"] == 0.5  # one wrong, one right, one even
    assert (found["conversations"], found["targets"], found["bytes"]) == (3, 6, 3)


def test_with_unknown_tokens_there_are_no_bits_per_byte(tokenizer: tokenizers.Tokenizer) -> None:
    rows = [{**row, "unknown": 1} for row in score([talk(0, "b")], tokenizer, _EachByte())]
    found = summarise(rows, "conversation", HOW)
    assert "bits_per_byte" not in found
    assert "unknown tokens" in str(found["refused"])
    with pytest.raises(UserError, match="unknown tokens"):
        TEST.default(rows, rows)
    with pytest.raises(UserError, match="test split is empty"):
        summarise([], "conversation", HOW)


def test_preferences_decide_where_every_conversation_has_one(tokenizer: tokenizers.Tokenizer) -> None:
    better = list(score([talk(i, "a", "b") for i in range(60)], tokenizer, _EachByte()))
    worse = [{**row, "chosen_nats": row["rejected_nats"] + 1, "nats": row["nats"] / 2} for row in better]
    found = compare(TEST, better, worse, HOW)
    assert (found.metric, found.challenger, found.champion, found.better) == ("preference_accuracy", 1.0, 0.0, True)
    plain = [{key: value for key, value in row.items() if key != "rejected_nats"} for row in better]
    found = compare(TEST, plain, [{**row, "nats": 2 * row["nats"]} for row in plain], HOW)
    assert (found.metric, found.better) == ("bits_per_byte", True)
    assert found.champion == pytest.approx(2 * found.challenger)


def test_the_byte_ngram_by_hand_and_as_a_distribution() -> None:
    model = ByteNgram(iter(["ab", "ab", "b"]), order=2)
    # Unigrams: a 2, b 3, end 3 of 8, three kinds.
    unigram_b = (3 + 3 / 257) / (8 + 3)
    assert model.probability(b"", ord("b")) == pytest.approx(unigram_b)
    # After a: b twice, one kind. After b: the end three times, one kind.
    assert model.probability(b"a", ord("b")) == pytest.approx((2 + unigram_b) / 3)
    assert model.probability(b"z", ord("b")) == pytest.approx(unigram_b)
    for context in (b"", b"a", b"z"):
        assert sum(model.probability(context, symbol) for symbol in range(257)) == pytest.approx(1)
    end = (3 + 3 / 257) / 11
    # The first byte has no byte before it.
    wanted = -math.log((2 + 3 / 257) / 11) - math.log((2 + unigram_b) / 3) - math.log((3 + end) / 4)
    assert model.nats("ab") == pytest.approx(wanted)


def test_the_baselines_of_a_corpus(tmp_path: Path) -> None:
    train = [talk(i, "Yes.", "No.") for i in range(20)]
    test = [talk(100, "Yes.", "No."), talk(101, "No.", "Yes."), talk(102, "Yes.", "Well")]
    write_prepared(tmp_path / "a", "conversation", {"train": train, "test": test})
    chosen = Chosen(kind="chat_model", corpus="talks", tokenizer=None, reads="", settings={})
    ngram, longer = baselines(chosen, PreparedCorpus(tmp_path / "a"), HOW)
    assert ngram.metrics["bits_per_byte"] < 4
    assert [row["chosen_nats"] < row["rejected_nats"] for row in ngram.rows] == [True, False, True]
    assert longer.metrics["preference_accuracy"] == 0.5
    assert "bits_per_byte" not in longer.metrics
    plain = [{key: value for key, value in record.items() if key != "rejected"} for record in test]
    write_prepared(tmp_path / "b", "conversation", {"train": train, "test": plain})
    assert [one.name for one in baselines(chosen, PreparedCorpus(tmp_path / "b"), HOW)] == ["byte_ngram"]
