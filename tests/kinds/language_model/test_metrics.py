"""Perplexity and bits per byte: sums over everything, divided once, on the same blocks for every tokenizer."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from lexmill.evaluation.blocks import BLOCK, cuts
from lexmill.evaluation.bootstrap import MIN_GROUPS, Resampling
from lexmill.evaluation.rows import read_rows, write_rows
from lexmill.evaluation.scoring import NetworkScorer
from lexmill.kinds.language_model.baselines import ByteEncoder, byte_ngram, token_documents
from lexmill.kinds.language_model.metrics import (
    OffsetEncoder,
    loss_by_position,
    score_documents,
    summarise,
)
from lexmill.kinds.language_model.ngrams.kneser_ney import KneserNey
from lexmill.tokenizers import SPECIAL_TOKENS, Tokenizer

HOW = Resampling(samples=200, confidence=0.95, seed=1)


class Words:
    """White space and words, each a token; a word that is not known is unknown."""

    def __init__(self, known: Sequence[str], lowercase: bool = False) -> None:
        self.ids = {word: i + 2 for i, word in enumerate(known)}
        self.unk_id: int | None = 1
        self.lowercase = lowercase

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int]]:
        starts, at = [], 0
        for word in text.split(" "):
            starts.append(at)
            at += len(word) + 1
        return [self.ids.get(self.normalize(word), 1) for word in text.split(" ")], starts

    def normalize(self, text: str) -> str:
        return text.lower() if self.lowercase else text


class Uniform:
    """Every token and the end token have probability 1/4, whatever comes before."""

    def log_probabilities(self, sequences: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return [np.full(len(sequence) + 1, -math.log(4)) for sequence in sequences]


def record(text: str, name: str = "d", group: str = "g") -> dict[str, Any]:
    return {"id": name, "group": group, "text": text}


def all_rows(records: list[dict[str, Any]], tokenizer: Any, scorer: Any) -> list[dict[str, Any]]:
    return [row for document in score_documents(records, tokenizer, scorer) for row in document.rows]


def bpe(texts: Sequence[str], lowercase: bool = False) -> Tokenizer:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    if lowercase:
        backend.normalizer = normalizers.Lowercase()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    return Tokenizer(backend, "f")


def test_the_figures_of_a_uniform_model_by_hand() -> None:
    # "a b c" is 3 words and an end token, 5 bytes; the empty text is one empty token and an end token.
    rows = all_rows([record("a b c", "1"), record("", "2")], Words("abc" + " "), Uniform())
    assert [(row["id"], row["targets"], row["bytes"], row["words"]) for row in rows] == [
        ("1/0", 4, 5, 3),
        ("2/0", 2, 0, 0),
    ]
    found = summarise([row | {"unknown": 0} for row in rows], "work", HOW)
    assert found["nats_per_token"] == pytest.approx(math.log(4))
    assert found["perplexity"] == pytest.approx(4)
    assert found["bits_per_byte"] == pytest.approx(6 * 2 / 5)
    assert found["word_perplexity"] == pytest.approx(4 ** (6 / 3))
    assert (found["targets"], found["bytes"], found["words"]) == (6, 5, 3)


def test_the_whole_is_divided_once_not_a_mean_of_means() -> None:
    rows = [
        {"id": "1", "group": "a", "nats": 10.0, "targets": 1, "bytes": 1, "words": 1, "unknown": 0},
        {"id": "2", "group": "b", "nats": 10.0, "targets": 9, "bytes": 9, "words": 1, "unknown": 0},
    ]
    assert summarise(rows, "work", HOW)["nats_per_token"] == pytest.approx(2.0)


def test_unknown_tokens_refuse_what_is_measured_in_bytes() -> None:
    found = summarise(all_rows([record("a b nobody")], Words("ab"), Uniform()), "work", HOW)
    assert found["unknown"] == 1
    assert "bits_per_byte" not in found
    assert "word_perplexity" not in found
    assert "unknown tokens" in str(found["refused"])
    assert found["perplexity"] == pytest.approx(4)


def test_a_perplexity_beyond_float64_is_left_out() -> None:
    rows = [{"id": "1", "group": "a", "nats": 5000.0, "targets": 10, "bytes": 10, "words": 1, "unknown": 0}]
    found = summarise(rows, "work", HOW)
    assert "word_perplexity" not in found
    assert found["perplexity"] == pytest.approx(math.exp(500))


@given(st.text(alphabet="ab \n\t", max_size=60), st.integers(1, 20))
def test_blocks_cover_the_text_and_never_cut_a_word(text: str, size: int) -> None:
    ends = cuts(text, size)
    pieces = [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    assert "".join(pieces) == text
    assert [word for piece in pieces for word in piece.split()] == text.split()
    assert all(len(piece) >= size for piece in pieces[:-1])


def trigram(texts: Sequence[str], tokenizer: Tokenizer) -> KneserNey:
    return KneserNey(3, tokenizer.vocab_size, tokenizer.eos_id).fit(token_documents(texts, tokenizer))


def long_text(seed: int, words: int) -> str:
    generator = np.random.default_rng(seed)
    return " ".join(generator.choice(["Über", "thou", "art", "KING", "of", "snow\n"], words))


def test_rows_are_the_same_items_for_every_tokenizer() -> None:
    texts = [long_text(0, 6000), long_text(1, 50)]
    records = [record(text, f"d{i}", f"d{i}") for i, text in enumerate(texts)]
    tokenizer = bpe(texts)
    encoder = OffsetEncoder(tokenizer)
    tokens = all_rows(records, encoder, trigram(texts, tokenizer))
    text_bytes = ByteEncoder(encoder)
    bytewise = all_rows(records, text_bytes, byte_ngram(3, texts, text_bytes))
    assert len(tokens) == len(cuts(texts[0])) + 1 > 3
    same = ("id", "group", "bytes", "words", "text_sha256")
    assert [[row[key] for key in same] for row in tokens] == [[row[key] for key in same] for row in bytewise]
    assert sum(row["bytes"] for row in tokens) == sum(len(text.encode()) for text in texts)
    assert sum(row["targets"] for row in tokens) == sum(len(tokenizer.encode(text)) + 1 for text in texts)
    assert sum(row["targets"] for row in bytewise) == sum(len(text.encode()) + 1 for text in texts)


def test_a_document_is_read_whole_whatever_its_blocks() -> None:
    text = long_text(2, 4000)
    assert len(cuts(text)) > 1
    tokenizer = bpe([text])
    model = trigram([text], tokenizer)
    (document,) = score_documents([record(text)], OffsetEncoder(tokenizer), model)
    (whole,) = model.log_probabilities([tokenizer.encode(text)])
    assert document.log_probabilities.tolist() == whole.tolist()
    assert sum(row["nats"] for row in document.rows) == pytest.approx(-whole.sum())


def test_bytes_are_those_of_the_normalised_text() -> None:
    text = "İstanbul ÇOK"  # lower-casing İ makes two characters of one
    tokenizer = bpe([text], lowercase=True)
    encoder = OffsetEncoder(tokenizer)
    (row,) = all_rows([record(text)], encoder, Uniform())
    assert row["bytes"] == len(tokenizer.normalize(text).encode())
    ids, _ = ByteEncoder(encoder).encode_with_offsets(text)
    assert bytes(ids).decode() == tokenizer.normalize(text)


def test_special_tokens_in_a_text_are_text() -> None:
    tokenizer = bpe(["a </s> b"])
    ids, _ = OffsetEncoder(tokenizer).encode_with_offsets("a </s> b")
    assert tokenizer.eos_id not in ids


def test_few_works_are_resampled_by_block_and_many_by_work() -> None:
    block = {"nats": 2.0, "targets": 1, "bytes": 1, "words": 1, "unknown": 0}
    few = [block | {"id": f"{i}", "group": f"{i % 2}", "nats": float(i)} for i in range(30)]
    found = summarise(few, "work", HOW)
    assert found["interval_unit"] == f"block of {BLOCK} characters"
    assert float(found["bits_per_byte_low"]) < float(found["bits_per_byte"]) < float(found["bits_per_byte_high"])
    many = [row | {"group": row["id"]} for row in few]
    assert len(many) >= MIN_GROUPS
    assert summarise(many, "work", HOW)["interval_unit"] == "work"


def test_batches_of_documents_change_nothing() -> None:
    records = [record(long_text(i, 30), f"d{i}") for i in range(7)]
    tokenizer = Words(["thou", "art"])
    model = KneserNey(2, 10, 0).fit([[2, 3, 2]])
    one, many = (
        [row for document in score_documents(records, tokenizer, model, batch) for row in document.rows]
        for batch in (1, 64)
    )
    assert one == many


class Bigram(nn.Module):
    """A causal network in which the token and its place in the window decide."""

    def __init__(self, vocabulary: int, context: int) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.token = nn.Embedding(vocabulary, vocabulary)
        self.place = nn.Embedding(context, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.token(tokens) + self.place(torch.arange(tokens.shape[1]))


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_a_networks_perplexity_depends_on_no_batch_and_no_padding(overlap: float) -> None:
    """Documents of very unequal length: a mean of batch means, or of documents' means, would be another number."""
    context = 16
    texts = [long_text(i, words) for i, words in enumerate((900, 1, 40, 2, 300, 1, 1, 77))]
    tokenizer = bpe(texts)
    module = Bigram(tokenizer.vocab_size, context)
    records = [record(text, f"d{i}", f"d{i}") for i, text in enumerate(texts)]
    found = []
    for batch_tokens, documents in ((1, 1), (16, 64), (100, 3), (4096, 2), (100_000, 64)):
        scorer = NetworkScorer(module, context, tokenizer.eos_id, batch_tokens, overlap)
        scored = list(score_documents(records, OffsetEncoder(tokenizer), scorer, documents))
        rows = [row for document in scored for row in document.rows]
        found.append(summarise(rows, "work", HOW))
        nats = -sum(float(document.log_probabilities.sum()) for document in scored)
        targets = sum(len(tokenizer.encode(text)) + 1 for text in texts)
        assert found[-1]["targets"] == targets
        assert found[-1]["perplexity"] == pytest.approx(math.exp(nats / targets))
        means = [float(-document.log_probabilities.mean()) for document in scored]
        assert found[-1]["nats_per_token"] != pytest.approx(np.mean(means), rel=1e-3)
    for one in found[1:]:
        assert one.keys() == found[0].keys()
        for key, value in found[0].items():
            assert one[key] == (value if isinstance(value, str | int) else pytest.approx(value, rel=1e-6))


def test_loss_by_position_follows_the_sliding_context() -> None:
    # Windows of 4 whose first half is context: the positions are 0 1 2 3 2 3 2.
    found = loss_by_position([-np.arange(1.0, 8.0)], 4, 0.5)
    assert found.tolist() == [1.0, 2.0, pytest.approx((3 + 5 + 7) / 3), pytest.approx(5.0)]


def test_loss_by_position_starts_again_in_each_window() -> None:
    found = loss_by_position([np.array([-1.0, -2.0, -3.0, -4.0, -5.0]), np.array([-3.0])], 3)
    assert found.tolist() == [pytest.approx((1 + 4 + 3) / 3), pytest.approx(3.5), 3.0]
    assert np.isnan(loss_by_position([np.array([-1.0])], 2)[1])


def test_rows_survive_their_file_whatever_is_in_the_text(tmp_path: Path) -> None:
    rows = [{"id": "a\u2028b\x85c\nd", "nats": 0.1}, {"id": "", "nats": 1e-300}]
    write_rows(tmp_path / "rows.jsonl", rows)
    assert read_rows(tmp_path / "rows.jsonl") == rows
