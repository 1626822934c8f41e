"""Initial weights: a recipe of conf/initialization/, applied to a whole network of any family.

A recipe sets linear layers, embeddings and norms; biases are 0, norms 1 and 0. A module declares the rest
(`mixer.Part`): weights fused from several matrices, which are drawn one by one; layers that read an activation; how its
other parameters are drawn. A parameter that nothing mentions keeps its constructor's value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from lexmill.base.errors import UserErrors
from lexmill.base.strict import build, spec
from lexmill.base.yaml_file import read_yaml
from lexmill.models.common.mixer import fused_layouts
from lexmill.models.common.norms import RMSNorm


@dataclass(frozen=True)
class GPT2:
    """Radford et al. 2019: normal matrices and embeddings of one standard deviation.

    For projections that end a residual branch (named `output`) it is divided by the root of the number of branches in
    their stack of blocks, so that the sum of all branches keeps its variance; or they start at zero, so that each block
    is the identity at first (Zhang et al. 2019, "Fixup"), and all else is drawn as without.
    """

    name: Literal["gpt2"] = "gpt2"
    std: float = spec("standard deviation of matrices and embeddings", 0.02, above=0, high=100)
    zero_branches: bool = spec("projections that end a residual branch start at zero", False)


@dataclass(frozen=True)
class Xavier:
    """Glorot and Bengio 2010: uniform matrices of variance 2 / (inputs + outputs), normal embeddings."""

    name: Literal["xavier"] = "xavier"
    embedding_std: float = spec(
        "standard deviation of embeddings; 0: 1 over the root of their width", 0.02, low=0, high=100
    )


@dataclass(frozen=True)
class Kaiming:
    """He et al. 2015: normal matrices of variance gain^2 / inputs, normal embeddings.

    The gain compensates for the activation that a layer reads: the activation's own for the projection that ends a
    feed-forward layer (2 ** 0.5 for ReLU), 1 elsewhere.
    """

    name: Literal["kaiming"] = "kaiming"
    embedding_std: float = spec(
        "standard deviation of embeddings; 0: 1 over the root of their width", 0.02, low=0, high=100
    )


Recipe = GPT2 | Xavier | Kaiming


def load_recipe(path: str | Path) -> Recipe:
    """Read a recipe.

    Raises:
        UserError, UserErrors: it does not exist, is not YAML or not a recipe; all errors at once.
    """
    errors: list[str] = []
    recipe: Recipe | None = build(Recipe, read_yaml(path), errors, "recipe")  # type: ignore[arg-type]
    if recipe is None:
        raise UserErrors([f"{path}: {error}" for error in errors])
    return recipe


@torch.no_grad()
def initialize(module: nn.Module, recipe: Recipe) -> None:
    """Draw the module's weights by the recipe, in place, from torch's random state; a tied matrix as the embedding."""
    embeddings = {child.weight for child in module.modules() if isinstance(child, nn.Embedding)}
    fused, branches = fused_layouts(module), _branches(module)
    gains = _gains(module) if isinstance(recipe, Kaiming) else {}
    for name, child in module.named_modules():
        if hasattr(child, "draw_weights"):
            child.draw_weights(lambda weight: _matrix(weight, recipe, 0, 1.0))
        elif isinstance(child, nn.Linear):
            if child.weight not in embeddings:
                _, parts = fused.get(f"{name}.weight", (1, 1))
                for part in child.weight.chunk(parts):
                    _matrix(part, recipe, branches.get(name, 0), gains.get(name, 1.0))
            if child.bias is not None:
                nn.init.zeros_(child.bias)
        elif isinstance(child, nn.Embedding):
            std = recipe.std if isinstance(recipe, GPT2) else recipe.embedding_std
            nn.init.normal_(child.weight, std=std or child.embedding_dim**-0.5)
            if child.padding_idx is not None:
                nn.init.zeros_(child.weight[child.padding_idx])
        elif isinstance(child, nn.LayerNorm | RMSNorm):
            nn.init.ones_(child.weight)
            if getattr(child, "bias", None) is not None:
                nn.init.zeros_(child.bias)  # type: ignore[arg-type]


def _matrix(weight: Tensor, recipe: Recipe, branches: int, gain: float) -> None:
    if isinstance(recipe, GPT2):
        std = 0.0 if branches and recipe.zero_branches else recipe.std / math.sqrt(max(1, branches))
        nn.init.normal_(weight, std=std)  # at 0 it draws all the same, so that later matrices stay
    elif isinstance(recipe, Xavier):
        nn.init.xavier_uniform_(weight)
    else:
        nn.init.normal_(weight, std=gain / math.sqrt(weight.size(1)))


def _branches(module: nn.Module) -> dict[str, int]:
    """Return for each projection named `output` in a stack of blocks how many that stack has."""
    stack: dict[str, str] = {}
    lists = [name for name, child in module.named_modules() if isinstance(child, nn.ModuleList)]
    for name, child in module.named_modules():
        outer = next((one for one in lists if name.startswith(f"{one}.")), None)  # the outermost comes first
        if outer is not None and isinstance(child, nn.Linear) and name.endswith(".output"):
            stack[name] = outer
    count = Counter(stack.values())
    return {name: count[outer] for name, outer in stack.items()}


def _gains(module: nn.Module) -> dict[str, float]:
    """Return the gain of each layer that reads an activation."""
    found: dict[str, float] = {}
    for name, child in module.named_modules():
        if hasattr(child, "activations_read"):
            prefix = f"{name}." if name else ""
            found |= {f"{prefix}{layer}": gain(activation) for layer, activation in child.activations_read().items()}
    return found


def gain(activation: Callable[[Tensor], Tensor]) -> float:
    """Return 1 / sqrt(E[f(z)^2]) of a standard normal z: the gain that keeps the mean square after activation f."""
    z = torch.linspace(-10, 10, 20001, dtype=torch.float64, device="cpu")
    density = torch.exp(-(z**2) / 2)
    return float((density.sum() / (activation(z.clone()) ** 2 * density).sum()).sqrt())
