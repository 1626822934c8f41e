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
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.conversations import IGNORED, Encoded, encode, messages_of
from lexmill.data.permutation import fold, permute
from lexmill.data.windows import positions
from lexmill.tokenizers import Tokenizer
from lexmill.training.task import Arrays, Task

_VALID_PAIRS = 16
_SIDES = ("chosen", "rejected")


@dataclass(frozen=True)
class Pairs:
    """Pairs of conversations that differ in the last answer; only that is learned.

    Attributes:
        context: longer conversations are cut at the front.
    """

    chosen: list[Encoded]
    rejected: list[Encoded]
    context: int

    def __len__(self) -> int:
        return len(self.chosen)

    def rows(self, places: Sequence[int], pad_id: int) -> dict[str, np.ndarray]:
        """Return pairs as a batch: inputs and targets (B, T) of both sides, `IGNORED` where nothing is learned."""
        found: dict[str, np.ndarray] = {}
        for name, side in zip(_SIDES, (self.chosen, self.rejected), strict=True):
            some = [side[place].last(self.context + 1) for place in places]
            width = max((len(one.ids) for one in some), default=1) - 1
            inputs = np.full((len(some), width), pad_id, dtype=np.int64)
            targets = np.full((len(some), width), IGNORED, dtype=np.int64)
            for row, one in enumerate(some):
                inputs[row, : len(one.ids) - 1] = one.ids[:-1]
                targets[row, : len(one.ids) - 1] = np.where(one.learned[1:], one.ids[1:], IGNORED)
            found |= {f"{name}_inputs": inputs, f"{name}_targets": targets}
        return found


def pairs(corpus: PreparedCorpus, split: str, tokenizer: Tokenizer, context: int) -> Pairs:
    """Read the pairs of a split.

    Raises:
        UserError: there are none, or a conversation has no rejected answer.
    """
    records = list(corpus.records(split))
    if not records:
        raise UserError(f"the {split} split is empty; give it a larger share", layout.corpus(corpus.folder.name))
    lacking = sum("rejected" not in record for record in records)
    if lacking:
        raise UserError(
            f"{lacking:,} of {len(records):,} conversations of {split} have no rejected answer; name its column in"
            " reader.rejected, or train on the answers (recipe.method: gradient)",
            corpus.folder,
        )
    prompts = [len(one.ids) for one in encode(tokenizer, [record["messages"][:-1] for record in records])]
    chosen, rejected = (
        [_last_answer(one, prompt) for one, prompt in zip(encode(tokenizer, conversations), prompts, strict=True)]
        for conversations in (
            [messages_of(record) for record in records],
            [messages_of(record, record["rejected"]) for record in records],
        )
    )
    return Pairs(chosen, rejected, context)


def _last_answer(conversation: Encoded, prompt: int) -> Encoded:
    """Learn only what comes after the prompt's tokens."""
    return Encoded(conversation.ids, conversation.learned & (np.arange(len(conversation.ids)) >= prompt))


def answer_log_probabilities(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the log-probability of each row's learned tokens together: (B, T), (B, T) -> (B,) float32."""
    logits = module(inputs).float()  # (B, T, V)
    nats = functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
    return -nats.sum(dim=1)


class PreferenceTask(Task):
    """Nats per pair.

    Args:
        module: the network, with the weights it starts from; a copy of it is the reference.
        train, valid: the pairs.
        batch: pairs in a global batch.
        beta: see above.
        pad_id: fills rows.
        seed: the data seed, of the order of pairs.
    """

    counted = "pairs"

    def __init__(
        self, module: nn.Module, train: Pairs, valid: Pairs, *, batch: int, beta: float, pad_id: int, seed: int
    ) -> None:
        self.module, self.train_pairs, self.valid = module, train, valid
        self.size, self.beta, self.pad_id, self.seed = batch, beta, pad_id, seed
        self.reference = copy.deepcopy(module).eval().requires_grad_(requires_grad=False)
        self.steps_per_epoch = -(-len(train) // batch)

    def batch(self, step: int, rank: int, world: int) -> Arrays:
        count = len(self.train_pairs)
        places = positions(step, self.size, rank, world)
        chosen = [permute(int(p % count), count, fold(self.seed, "pairs", int(p // count))) for p in places]
        return self.train_pairs.rows(chosen, self.pad_id)

    def loss_sum(self, module: nn.Module, batch: Mapping[str, Tensor]) -> tuple[Tensor, int]:
        rewards = self._rewards(module, batch)
        return -functional.logsigmoid(rewards[0] - rewards[1]).sum(), len(rewards[0])

    def _rewards(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the implicit rewards of the chosen and the rejected answers, (2, B)."""
        self.reference.to(batch["chosen_inputs"].device)
        found = []
        for side in _SIDES:
            inputs, targets = batch[f"{side}_inputs"], batch[f"{side}_targets"]
            with torch.no_grad():
                before = answer_log_probabilities(self.reference, inputs, targets)
            found.append(self.beta * (answer_log_probabilities(module, inputs, targets) - before))
        return torch.stack(found)

    def validation_batches(self, rank: int, world: int) -> Iterable[Arrays]:
        count = len(self.valid)
        for start in range(rank * _VALID_PAIRS, count, world * _VALID_PAIRS):
            yield self.valid.rows(range(start, min(start + _VALID_PAIRS, count)), self.pad_id)

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
        return step * self.size / len(self.train_pairs)
