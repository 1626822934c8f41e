"""Packed documents: masks and positions."""

import torch

from lexmill.models.common.documents import document_mask, document_positions


def test_positions_start_again_at_each_document() -> None:
    documents = torch.tensor([[4, 4, 4, 5, 5, 9], [0, 1, 2, 2, 2, 2]])
    assert document_positions(documents).tolist() == [[0, 1, 2, 0, 1, 0], [0, 0, 0, 1, 2, 3]]


def test_a_query_sees_the_earlier_positions_of_its_own_document() -> None:
    mask = document_mask(torch.tensor([[4, 4, 5, 5]]))
    assert mask.shape == (1, 1, 4, 4)
    assert mask[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
