"""Estimate a training before anything runs: parameters, FLOPs, memory of a device, time.

The network is built on torch's meta device, which has shapes and no memory, so that 175 billion parameters cost no more
than a million. All bytes are of one device of N; P is the number of parameters, n the tokens of a micro-batch.

    weights        4 P      float32 in both precisions: bf16-mixed rounds copies, not the weights; and 4 bytes for each
                   number that is stored with them but not trained (a reservoir), on every device
    gradients      4 P
    optimizer      sgd 0, or 4 P with momentum; adagrad 4 P; rmsprop 4 P, or 8 P with momentum; adadelta, adam and adamw
                   8 P; muon 4 a number of the blocks' matrices and 8 a number elsewhere. All but sgd and muon also
                   count their steps: 4 bytes a tensor
    running mean   as the weights, with keep: ema

    single         all of it
    ddp            all of it, and 4 P for the buckets of the gradients
    fsdp           1/N of it; and unsharded for a while 8 R + 12 B: weights and gradients of the R parameters outside
                   the blocks, the weights of two blocks of B parameters and the gradients of one
    tensor parallel  1/N of what the network's plan shards, all of the rest

Activations are what autograd keeps for the backward pass (D width, V vocabulary; r bytes in a matrix product, 4 or, in
bf16-mixed, 2; m bytes in a dropout mask, 4 on a CPU, elsewhere 1):

    a block         `activation_bytes` a token (models/common): for a residual block of softmax attention
                    8 D + r (2 D + 4 A + 2 F) + 4 H and 8 (RMSNorm) or 16 (layer norm), r 4 F with a gated
                    feed-forward layer, and 2 m D with dropout; A all heads together, H heads, F feed-forward width
    once a token    8 D + 16: the input of the last norm (4 D; recurrent networks have none), the loss's gradient, token
                    and target; m D with dropout
    once            4 V D: the gradient of the output matrix; in bf16-mixed 2 a number of the blocks' matrices, for the
                    rounded copies, which autocast keeps whole under fsdp too
    backward        the gradients inside a block, a token, as measured (`gradient_bytes`)

Under tensor parallelism the A, H and F terms and the copies are divided by N. With activation checkpointing a block
keeps only its input, 4 D, and one block at a time has all of the above. Not counted: the device's runtime (0.5 to 1 GB
on a GPU), slices of logits (2 MB on a CPU, up to 0.5 GB on a GPU) and fragmentation. For a small training on a CPU a
test holds the sum to within 5 % of the measured peak (tests/commands/test_planning.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.storage import read_json
from lexmill.params import Params
from lexmill.params.models import Model
from lexmill.params.optimizers import Optimizer
from lexmill.tokenizers.task_tokens import TASK_TOKENS

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Sizes:
    """A network's numbers of parameters.

    Attributes:
        parameters: P, a tied matrix once.
        fixed: numbers that are stored but not trained.
        tensors: the number of tensors.
        outside: R, outside the blocks.
        block: B, the largest block.
        matrices, matrix_tensors: of the blocks, in numbers and in tensors.
        flops_per_token: of training one token at full context.
    """

    parameters: int
    fixed: int
    tensors: int
    outside: int
    block: int
    matrices: int
    matrix_tensors: int
    flops_per_token: int


@dataclass(frozen=True)
class Memory:
    """Bytes of one device under one strategy; `activations` is None for a family without `activation_bytes`."""

    strategy: str
    devices: int
    checkpointing: bool
    weights: int
    gradients: int
    optimizer: int
    running_mean: int
    exchange: int
    activations: int | None

    @property
    def total(self) -> int | None:
        """Return the sum, None where the activations are unknown."""
        if self.activations is None:
            return None
        state = self.weights + self.gradients + self.optimizer + self.running_mean
        return state + self.exchange + self.activations


@dataclass(frozen=True)
class Plan:
    """One model's cost; `tokens` and metrics derived from it are None if the length is not known yet."""

    name: str
    family: str
    vocab_size: int
    sizes: Sizes
    micro_batch: dict[str, int]
    memory: list[Memory]
    cannot: dict[str, str]
    tokens: int | None
    flops: float | None
    tokens_per_second: float | None
    seconds: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self) | {"memory": [asdict(row) | {"total": row.total} for row in self.memory]}


@dataclass(frozen=True)
class Machine:
    """The devices of a plan.

    Attributes:
        devices: N.
        micro_batch: most tokens that a device computes at once; 0: its whole share of the batch.
        peak: FLOP/s of a device; None: unknown.
        utilisation: the share of the peak that a training reaches.
        on_cpu: whether dropout masks are float32.
    """

    devices: int
    micro_batch: int
    peak: float | None
    utilisation: float
    on_cpu: bool


def plan(params: Params, name: str, machine: Machine, vocab_size: int = 0) -> Plan:
    """Return the plan of the model `name`, of a causal family.

    Args:
        vocab_size: 0: that of the tokenizer.

    Raises:
        UserError: the vocabulary is not known yet.
    """
    model = params.models[name]
    vocab = vocab_size or vocabulary(params, model)
    module = on_meta(model, vocab)
    sizes = measure(module)
    rows, micro_batches, cannot = [], {}, {}
    for strategy in ("single", "ddp", "fsdp", "tensor_parallel"):
        devices = 1 if strategy == "single" else machine.devices
        if strategy != "single" and devices == 1:
            continue
        try:
            shared = shared_out(module, devices) if strategy == "tensor_parallel" else 0
        except UserError as error:
            cannot[strategy] = str(error)
            continue
        share = -(-model.steps.batch // (devices if strategy in ("ddp", "fsdp") else 1))
        tokens = min(machine.micro_batch or share, share)
        micro_batches[strategy] = tokens
        for checkpointing in (False, True):
            at_once = activations(
                model,
                module,
                sizes,
                vocab,
                tokens=tokens,
                on_cpu=machine.on_cpu,
                checkpointing=checkpointing,
                shared_by=shared and devices,
            )
            row = _memory(
                model,
                sizes,
                strategy=strategy,
                devices=devices,
                shared=shared,
                checkpointing=checkpointing,
                at_once=at_once,
            )
            rows.append(row)
    budget = tokens_of(params, model)
    rate = None if machine.peak is None else machine.peak * machine.utilisation * machine.devices
    speed = None if rate is None else rate / sizes.flops_per_token
    return Plan(
        name=name,
        family=model.family,
        vocab_size=vocab,
        sizes=sizes,
        micro_batch=micro_batches,
        memory=rows,
        cannot=cannot,
        tokens=budget,
        flops=None if budget is None else float(budget) * sizes.flops_per_token,
        tokens_per_second=speed,
        seconds=None if speed is None or budget is None else budget / speed,
    )


def on_meta(model: Model, vocab_size: int) -> nn.Module:
    """Build the network without memory."""
    import torch

    from lexmill.models import build
    from lexmill.models.common.undrawn import Undrawn

    with torch.device("meta"), Undrawn():
        return build({"family": model.family, "shape": asdict(model.shape), "vocab_size": vocab_size})


def measure(module: nn.Module) -> Sizes:
    """Count a network's parameters."""
    from lexmill.models.common.state import weights

    everything = list(module.parameters())
    count = sum(parameter.numel() for parameter in everything)
    blocks = [list(block.parameters()) for block in module.blocks]  # type: ignore[union-attr]
    sizes = [sum(parameter.numel() for parameter in block) for block in blocks]
    matrices = [parameter.numel() for block in blocks for parameter in block if parameter.ndim == 2]
    return Sizes(
        parameters=count,
        fixed=sum(value.numel() for value in weights(module).values()) - count,
        tensors=len(everything),
        outside=count - sum(sizes),
        block=max(sizes),
        matrices=sum(matrices),
        matrix_tensors=len(matrices),
        flops_per_token=module.flops_per_token(),  # type: ignore[operator]
    )


def shared_out(module: nn.Module, devices: int) -> int:
    """Return the number of parameters that tensor parallelism shards over so many devices.

    Raises:
        UserError: the network cannot be sharded, or not by that number.
    """
    from torch.distributed.tensor.parallel import ColwiseParallel

    from lexmill.training.parallel import check_division

    check_division(module, devices)
    found = 0
    for path, style in module.tensor_parallel_plan().items():  # type: ignore[operator]
        part = module.get_submodule(path)
        matrix: Any = part.weight
        bias: Any = getattr(part, "bias", None)
        found += matrix.numel() + (bias.numel() if isinstance(style, ColwiseParallel) and bias is not None else 0)
    return found


def optimizer_bytes(settings: Optimizer, sizes: Sizes) -> int:
    """Return the bytes of an optimizer's state after its first step."""
    momentum = getattr(settings, "momentum", 0) > 0
    if settings.name == "sgd":
        return 4 * sizes.parameters if momentum else 0
    if settings.name == "muon":
        rest = sizes.tensors - sizes.matrix_tensors
        return 4 * sizes.matrices + 8 * (sizes.parameters - sizes.matrices) + 4 * rest
    moments = {"adagrad": 1, "rmsprop": 2 if momentum else 1, "adadelta": 2, "adam": 2, "adamw": 2}[settings.name]
    return 4 * moments * sizes.parameters + 4 * sizes.tensors


def activations(
    model: Model,
    module: nn.Module,
    sizes: Sizes,
    vocab_size: int,
    *,
    tokens: int,
    on_cpu: bool,
    checkpointing: bool,
    shared_by: int = 0,
) -> int | None:
    """Return the bytes of a micro-batch forward and backward; None for a family without `activation_bytes`.

    Args:
        tokens: n.
        on_cpu: whether dropout masks are float32.
        checkpointing: whether the backward pass computes blocks again.
        shared_by: devices of tensor parallelism; 0: none.
    """
    network: Any = module
    blocks = network.blocks
    if not all(hasattr(block, "activation_bytes") for block in blocks):
        return None
    width, low, share = model.shape.d_model, low_bytes(model), 1 / max(1, shared_by)
    learning = network.embedding.weight.requires_grad  # else no way back to a dropout
    mask = (4 if on_cpu else 1) if model.shape.dropout and learning else 0
    kept = [block.activation_bytes(low, mask, share) for block in blocks]
    at_rest = 4 * width * len(kept) + max(kept) if checkpointing else sum(kept)
    once = (8 if list(network.norm.parameters()) else 4) * width + 16 + mask * width
    copies = 0 if low == 4 else 2 * sizes.matrices * share
    passing = blocks[0].gradient_bytes(low)
    return round(tokens * (at_rest + once + passing) + 4 * vocab_size * width + copies)


def low_bytes(model: Model) -> int:
    """Return the bytes of a number in a matrix product."""
    return 4 if model.steps.precision == "32-true" else 2


def _memory(
    model: Model,
    sizes: Sizes,
    *,
    strategy: str,
    devices: int,
    shared: int,
    checkpointing: bool,
    at_once: int | None,
) -> Memory:
    share = 1.0
    if strategy == "fsdp":
        share = 1 / devices
    elif strategy == "tensor_parallel":
        share = (sizes.parameters - shared + shared / devices) / sizes.parameters
    exchange = {"ddp": 4 * sizes.parameters, "fsdp": 8 * sizes.outside + 12 * sizes.block}.get(strategy, 0)
    weights = math.ceil(4 * sizes.parameters * share)
    stored = weights + 4 * sizes.fixed
    return Memory(
        strategy=strategy,
        devices=devices,
        checkpointing=checkpointing,
        weights=stored,
        gradients=weights,
        optimizer=math.ceil(optimizer_bytes(model.steps.optimizer, sizes) * share),
        running_mean=stored if model.steps.keep == "ema" else 0,
        exchange=exchange,
        activations=at_once,
    )


def vocabulary(params: Params, model: Model) -> int:
    """Return the vocabulary of the model's tokenizer, from its shards if they exist, else from its entry.

    Raises:
        UserError: it is known only once the tokenizer is made.
    """
    found = _manifest(model.data.corpus, model.data.tokenizer).get("vocab_size")
    if found is None and model.data.tokenizer in params.tokenizers:
        entry = params.tokenizers[model.data.tokenizer]
        found = 261 if entry.kind == "byte" else entry.vocab_size
    if found is None and model.data.tokenizer in params.imported_tokenizers:
        folder = layout.checkpoint(params.imported_tokenizers[model.data.tokenizer].checkpoint)
        found = _read(folder / "config.json").get("vocab_size")
    if not found:
        raise UserError(
            f"the vocabulary of tokenizer {model.data.tokenizer} is known once it is made: run `lexmill run encode`"
            " first, or give --vocab-size"
        )
    return int(found) + (len(TASK_TOKENS) if model.task_tokens else 0)


def tokens_of(params: Params, model: Model) -> int | None:
    """Return the tokens of the whole training; None for epochs of a mixture or a corpus that is not encoded yet."""
    length, batch, steps_an_epoch = model.steps.length, model.steps.batch, 1
    if length.unit == "epochs":
        splits = _manifest(model.data.train, model.data.tokenizer).get("splits", {})
        train = splits.get("train", {}).get("text", {}).get("tokens")
        if train is None or model.data.train in params.mixtures:
            return None
        windows = max(1, train // model.shape.context)
        steps_an_epoch = math.ceil(windows / (batch // model.shape.context))
    return length.steps(batch, steps_an_epoch) * batch


def _manifest(corpus: str, tokenizer: str) -> Mapping[str, Any]:
    return _read(layout.tokens(corpus, tokenizer) / "manifest.json")


def _read(path: Path) -> Mapping[str, Any]:
    """Return a JSON object, an empty one if the file is missing or holds no object."""
    try:
        found = read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
