"""How a pretrained encoder learns under a new head: rates by depth, blocks that stay or begin later, low ranks.

Depth 0 is the embeddings and all else below the blocks, 1 to n the blocks (n with the norm after them), n + 1 the
head.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import cast

from torch import nn

from lexmill.base.errors import UserError
from lexmill.models.common import lora
from lexmill.params.adaptation import Adaptation
from lexmill.training.task import Pace


def adapt(module: nn.Module, recipe: Adaptation, steps_per_epoch: int) -> Callable[[str], Pace]:
    """Freeze what the recipe freezes, and return how each parameter learns, by its name.

    Args:
        module: has the encoder under `encoder`; all else is head.

    Raises:
        UserError: the encoder has no blocks, fewer than are to be frozen, or no matrix in them for low ranks.
    """
    encoder = cast(nn.Module, module.encoder)
    wanted = recipe.layer_decay != 1 or recipe.frozen_blocks or recipe.unfreeze_every.amount or recipe.lora_rank
    if not wanted:
        return lambda _: Pace()
    stacks = [(name, child) for name, child in encoder.named_modules() if isinstance(child, nn.ModuleList)]
    if not stacks:
        raise UserError(
            "the network is no stack of blocks: leave out layer_decay, frozen_blocks, unfreeze_every, lora_rank"
        )
    path, stack = max(stacks, key=lambda one: len(one[1]))
    if recipe.frozen_blocks > len(stack):
        raise UserError(f"recipe.frozen_blocks is {recipe.frozen_blocks}, but the encoder has {len(stack)} blocks")
    if recipe.lora_rank:
        try:
            lora.adapt(encoder, recipe.lora_rank, recipe.lora_alpha)
        except ValueError as error:
            raise UserError(f"recipe.lora_rank: {error}") from None
    names = [name for name, _ in encoder.named_parameters(prefix="encoder")]
    end = max(i for i, name in enumerate(names) if name.startswith(f"encoder.{path}."))
    above = set(names[end + 1 :])
    block, head = re.compile(rf"encoder\.{re.escape(path)}\.(\d+)\."), len(stack) + 1

    def depth(name: str) -> int:
        if found := block.match(name):
            return int(found[1]) + 1
        if name in above:
            return head - 1
        return 0 if name.startswith("encoder.") else head

    if recipe.frozen_blocks:
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(depth(name) > recipe.frozen_blocks)
    total = recipe.length.steps(recipe.batch, steps_per_epoch)
    wait = recipe.unfreeze_every.steps(recipe.batch, steps_per_epoch, total)

    def pace(name: str) -> Pace:
        below = head - depth(name)
        return Pace(recipe.layer_decay**below, wait * below)

    return pace


def merge(module: nn.Module, recipe: Adaptation) -> None:
    """Merge what low ranks learned into the matrices."""
    if recipe.lora_rank:
        lora.merge(cast(nn.Module, module.encoder))
