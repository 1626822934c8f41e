"""The map of words: which table and which words are drawn, and for which networks there is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation import plots, word_map
from lexmill.evaluation.subject import Subject
from lexmill.evaluation.word_vectors import WordVectors, plane
from lexmill.models import build, families, family
from lexmill.models.common.heads import RewardModel
from lexmill.models.common.mixture import Mixture
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.kinds import assemble, word_model
from tests.support.prepared import write_prepared

SOURCE, TARGET = ["king", "mill", "river"], ["Fluss", "Mühle"]
WORDS = Tokenizer(assemble("word", word_model([f" {word}" for word in SOURCE + TARGET]), lowercase=False), "")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pictures that were drawn: places, words, path and title of each."""
    found: list[Any] = []
    monkeypatch.setattr(plots, "plot_words", lambda *given: found.append(given))
    return found


def draw(module: nn.Module, folder: Path, sources: list[str]) -> None:
    pairs = [{"source": " ".join(sources), "target": " ".join(TARGET)}]
    write_prepared(folder / "corpus", "parallel", {"train": pairs}, ("en", "de"))
    corpus = PreparedCorpus(folder / "corpus")
    word_map.draw(cast(Subject, SimpleNamespace(module=module, tokenizer=WORDS, corpus=corpus, name="m")), folder)


def network(name: str, **changes: Any) -> Any:
    torch.manual_seed(0)
    shape = {**family(name).tiny, **changes}
    return build({"family": name, "shape": shape, "vocab_size": WORDS.vocab_size})


def expected(table: Tensor) -> np.ndarray:
    return plane(WordVectors(SOURCE, WORDS, table.detach().numpy()).vectors)


@pytest.mark.parametrize("tied", ["three_way", "none"])
def test_a_translators_map_is_of_what_reads_the_source(tied: str, tmp_path: Path, drawn: list[Any]) -> None:
    module = network("transformer", tied=tied)
    draw(module, tmp_path, SOURCE)
    ((places, words, path, title),) = drawn
    assert (words, path, title) == (SOURCE, tmp_path / "words.png", "m")
    table = module.embedding if tied == "three_way" else module.source_embedding
    np.testing.assert_array_equal(places, expected(table.weight))


def test_a_mixtures_map_is_its_networks(tmp_path: Path, drawn: list[Any]) -> None:
    mixture = Mixture.__new__(Mixture)
    nn.Module.__init__(mixture)
    mixture.network = network("gpt")
    draw(mixture, tmp_path, SOURCE)
    np.testing.assert_array_equal(drawn[0][0], expected(cast(Any, mixture.network).embedding.weight))


def test_a_reward_models_map_is_its_networks(tmp_path: Path, drawn: list[Any]) -> None:
    module = network("llama")
    draw(RewardModel(module), tmp_path, SOURCE)
    np.testing.assert_array_equal(drawn[0][0], expected(module.embedding.weight))


@pytest.mark.parametrize("name", families())
def test_each_family_with_a_table_of_tokens_has_a_map(name: str, tmp_path: Path, drawn: list[Any]) -> None:
    module = network(name)
    draw(module, tmp_path, SOURCE)
    assert bool(drawn) == any(isinstance(layer, nn.Embedding) for layer in module.modules())


def test_two_words_are_no_map(tmp_path: Path, drawn: list[Any]) -> None:
    draw(network("gpt"), tmp_path, SOURCE[:2])
    assert not drawn
