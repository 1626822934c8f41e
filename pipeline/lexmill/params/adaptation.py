"""Recipes of what is trained from a pretrained encoder under a new head."""

from __future__ import annotations

from dataclasses import dataclass

from lexmill.base.strict import spec
from lexmill.params.length import Length
from lexmill.params.recipe import Recipe


@dataclass(frozen=True)
class Adaptation(Recipe):
    """A recipe with how the encoder learns beside the head; by default all learn alike."""

    layer_decay: float = spec(
        "rate of a block over that of the one above it; the head has all of it", 1.0, above=0, high=1
    )
    frozen_blocks: int = spec(
        "first blocks that keep their weights, with the embeddings; 0: all learn", 0, low=0, high=1000
    )
    unfreeze_every: Length = spec(
        "between blocks that begin to learn, from the head down (Howard and Ruder 2018); '0 steps': all at once",
        Length(0, "steps"),
    )
    lora_rank: int = spec(
        "low-rank adaptation: rank of what each matrix of a block learns; 0: whole", 0, low=0, high=1024
    )
    lora_alpha: float = spec("its scale is lora_alpha / lora_rank", 16.0, above=0, high=1e4)

    def errors(self) -> list[str]:
        found = super().errors()
        if self.optimizer.name == "muon" and (self.lora_rank or self.unfreeze_every.amount or self.layer_decay != 1):
            found.append(
                "optimizer: muon has one rate for all; with lora_rank, layer_decay or unfreeze_every take adamw"
            )
        if self.lora_rank and (self.frozen_blocks or self.unfreeze_every.amount):
            found.append("lora_rank: it freezes all blocks; leave out frozen_blocks and unfreeze_every")
        return found
