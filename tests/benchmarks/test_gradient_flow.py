"""The norm of a gradient through time, where it is known by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from benchmarks import gradient_flow
from lexmill.models.common.recurrent import Memory, RecurrentLayer
from lexmill.models.elman.model import Layer


class Scalar(RecurrentLayer):
    """h_t = w h_{t-1} + x_t, with a second state that nothing reads."""

    def __init__(self, w: float) -> None:
        super().__init__(0.0)
        self.w = nn.Parameter(torch.tensor(w))

    def read(self, hidden: Tensor, memory: Memory | None) -> tuple[Tensor, Memory]:
        state = hidden[:, 0] if memory is None else self.w * memory[0][0] + hidden[:, 0]
        return state[:, None], (state[None], state[None] * 3.0)


@pytest.mark.parametrize("w", [0.5, -0.9, 1.0, -1.25])
def test_of_a_linear_scalar_cell_it_is_the_weights_power(w: float) -> None:
    found = gradient_flow.norms(Scalar(w), torch.randn(4, 10, 1), lambda last: last[:, 0])
    assert found == pytest.approx([abs(w) ** (10 - t) for t in range(1, 11)], rel=1e-6)


def test_of_an_elman_cell_it_is_that_of_the_jacobians_product() -> None:
    torch.manual_seed(0)
    layer, inputs, direction = Layer(8, 0.0, "tanh").double(), torch.randn(1, 6, 8).double(), torch.randn(8).double()
    found = gradient_flow.norms(layer, inputs, lambda last: last @ direction)
    states = layer.read(inputs, None)[0][0]  # (T, D)
    vector, wanted = direction, [direction.norm().item()]
    for state in states.flip(0)[:-1]:  # d h_t / d h_{t-1} = diag(1 - h_t^2) U
        vector = layer.kernel.get_parameter("weight_hh_l0").T @ ((1 - state**2) * vector)
        wanted.append(vector.norm().item())
    assert found == pytest.approx(wanted[::-1], rel=1e-10)


def test_an_orthogonal_matrix_near_0_keeps_it() -> None:
    for factor in (0.9, 1.0):
        found = gradient_flow.flow(("elman", {}, factor), 1e-5)
        assert found[0] == pytest.approx(factor ** (gradient_flow.TIME - 1), rel=1e-3)


def test_the_command_prints_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gradient_flow.main(["--steps", "2", "--picture", str(tmp_path / "flow.png")])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 * len(gradient_flow.CELLS) + 2 * len(gradient_flow.LARGE) + 2
    assert all(math.isfinite(float(line.split("|")[2])) for line in lines[:-2])
    assert (tmp_path / "flow.png").read_bytes().startswith(b"\x89PNG")
