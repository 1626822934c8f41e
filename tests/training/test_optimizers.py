"""Every optimizer beside its paper's update in plain arithmetic; which parameters decay; state out and back."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lexmill.base.errors import UserError
from lexmill.models.common.attention import SelfAttention, fuse_projections, split_projection
from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.models.transformer.model import Transformer
from lexmill.models.transformer.shape import Shape as TransformerShape
from lexmill.params.optimizers import SGD, AdaDelta, AdaGrad, Adam, AdamW, Muon, Optimizer, RMSprop
from lexmill.training import optimizers
from lexmill.training.muon import MuonOptimizer, orthogonalize

Update = Callable[[Tensor, Tensor, dict[str, Tensor], int, bool], Tensor]
"""(weights, gradient, what is remembered, step from 1, whether it is a matrix) -> new weights, all in float64."""

DECAY = 0.03


def l2(w: Tensor, g: Tensor, matrix: bool) -> Tensor:
    return g + DECAY * w if matrix else g


def sgd(w: Tensor, g: Tensor, memory: dict[str, Tensor], step: int, matrix: bool) -> Tensor:
    return w - 0.1 * l2(w, g, matrix)


def momentum(w: Tensor, g: Tensor, memory: dict[str, Tensor], step: int, matrix: bool) -> Tensor:
    g = l2(w, g, matrix)
    memory["v"] = 0.9 * memory["v"] + g if "v" in memory else g
    return w - 0.1 * memory["v"]


def nesterov(w: Tensor, g: Tensor, memory: dict[str, Tensor], step: int, matrix: bool) -> Tensor:
    g = l2(w, g, matrix)
    memory["v"] = 0.9 * memory["v"] + g if "v" in memory else g
    return w - 0.1 * (g + 0.9 * memory["v"])


def adagrad(w: Tensor, g: Tensor, memory: dict[str, Tensor], step: int, matrix: bool) -> Tensor:
    g = l2(w, g, matrix)
    memory["s"] = memory.get("s", torch.zeros_like(w)) + g * g
    return w - 0.05 * g / (memory["s"].sqrt() + 1e-10)


def adadelta(w: Tensor, g: Tensor, memory: dict[str, Tensor], step: int, matrix: bool) -> Tensor:
    """Zeiler 2012, algorithm 1."""
    g, zero = l2(w, g, matrix), torch.zeros_like(w)
    memory["g2"] = 0.9 * memory.get("g2", zero) + 0.1 * g * g
    change = -(memory.get("x2", zero) + 1e-6).sqrt() / (memory["g2"] + 1e-6).sqrt() * g
    memory["x2"] = 0.9 * memory.get("x2", zero) + 0.1 * change * change
    return w + 0.7 * change


def rmsprop(w: Tensor, g: Tensor, memory: dict[str, Tensor], step: int, matrix: bool) -> Tensor:
    g, zero = l2(w, g, matrix), torch.zeros_like(w)
    memory["s"] = 0.95 * memory.get("s", zero) + 0.05 * g * g
    memory["v"] = 0.5 * memory.get("v", zero) + g / (memory["s"].sqrt() + 1e-8)
    return w - 0.01 * memory["v"]


def adaptive(w: Tensor, g: Tensor, memory: dict[str, Tensor], step: int, lr: float) -> Tensor:
    """Kingma and Ba 2015, algorithm 1, with betas (0.8, 0.95)."""
    zero = torch.zeros_like(w)
    memory["m"] = 0.8 * memory.get("m", zero) + 0.2 * g
    memory["v"] = 0.95 * memory.get("v", zero) + 0.05 * g * g
    return w - lr * (memory["m"] / (1 - 0.8**step)) / ((memory["v"] / (1 - 0.95**step)).sqrt() + 1e-8)


def adam(w: Tensor, g: Tensor, memory: dict[str, Tensor], step: int, matrix: bool) -> Tensor:
    return adaptive(w, l2(w, g, matrix), memory, step, 0.02)


def adamw(w: Tensor, g: Tensor, memory: dict[str, Tensor], step: int, matrix: bool) -> Tensor:
    """Loshchilov and Hutter 2019, algorithm 2: the decay stays out of the moments."""
    return adaptive(w, g, memory, step, 0.02) - (0.02 * DECAY * w if matrix else 0)


CASES: list[tuple[Optimizer, Update]] = [
    (SGD("sgd", lr=0.1, weight_decay=DECAY), sgd),
    (SGD("sgd", lr=0.1, momentum=0.9, weight_decay=DECAY), momentum),
    (SGD("sgd", lr=0.1, momentum=0.9, nesterov=True, weight_decay=DECAY), nesterov),
    (AdaGrad("adagrad", lr=0.05, weight_decay=DECAY), adagrad),
    (AdaDelta("adadelta", lr=0.7, weight_decay=DECAY), adadelta),
    (RMSprop("rmsprop", lr=0.01, alpha=0.95, momentum=0.5, weight_decay=DECAY), rmsprop),
    (Adam("adam", lr=0.02, beta1=0.8, beta2=0.95, weight_decay=DECAY), adam),
    (AdamW("adamw", lr=0.02, beta1=0.8, beta2=0.95, weight_decay=DECAY), adamw),
]
NAMES = ["sgd", "momentum", "nesterov", "adagrad", "adadelta", "rmsprop", "adam", "adamw"]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = SelfAttention(6, 2)
        self.wide, self.narrow = nn.Linear(6, 9), nn.Linear(9, 6)

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = hidden + self.attention(hidden)
        out: Tensor = hidden + self.narrow(self.wide(hidden).tanh())
        return out


class Blocks(nn.Module):
    """Two blocks with a fused projection, a tied embedding and a norm."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = nn.Embedding(7, 6)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(6)
        self.output = nn.Linear(6, 7, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        out: Tensor = self.output(self.norm(hidden))
        return out


def backward(module: nn.Module, step: int) -> None:
    tokens = torch.randint(7, (4, 5), generator=torch.Generator().manual_seed(step))
    module(tokens).pow(2).mean().backward()


@pytest.mark.parametrize(("settings", "update"), CASES, ids=NAMES)
def test_it_is_the_papers_update(settings: Optimizer, update: Update) -> None:
    module = Blocks()
    built = optimizers.build(module, settings)
    memories: dict[str, dict[str, Tensor]] = {name: {} for name, _ in module.named_parameters()}
    for step in range(1, 8):
        built.zero_grad()
        backward(module, step)
        wanted = {
            name: update(p.detach().double(), p.grad.double(), memories[name], step, p.ndim >= 2)
            for name, p in module.named_parameters()
            if p.grad is not None
        }
        assert len(wanted) == len(memories)
        built.step()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(parameter.detach().double(), wanted[name], rtol=2e-6, atol=2e-7, msg=name)


def slow_orthogonalize(matrix: Tensor) -> Tensor:
    """By the singular values: each goes through the quintic five times."""
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / s.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.775 * s**3 + 2.0315 * s**5
    return u @ s.diag() @ v


@pytest.mark.parametrize("shape", [(4, 4), (3, 9), (9, 3), (1, 5)])
def test_muons_iteration_brings_every_singular_value_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrices = torch.randn(2, *shape)
    found = orthogonalize(matrices)
    for one, matrix in zip(found, matrices, strict=True):
        torch.testing.assert_close(one.double(), slow_orthogonalize(matrix), rtol=1e-4, atol=1e-4)
        values = torch.linalg.svdvals(one)
        assert values.max() < 1.25
        assert values[torch.linalg.svdvals(matrix) > 0.05 * matrix.norm()].min() > 0.6
    assert torch.equal(orthogonalize(torch.zeros(1, *shape)), torch.zeros(1, *shape))


def test_muon_on_the_blocks_matrices_and_adamw_on_all_else() -> None:
    """Each part of a fused projection alone, scaled by its own shape; by a twin in float64."""
    module = Blocks()
    settings = Muon("muon", lr=0.02, momentum=0.9, weight_decay=DECAY, adamw_lr=0.02, beta1=0.8, beta2=0.95)
    built = optimizers.build(module, settings)
    memories: dict[str, dict[str, Tensor]] = {name: {} for name, _ in module.named_parameters()}

    def twin(name: str, w: Tensor, g: Tensor, step: int) -> Tensor:
        if "blocks" not in name or w.ndim < 2:
            return adamw(w, g, memories[name], step, w.ndim >= 2)
        velocity = 0.9 * memories[name].get("v", torch.zeros_like(w)) + 0.1 * g
        memories[name]["v"] = velocity
        update = 0.9 * velocity + 0.1 * g
        parts = split_projection(update, n_head=2) if "query_key_value" in name else (update,)
        steps = [slow_orthogonalize(part) * math.sqrt(max(1, len(part) / part.size(1))) for part in parts]
        change = fuse_projections(steps[0], steps[1], steps[2], n_head=2) if len(steps) == 3 else steps[0]
        return w - 0.02 * DECAY * w - 0.02 * change

    for step in range(1, 6):
        built.zero_grad()
        backward(module, step)
        wanted = {
            name: twin(name, p.detach().double(), p.grad.double(), step)
            for name, p in module.named_parameters()
            if p.grad is not None
        }
        built.step()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(parameter.detach().double(), wanted[name], rtol=1e-5, atol=1e-5, msg=name)


def test_muon_is_that_of_torch_where_torch_has_it() -> None:
    reference: Any = getattr(torch.optim, "Muon", None)
    if reference is None:  # before torch 2.9; the twin above holds it there
        return
    torch.manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape)) for shape in [(8, 4), (4, 8), (6, 6), (4, 8)]]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    one = MuonOptimizer([(p, (1, 1)) for p in ours], lr=0.02, momentum=0.95, weight_decay=0.1)
    other = reference(theirs, lr=0.02, momentum=0.95, weight_decay=0.1)
    for _ in range(5):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn_like(a)
            b.grad = a.grad.clone()
        with torch.autocast("cpu", torch.bfloat16):  # torch's always computes in bfloat16
            one.step()
        other.step()
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=2e-3)  # a tenth of one step's change


def test_under_autocast_muon_computes_in_its_type() -> None:
    torch.manual_seed(0)
    matrix = torch.randn(1, 6, 9)
    with torch.autocast("cpu", torch.bfloat16):
        low = orthogonalize(matrix)
    assert low.dtype == torch.bfloat16
    assert 1e-5 < (low.float() - orthogonalize(matrix)).abs().max() < 0.1


def test_a_translators_blocks_go_by_muon_and_its_embedding_by_adamw() -> None:
    shape = TransformerShape(encoder_layers=1, decoder_layers=1, n_head=2, d_model=8, d_ffn=16)
    module = Transformer(shape, 11)
    muon, adamw_part = optimizers.build(module, Muon("muon", lr=0.02)).parts
    names = {p: name for name, p in module.named_parameters()}
    by_muon = {names[p]: group["layout"] for group in muon.param_groups for p in group["params"]}
    assert by_muon["encoder.0.attention.query_key_value.weight"] == (2, 3)
    assert by_muon["decoder.0.cross.key_value.weight"] == (1, 2)
    assert by_muon["decoder.0.feed_forward.output.weight"] == (1, 1)
    rest = {names[p] for group in adamw_part.param_groups for p in group["params"]}
    assert "embedding.weight" in rest
    assert set(by_muon) | rest == set(names.values())
    assert not set(by_muon) & rest


def test_muon_needs_blocks() -> None:
    with pytest.raises(UserError, match="no matrix in a stack of blocks; choose adamw"):
        optimizers.build(nn.Linear(3, 2), Muon("muon", lr=0.02))


@pytest.mark.parametrize("settings", [*(one for one, _ in CASES), Muon("muon", lr=0.02, weight_decay=DECAY)])
def test_only_matrices_decay_and_a_tied_one_once(settings: Optimizer) -> None:
    model = GPT(GPTShape(n_layer=2, n_head=2, d_model=8, context=4, dropout=0.0), 11)
    built = optimizers.build(model, settings)
    for group in (group for part in built.parts for group in part.param_groups):
        matrices = {p.ndim >= 2 for p in group["params"]}
        assert matrices == {group["weight_decay"] == DECAY}
        assert group["weight_decay"] in (0.0, DECAY)
    assert sum(p.numel() for p in built.parameters()) == model.count_parameters()


def test_frozen_parameters_are_left_out() -> None:
    module = Blocks()
    module.embedding.weight.requires_grad_(False)
    for settings in (AdamW("adamw", lr=0.1), Muon("muon", lr=0.1)):
        assert not any(p is module.embedding.weight for p in optimizers.build(module, settings).parameters())


def test_each_learning_rate_goes_by_its_own_peak() -> None:
    built = optimizers.build(Blocks(), Muon("muon", lr=0.02, adamw_lr=0.003))
    for factor in (0.5, 0.1, 1.0):
        built.set_learning_rates(factor)
        rates = {group["lr"] for part in built.parts for group in part.param_groups}
        assert rates == {0.02 * factor, 0.003 * factor}


def train(module: nn.Module, built: optimizers.Optimizers, first: int, last: int) -> None:
    for step in range(first, last + 1):
        built.zero_grad()
        backward(module, step)
        built.set_learning_rates(1 / step)
        built.step()


def copied(built: optimizers.Optimizers) -> dict[str, Tensor]:
    """What a checkpoint holds."""
    return {name: value.clone() for name, value in built.named_state().items()}


@pytest.mark.parametrize("settings", [*(one for one, _ in CASES), Muon("muon", lr=0.02)], ids=[*NAMES, "muon"])
def test_its_state_comes_back_to_the_bit(settings: Optimizer) -> None:
    straight = Blocks()
    train(straight, optimizers.build(straight, settings), 1, 6)
    first = Blocks()
    built = optimizers.build(first, settings)
    nothing = copied(built)
    train(first, built, 1, 3)
    saved = copied(built)
    train(first, built, 4, 4)  # what is saved does not follow
    second = Blocks()
    train(second, optimizers.build(second, settings), 1, 3)
    fresh = optimizers.build(second, settings)
    fresh.load_state_tensors(nothing)
    fresh.load_state_tensors(saved)
    assert {name: value.dtype for name, value in fresh.named_state().items()} == {
        name: value.dtype for name, value in saved.items()
    }
    train(second, fresh, 4, 6)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, second.state_dict()[name]), name


def test_state_of_other_parameters_is_refused() -> None:
    module = Blocks()
    built = optimizers.build(module, AdamW("adamw", lr=0.1))
    train(module, built, 1, 1)
    saved = copied(built)
    assert {name.rpartition("/")[2] for name in saved} == {"step", "exp_avg", "exp_avg_sq"}
    less = {name: value for name, value in saved.items() if not name.startswith("norm.bias/")}
    with pytest.raises(UserError, match=r"does not fit the model: norm\.bias"):
        built.load_state_tensors(less)
    with pytest.raises(UserError, match="does not fit the model: other"):
        built.load_state_tensors({**saved, "other/step": torch.zeros(())})


@pytest.mark.parametrize(
    ("settings", "kernel"),
    [
        (AdamW("adamw", lr=0.1), torch.ops.aten._fused_adamw_.default),
        (Muon("muon", lr=0.1), torch.ops.aten._fused_adamw_.default),  # for what is no matrix of a block
        (Adam("adam", lr=0.1), torch.ops.aten._fused_adam_.default),
        (SGD("sgd", lr=0.1), torch.ops.aten._fused_sgd_.default),
    ],
    ids=["adamw", "muon", "adam", "sgd"],
)
def test_one_kernel_updates_all_parameters_of_a_group(settings: Optimizer, kernel: Any) -> None:
    """Where the device has it, as a CPU does: one call for those that decay and one for the others."""
    module = Blocks()
    built = optimizers.build(module, settings)
    backward(module, 1)
    calls: list[int] = []

    class Noting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            if func is kernel:
                calls.append(len(args[0]))
            return func(*args, **(kwargs or {}))

    with Noting():
        built.step()
    groups = [
        group["params"] for part in built.parts if not isinstance(part, MuonOptimizer) for group in part.param_groups
    ]
    assert calls == [len(group) for group in groups]
    assert sum(calls) > 0
