"""The input embeddings of every family, found among its weights by name."""

import pytest
import torch
from torch import nn

from lexmill.base.errors import UserError
from lexmill.models import build, families, family
from lexmill.models.input_embeddings import input_embeddings


@pytest.mark.parametrize("name", families())
def test_each_family_has_a_row_for_each_entry_of_the_vocabulary(name: str) -> None:
    module = build({"family": name, "shape": dict(family(name).tiny), "vocab_size": 11})
    tables = [child.weight for child in module.modules() if isinstance(child, nn.Embedding)]
    if not tables:  # it counts its tokens, or looks at them
        with pytest.raises(UserError, match="no input embeddings"):
            input_embeddings(module.state_dict())
        return
    found = input_embeddings(module.state_dict())
    assert len(found) == 11
    assert any(found.shape == table.shape and torch.equal(torch.from_numpy(found), table) for table in tables)


def test_bfloat16_is_read_as_float32() -> None:
    weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.bfloat16)
    assert input_embeddings({"embedding.weight": weights}).tolist() == [[1, 2], [3, 4]]


def test_a_model_without_embeddings_is_refused() -> None:
    with pytest.raises(UserError, match="no input embeddings"):
        input_embeddings({"head.weight": torch.zeros(2, 2)})
