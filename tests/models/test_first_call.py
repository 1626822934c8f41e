"""Two threads that are the first to ask for an exponential: every process must get the same numbers."""

import os
import subprocess
import sys

PROCESS = """
import torch
from lexmill.compute.execution import Execution
from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.training.engine import set_threads

set_threads(Execution(threads=2))
torch.manual_seed(0)
model = GPT(GPTShape(n_layer=4, n_head=4, d_model=128, context=128), 2048)
tokens = torch.randint(2048, (4, 128))
model(tokens)  # the threads are awake when the loss asks for its first exponential
print(repr(model.loss(tokens, tokens).item()))
"""


def test_the_first_loss_of_two_threads_is_the_same_in_every_process() -> None:
    """Without the call that settles it, about one process in three was off by 1e-6."""
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    said = {
        subprocess.run(
            [sys.executable, "-c", PROCESS], env=environment, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(8)
    }
    assert len(said) == 1, said
