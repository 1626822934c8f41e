"""Writing text beside Hugging Face `generate`, from the same weights.

Ours: `lexmill.decoding.sampling.continue_tokens`. The peer: `GPT2LMHeadModel.generate` of transformers, with its
default cache and fused attention (sdpa), in inference mode; it loads the same GPT, written to a folder in its own
format. A GPT of random weights, prompts of 32 tokens, 200 new ones, no end token, the same threads. Tokens a second,
the prompt's reading included.

In float32 both must choose the same tokens where the most probable one is taken; where two are so close that rounding
decides, what comes after is not compared. Drawn ones cannot agree: each side has its own random numbers. Where the
processor has instructions for bfloat16 the same is measured in it, beside the peer in it and beside the peer's default,
which is float32 for these weights.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import Comparison, cores, in_turn
from lexmill.commands.precision import instructions
from lexmill.decoding.sampling import LanguageModel, continue_tokens
from lexmill.decoding.settings import Sampling
from lexmill.models.gpt import hugging_face
from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape

SHAPE, VOCABULARY = GPTShape(6, 6, 384, 256), 2048
LARGE, LARGE_VOCABULARY = GPTShape(12, 12, 768, 1024), 50257  # GPT-2, 124 M parameters
BATCHES = (1, 16)
_CLOSE = 1e-3  # logits closer than this may change places by rounding


def compare(
    repetitions: int,
    shape: GPTShape = SHAPE,
    vocabulary: int = VOCABULARY,
    prompt: int = 32,
    new: int = 200,
) -> list[Comparison]:
    """Measure both sides, greedy and drawn, one text and sixteen."""
    torch.set_num_threads(cores())
    torch.manual_seed(0)
    ours = GPT(shape, vocabulary).eval()
    with torch.no_grad():
        ours.norm.weight.mul_(3.0)  # opinions: fewer ties for rounding to decide
    peer = _peer(ours)
    pairs: list[tuple[GPT, Any]] = [(ours, peer)]
    if instructions("cpu"):
        low = copy.deepcopy(ours).bfloat16()
        pairs += [(low, copy.deepcopy(peer).bfloat16()), (low, peer)]
    found = []
    for mine, theirs in pairs:
        for batch in BATCHES:
            prompts = torch.randint(5, vocabulary, (batch, prompt))
            for how in (Sampling(new, 0.0), Sampling(new, 0.8, top_k=50, top_p=0.95)):
                found.append(_compare(mine, theirs, prompts, how, repetitions))
    return found


def _peer(ours: GPT) -> Any:
    """The same model as transformers loads it."""
    import dataclasses
    import json

    from safetensors.torch import save_file
    from transformers import GPT2LMHeadModel

    shape = dataclasses.asdict(ours.shape)
    with tempfile.TemporaryDirectory() as folder:
        config = hugging_face.write_config(shape, ours.vocab_size)
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        tensors = hugging_face.write_tensors(shape, ours.state_dict())
        save_file(tensors, Path(folder) / "model.safetensors", metadata={"format": "pt"})
        peer = GPT2LMHeadModel.from_pretrained(folder, local_files_only=True).eval()
    peer.generation_config.eos_token_id = None  # both write all tokens
    peer.generation_config.pad_token_id = 0
    return peer


def _compare(ours: GPT, peer: Any, prompts: Tensor, how: Sampling, repetitions: int) -> Comparison:
    written: dict[str, Tensor] = {}

    def rate(name: str, write: Callable[[], Tensor]) -> dict[str, float]:
        begun = time.perf_counter()
        written[name] = write()
        return {"rate": len(prompts) * how.max_tokens / (time.perf_counter() - begun)}

    def mine() -> Tensor:
        module: LanguageModel = ours
        return torch.tensor(continue_tokens(module, prompts.tolist(), how, eos=-1, never_written=()))

    @torch.inference_mode()
    def theirs() -> Tensor:
        drawn = {"do_sample": True, "temperature": how.temperature, "top_k": how.top_k, "top_p": how.top_p}
        chosen = drawn if how.temperature else {"do_sample": False}
        mask = torch.ones_like(prompts)
        whole: Tensor = peer.generate(prompts, attention_mask=mask, max_new_tokens=how.max_tokens, **chosen)
        return whole[:, prompts.shape[1] :]

    we, they = in_turn(lambda: rate("ours", mine), lambda: rate("peer", theirs), repetitions)
    precision, theirs_in = _precision(ours), _precision(peer)
    if how.temperature == 0 and precision == "float32":
        _agree(ours, prompts, written["ours"], written["peer"])
    name = f"top-k {how.top_k}, top-p {how.top_p}" if how.temperature else "greedy"
    what = f"{ours.count_parameters() / 1e6:.0f} M parameters, batch {len(prompts)}, {name}"
    sides = (f"lexmill, {precision}", we["rate"]), (f"transformers, {theirs_in}", they["rate"])
    return Comparison("generate", what, "tokens/s", *sides)


def _precision(module: torch.nn.Module) -> str:
    return str(next(module.parameters()).dtype).removeprefix("torch.")


@torch.inference_mode()
def _agree(ours: GPT, prompts: Tensor, mine: Tensor, theirs: Tensor) -> None:
    """Raise where the texts part although one token was clearly the more probable."""
    for prompt, we, they in zip(prompts, mine, theirs, strict=True):
        apart = (we != they).nonzero()
        if len(apart):
            place = int(apart[0])
            logits = ours(torch.cat([prompt, we[:place]])[None])[0, -1]
            if abs(float(logits[we[place]] - logits[they[place]])) > _CLOSE:
                raise RuntimeError(f"the sides chose different tokens at step {place}")
