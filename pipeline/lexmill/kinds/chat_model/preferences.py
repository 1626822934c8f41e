"""The task of direct preference optimization (Rafailov et al. 2023).

For a pair of answers w (chosen) and l (rejected) to x, with the log-probabilities of whole answers under the network
and under the frozen network it starts from (the reference), the loss of a pair is

    -log sigmoid(beta * ((log p(w|x) - log p_ref(w|x)) - (log p(l|x) - log p_ref(l|x)))).

beta times a difference to the reference is an answer's implicit reward.

Shape letters: B pairs, T tokens, V vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill.data.conversations import IGNORED
from lexmill.data.preferences import SIDES, PairBatches, Pairs
from lexmill.training.task import Arrays, Task

_VALID_PAIRS = 16


def answer_log_probabilities(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each row's learned tokens together: (B, T), (B, T) -> (B,) float32."""
    logits = module(inputs).float()  # (B, T, V)
    nats = functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
    return -nats.sum(dim=1)


class PreferenceTask(Task):
    """Nats per pair.

    Args:
        module: the network, with the weights it starts from; a copy of it is the reference.
        batches: of the train split.
        valid: the pairs of the valid split.
        beta: see above.
    """

    counted = "pairs"

    def __init__(self, module: nn.Module, batches: PairBatches, valid: Pairs, beta: float) -> None:
        self.module, self.batches, self.valid, self.beta = module, batches, valid, beta
        self.reference = copy.deepcopy(module).eval().requires_grad_(requires_grad=False)
        self.steps_per_epoch = batches.steps_per_epoch

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        return self.batches.rows(step, rank, world)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        rewards = self._rewards(module, batch)
        return -functional.logsigmoid(rewards[0] - rewards[1]).sum(), len(rewards[0])

    def _rewards(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the implicit rewards of the chosen and the rejected answers, (2, B)."""
        self.reference.to(batch["chosen_inputs"].device)
        found = []
        for side in SIDES:
            inputs, targets = batch[f"{side}_inputs"], batch[f"{side}_targets"]
            with torch.no_grad():
                before = answer_log_probabilities(self.reference, inputs, targets)
            found.append(self.beta * (answer_log_probabilities(module, inputs, targets) - before))
        return torch.stack(found)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        count = len(self.valid)
        for start in range(rank * _VALID_PAIRS, count, world * _VALID_PAIRS):
            yield self.valid.rows(range(start, min(start + _VALID_PAIRS, count)))

    def validation_sums(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Sequence[float] | Tensor:
        rewards = self._rewards(module, batch).double()
        margins = rewards[0] - rewards[1]
        divergence, tokens = self._divergence(module, batch["chosen_inputs"], batch["chosen_targets"])
        return torch.stack(
            [
                -functional.logsigmoid(margins).sum(),
                (margins > 0).double().sum() + (margins == 0).double().sum() / 2,
                margins.sum(),
                divergence,
                tokens,
                torch.tensor(float(len(margins)), dtype=torch.float64, device=margins.device),
            ]
        )

    def _divergence(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return KL(network || reference) summed over the answers' positions, in nats, and their number."""
        own, before = (functional.log_softmax(one(inputs).double(), dim=-1) for one in (module, self.reference))
        learned = targets != IGNORED  # (B, T)
        return ((own.exp() * (own - before)).sum(-1) * learned).sum(), learned.sum().double()

    def validation_metrics(self, sums: Sequence[float]) -> dict[str, float]:
        loss, right, margin, divergence, tokens, count = sums
        return {
            "valid_loss": loss / count,
            "valid_accuracy": right / count,
            "valid_margin": margin / count,
            "valid_kl": divergence / tokens,
        }

    def epochs(self, step: int) -> float:
        return self.batches.epoch(step)
