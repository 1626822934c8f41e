"""What words add to an answer: exact for a linear network, complete for any other, and put on the right words."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.kinds.classifier.attribution import contributions, log_odds, words
from lexmill.models.bert.model import Bert
from lexmill.models.bert.shape import Shape
from lexmill.models.common.heads import PooledClassifier
from lexmill.models.input_embeddings import embedding_of
from lexmill.tokenizers import load
from lexmill.tokenizers.imported import import_tokenizer
from tests.support.labelled_model import SHAPE
from tests.support.tiny_bert import make_tiny_bert


class Sum(nn.Module):
    """Two logits, linear in the mean of the tokens' embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 2)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        out: Tensor = self.embedding(tokens).mean(dim=1)
        return out


def test_of_a_linear_network_each_token_adds_its_own_share() -> None:
    torch.manual_seed(0)
    module = Sum().eval()
    tokens = [1, 4, 7, 2]
    rows = module.embedding.weight.detach()[torch.tensor(tokens)].double()
    wanted = (rows[:, 1] - rows[:, 0]) / 4
    wanted[[0, 3]] = 0.0  # kept
    found = contributions(module, [tokens], 1, frozenset({1, 2}))
    assert found is not None
    assert torch.allclose(found[0], wanted, atol=1e-6)


def test_the_contributions_add_up_to_the_change_of_the_log_odds() -> None:
    torch.manual_seed(0)
    module = PooledClassifier(Bert(Shape(**SHAPE), 30), 3, 0.0).eval()
    tokens, kept = [2, 9, 14, 22, 8, 3], frozenset({2, 3})
    found = contributions(module, [tokens], 2, kept)
    assert found is not None
    embedding = embedding_of(module)
    row, mask = torch.tensor([tokens]), torch.ones(1, 6, dtype=torch.bool)
    with torch.no_grad():
        whole = log_odds(module(row, mask), 2)
        start = embedding(row)
        start[:, 1:5] = 0
        hook = embedding.register_forward_hook(lambda *_: start)
        nothing = log_odds(module(row, mask), 2)
        hook.remove()
    assert found.sum().item() == pytest.approx((whole - nothing).item(), abs=0.02)
    assert found[0, [0, 5]].tolist() == [0, 0]
    assert torch.equal(log_odds(module(row, mask), 2), whole)  # the hook is gone


def test_log_odds_by_hand() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2]])
    assert log_odds(p.log(), 1).item() == pytest.approx(torch.tensor(0.3 / 0.7).log().item())


@pytest.mark.parametrize("text", ["film unplotted film", ("film", "unplotted film")])
def test_pieces_are_summed_into_words(text: str | tuple[str, str], tmp_path: Path) -> None:
    make_tiny_bert(tmp_path / "bert", ["film", "un", "##plot", "##ted"])
    import_tokenizer(tmp_path / "bert", tmp_path / "tokenizer")
    tokenizer = load(tmp_path / "tokenizer")
    torch.manual_seed(0)
    module = PooledClassifier(Bert(Shape(**SHAPE), tokenizer.vocab_size), 2, 0.0).eval()
    found = words(module, tokenizer, text, 0, {"max_tokens": 20})
    assert found is not None
    assert [word for word, _ in found] == ["film", "unplotted", "film"]
    sides = (text,) if isinstance(text, str) else text
    tokens = [tokenizer.bos_id]
    for side in sides:
        tokens += [*tokenizer.encode_batch([side])[0], tokenizer.eos_id]
    added = contributions(module, [tokens], 0, frozenset({tokenizer.bos_id, tokenizer.eos_id}))
    assert added is not None
    values = added[0].tolist()
    real = [value for token, value in zip(tokens, values, strict=True) if token not in (tokens[0], tokens[-1])]
    assert [value for _, value in found] == pytest.approx([real[0], sum(real[1:4]), real[4]])
    short = words(module, tokenizer, text, 0, {"max_tokens": 5})
    assert short is not None
    assert [word for word, _ in short] == ["film", "unplotted", "film"]
    assert short[-1][1] == 0.0 or not isinstance(text, str)


def test_a_network_without_embeddings_explains_nothing() -> None:
    with pytest.raises(UserError, match="no input embeddings"):
        embedding_of(nn.Linear(2, 2))
    assert embedding_of(nn.Linear(2, 2), missing_ok=True) is None
