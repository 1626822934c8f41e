"""The trainings that `benchmarks/training.py` sets beside each other: one architecture, one set of weights, one order.

Each side trains by what its project calls its way (see `SIDES`) on the same made batches, with AdamW (fused) at one
rate, gradients clipped to norm 1, no dropout, and gives the losses of all steps and when each step began.

Shape letters: B rows, T context, V vocabulary.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.measure import cores

LR, BETAS = 1e-3, (0.9, 0.95)


@dataclass(frozen=True)
class Work:
    """What is trained.

    Attributes:
        rows: B of a step.
        micro_rows: rows that lexmill's engine takes at once.
        steps: optimizer steps.
        bf16: whether matrix products are made in bf16 (autocast); else float32.
        nanogpt: the folder of a checkout of nanoGPT.
    """

    n_layer: int
    n_head: int
    d_model: int
    context: int
    vocab_size: int
    rows: int
    micro_rows: int
    steps: int
    bf16: bool = False
    nanogpt: str = ""


Trained = tuple[list[float], list[float]]
"""Each step's loss in nats a target, and when it began; one time more, of the end."""


def batches(work: Work) -> np.ndarray[Any, Any]:
    """(steps, B, T + 1) tokens where the next follows from the last by a noisy rule, so that there is a curve."""
    random = np.random.default_rng(0)
    tokens = np.empty((work.steps + 1, work.rows, work.context + 1), dtype=np.int64)
    tokens[..., 0] = random.integers(work.vocab_size, size=tokens.shape[:2])
    rule = random.integers(work.vocab_size, size=work.vocab_size)
    for t in range(work.context):
        noise = random.integers(work.vocab_size, size=tokens.shape[:2])
        tokens[..., t + 1] = np.where(random.random(tokens.shape[:2]) < 0.7, rule[tokens[..., t]], noise)
    return tokens


def model(work: Work) -> Any:
    """Lexmill's GPT with the initial weights of all sides, and nanoGPT's activation, the exact GELU."""
    from lexmill.models.gpt.model import GPT
    from lexmill.models.gpt.shape import Shape as GPTShape

    torch.manual_seed(0)
    return GPT(GPTShape(work.n_layer, work.n_head, work.d_model, work.context, activation="gelu"), work.vocab_size)


def engine(work: Work) -> Trained:
    """`lexmill.training.engine.fit`, in micro-batches."""
    from lexmill.compute.execution import Execution, MicroBatch
    from lexmill.params.optimizers import AdamW, ConstantSchedule
    from lexmill.training.engine import fit
    from lexmill.training.settings import TrainingSettings
    from lexmill.training.task import Task

    tokens, module, began = batches(work), model(work), list[float]()

    class Made(Task):
        def batch(self, step: int, rank: int, world: int) -> dict[str, np.ndarray[Any, Any]]:
            began.append(time.perf_counter())
            return {"inputs": tokens[step, :, :-1], "targets": tokens[step, :, 1:]}

        def loss_sum(self, module: Any, batch: Any) -> tuple[Tensor, int]:
            loss = module.loss(batch["inputs"], batch["targets"])
            if len(losses) < len(began):  # the first micro-batch of a step
                losses.append(0.0)
            losses[-1] += float(loss.detach()) / (work.rows * work.context)
            return loss, batch["targets"].numel()

        def validation_batches(self, rank: int, world: int) -> Any:
            yield {"inputs": tokens[0, :1, :-1], "targets": tokens[0, :1, 1:]}

        def validation_sums(self, module: Any, batch: Any) -> list[float]:
            return [float(module.loss(batch["inputs"], batch["targets"])), float(batch["targets"].numel())]

        def validation_metrics(self, sums: Any) -> dict[str, float]:
            return {"valid_loss": sums[0] / sums[1]}

        def epochs(self, step: int) -> float:
            return 0.0

    losses: list[float] = []
    task = Made()
    task.module = module
    settings = TrainingSettings(
        optimizer=AdamW("adamw", LR, weight_decay=0.0),
        schedule=ConstantSchedule("constant"),
        steps=work.steps + 1,
        seed=0,
        precision="bf16-mixed" if work.bf16 else "32-true",
        validate_every=work.steps + 1,
        keep="last",
    )
    with tempfile.TemporaryDirectory() as folder:
        execution = Execution(
            checkpoint_root=folder,
            checkpoint_seconds=1e9,
            threads=cores(),
            micro_batch=MicroBatch(work.micro_rows * work.context),
        )
        fit(task, settings, execution, name="benchmark", identity={})
    return losses[: work.steps], began


def plain(work: Work) -> Trained:
    """A plain torch loop over lexmill's GPT: logits and `F.cross_entropy`, the whole batch at once."""
    module = model(work)
    return _loop(work, module, _mean_nats(module))


def nanogpt(work: Work) -> Trained:
    """nanoGPT's `model.py` in the loop of its `train.py`.

    Raises:
        LookupError: there is no checkout.
    """
    code = nanogpt_code(Path(work.nanogpt) if work.nanogpt else None)
    config = code.GPTConfig(
        work.context, work.vocab_size, work.n_layer, work.n_head, work.d_model, dropout=0.0, bias=True
    )
    peer, ours = code.GPT(config), model(work)
    with torch.no_grad():
        body = peer.transformer
        body.wte.weight.copy_(ours.embedding.weight)
        body.wpe.weight.copy_(ours.positions.weight)
        body.ln_f.load_state_dict(ours.norm.state_dict())
        for theirs, block in zip(body.h, ours.blocks, strict=True):
            _copy_block(theirs, block, work.n_head, transposed=False)
    return _loop(work, peer, lambda inputs, targets: peer(inputs, targets)[1])


def nanogpt_code(checkout: Path | None) -> Any:
    """The module `model.py` of a checkout.

    Raises:
        LookupError: there is none.
    """
    path = (checkout or Path()) / "model.py"
    found = importlib.util.spec_from_file_location("nanogpt_model", path) if path.is_file() else None
    if checkout is None or found is None or found.loader is None:
        raise LookupError("nanoGPT is left out: give the folder of a checkout by --nanogpt")
    code = importlib.util.module_from_spec(found)
    sys.modules["nanogpt_model"] = code  # its dataclass looks itself up there
    found.loader.exec_module(code)
    return code


def litgpt(work: Work) -> Trained:
    """litgpt's `GPT` in a plain loop; it has rotary positions and an output matrix of its own, so its losses differ.

    Raises:
        LookupError: litgpt is not installed.
    """
    try:
        from litgpt.config import Config
        from litgpt.model import GPT
    except ImportError as error:
        raise LookupError(f"litgpt is left out: it is not installed here ({error})") from None
    config = Config(
        block_size=work.context,
        n_layer=work.n_layer,
        n_embd=work.d_model,
        n_head=work.n_head,
        padded_vocab_size=work.vocab_size,
        vocab_size=work.vocab_size,
        parallel_residual=False,
        attn_bias=True,
        bias=True,
        rotary_percentage=1.0,
        gelu_approximate="none",
        intermediate_size=4 * work.d_model,
    )
    torch.manual_seed(0)
    module = GPT(config)
    return _loop(work, module, _mean_nats(module))


def trainer(work: Work) -> Trained:
    """The Hugging Face Trainer over transformers' GPT-2.

    Raises:
        LookupError: it cannot be imported.
    """
    try:
        import accelerate
        from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
    except ImportError as error:
        raise LookupError(f"the Hugging Face Trainer is left out: it needs accelerate ({error})") from None
    assert accelerate
    tokens, ours, losses, began = batches(work), model(work), list[float](), list[float]()
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    peer = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=work.vocab_size,
            n_positions=work.context,
            n_embd=work.d_model,
            n_layer=work.n_layer,
            n_head=work.n_head,
            activation_function="gelu",
            use_cache=False,
            **none,
        )
    )
    with torch.no_grad():
        body = peer.transformer
        body.wte.weight.copy_(ours.embedding.weight)
        body.wpe.weight.copy_(ours.positions.weight)
        body.ln_f.load_state_dict(ours.norm.state_dict())
        for theirs, block in zip(body.h, ours.blocks, strict=True):
            _copy_block(theirs, block, work.n_head, transposed=True)

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            began.append(time.perf_counter())

    class InOrder(Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    def loss(outputs: Any, labels: Tensor, **_: Any) -> Tensor:
        nats = nn.functional.cross_entropy(outputs.logits.float().flatten(0, 1), labels.flatten())
        losses.append(float(nats.detach()))
        return nats

    rows = tokens.reshape(-1, work.context + 1)
    data = [{"input_ids": row[:-1], "labels": row[1:]} for row in torch.from_numpy(rows)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=work.rows,
            max_steps=work.steps + 1,
            learning_rate=LR,
            adam_beta1=BETAS[0],
            adam_beta2=BETAS[1],
            weight_decay=0.0,
            lr_scheduler_type="constant",
            max_grad_norm=1.0,
            optim="adamw_torch_fused",
            bf16=work.bf16,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        InOrder(peer, arguments, train_dataset=data, compute_loss_func=loss, callbacks=[Clock()]).train()
    return losses[: work.steps], began


SIDES: dict[str, tuple[str, Callable[[Work], Trained]]] = {
    "engine": ("engine.fit", engine),
    "plain": ("plain loop, same model", plain),
    "nanogpt": ("nanoGPT", nanogpt),
    "litgpt": ("litgpt's GPT", litgpt),
    "trainer": ("Hugging Face Trainer", trainer),
}


def _mean_nats(module: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
    """The usual loss of a module that gives logits."""
    return lambda inputs, targets: nn.functional.cross_entropy(module(inputs).float().flatten(0, 1), targets.flatten())


def _loop(work: Work, module: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor]) -> Trained:
    """Forward, loss, backward, clipping and update of the whole batch."""
    torch.set_num_threads(cores())
    tokens, losses, began = torch.from_numpy(batches(work)), list[float](), list[float]()
    optimizer = torch.optim.AdamW(module.parameters(), LR, betas=BETAS, weight_decay=0.0, fused=True)
    for step in range(work.steps + 1):
        began.append(time.perf_counter())
        inputs, targets = tokens[step, :, :-1].contiguous(), tokens[step, :, 1:].contiguous()
        with torch.autocast("cpu", torch.bfloat16, enabled=work.bf16):
            loss = loss_of(inputs, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses[: work.steps], began


def _copy_block(theirs: Any, ours: Any, n_head: int, transposed: bool) -> None:
    """A block of lexmill's GPT into one with GPT-2's names; `transposed`: its matrices are (inputs, outputs)."""
    from lexmill.models.common.attention import split_projection

    fused = ours.attention.query_key_value
    projection = types.SimpleNamespace(
        weight=torch.cat(split_projection(fused.weight, n_head)), bias=torch.cat(split_projection(fused.bias, n_head))
    )
    matrices = [
        (theirs.attn.c_attn, projection),
        (theirs.attn.c_proj, ours.attention.output),
        (theirs.mlp.c_fc, ours.feed_forward.expand),
        (theirs.mlp.c_proj, ours.feed_forward.output),
    ]
    for one, other in matrices:
        one.weight.copy_(other.weight.t() if transposed else other.weight)
        one.bias.copy_(other.bias)
    theirs.ln_1.load_state_dict(ours.attention_norm.state_dict())
    theirs.ln_2.load_state_dict(ours.feed_forward_norm.state_dict())
