"""A resumed training holds no more in memory than a straight one at the same step."""

import gc
import signal
from pathlib import Path

import torch

from lexmill.base.errors import EXIT_INTERRUPTED
from lexmill.training.task import Arrays

from . import ranks_at_once
from .arithmetic_task import ArithmeticTask, train


class Weighing(ArithmeticTask):
    """Notes the bytes of all tensors that are alive when a step begins."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[int, int] = {}

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        gc.collect()
        # Not what a compiler's tracing left behind: that has no memory.
        alive = [one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter)]
        self.held[step] = sum({s.data_ptr(): s.nbytes() for s in (one.untyped_storage() for one in alive)}.values())
        return super().batch(step, rank, world)


def test_a_resume_holds_no_second_copy_of_its_state(tmp_path: Path) -> None:
    straight, resumed = Weighing(), Weighing()
    train(straight, tmp_path / "a", checkpoint_seconds=1e9)
    plan = {"die_at": 6, "signal": signal.SIGINT}
    code, message = ranks_at_once.alone(tmp_path / "b", tmp_path / "out", plan)
    assert code == EXIT_INTERRUPTED, message
    train(resumed, tmp_path / "b", checkpoint_seconds=1e9)
    assert min(resumed.held) == 7
    weights = sum(parameter.numel() * 4 for parameter in resumed.module.parameters())
    assert resumed.held[8] < straight.held[8] + weights / 2
