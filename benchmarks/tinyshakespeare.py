"""Characters of Shakespeare: lexmill's recipe beside nanoGPT's, by the loss of the whole valid split and the time.

python -m benchmarks.tinyshakespeare --text input.txt [--nanogpt CHECKOUT] [--setting small|full] [--threads N]
                                     [--precision bf16-mixed|32-true]... [--validate-every STEPS]

The text is the one file of REFERENCE_MD5, cut as nanoGPT cuts it: 90 % train, the rest valid. Each side trains in a
process of its own, one after the other, and its wall time is that of the whole process, imports and its own validations
included. Both are then scored here alike: mean nats over the targets of valid in windows that do not overlap, without
the part of a window at the end (111,488 targets of the small setting) and with it (111,539).

small: nanoGPT trains as its readme says for a CPU (4 layers, width 128, context 64, 2,000 steps of 12 windows);
lexmill trains conf/model/tinyshakespeare_fast.yaml, a layer with tables of hashed n-grams, through `engine.fit`.
Given twice, --precision trains lexmill's recipe in each, and the validations tell how far the curves
lie apart.
full: nanoGPT's config/train_shakespeare_char.py and conf/model/shakespeare_char.yaml; it needs a GPU.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import ROOT, machine, machine_text
from benchmarks.training_sides import nanogpt_code

REFERENCE_MD5 = "6fb458f1232090904fb40fe944165e91"
CHOICES = {"small": "tinyshakespeare_fast", "full": "shakespeare_char"}
CPU = [
    *("--device=cpu", "--compile=False", "--eval_iters=20", "--log_interval=100", "--block_size=64", "--batch_size=12"),
    *("--n_layer=4", "--n_head=4", "--n_embd=128", "--max_iters=2000", "--lr_decay_iters=2000", "--dropout=0.0"),
]
SPECIALS = 5  # ids before the first character in lexmill's shards: padding, unknown, begin, end, mask


def read(path: Path) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[str]]:
    """Train and valid as numbers of characters, and the characters.

    Raises:
        ValueError: it is another text.
    """
    data = path.read_bytes()
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != REFERENCE_MD5:
        raise ValueError(f"{path} is another text: its md5 is {found}, tinyshakespeare's is {REFERENCE_MD5}")
    text = data.decode("utf-8")
    characters = sorted(set(text))
    number = {character: index for index, character in enumerate(characters)}
    ids = np.array([number[character] for character in text], dtype=np.int64)
    cut = int(len(ids) * 0.9)
    return ids[:cut], ids[cut:], characters


@torch.no_grad()
def score(
    nats_of: Callable[[Tensor, Tensor], float], valid: np.ndarray[Any, Any], context: int
) -> list[tuple[int, float]]:
    """(targets, mean nats) over whole windows, and over these and the shorter one at the end.

    Args:
        nats_of: the summed nats of targets (B, T) after inputs (B, T).
        valid: ids; each but the first is a target.
    """
    inputs, targets = torch.from_numpy(valid[:-1].copy()), torch.from_numpy(valid[1:].copy())
    whole, total = len(targets) // context * context, 0.0
    for start in range(0, whole, 64 * context):
        part = slice(start, min(start + 64 * context, whole))
        total += nats_of(inputs[part].view(-1, context), targets[part].view(-1, context))
    found = [(whole, total / whole)]
    if whole < len(targets):
        total += nats_of(inputs[None, whole:], targets[None, whole:])
        found.append((len(targets), total / len(targets)))
    return found


def ours(text: Path, setting: str, folder: Path, precision: str, validate_every: int) -> None:
    """Train lexmill's recipe; writes the model's folder to `folder / "model"`, the curve's rows to `folder / "rows"`.

    Args:
        validate_every: steps between validations; 0: the recipe's.
    """
    import dataclasses

    import yaml

    from lexmill import models
    from lexmill.base.storage import write_json
    from lexmill.compute.execution import Execution
    from lexmill.config.compose import compose
    from lexmill.data.shards import TokenShards
    from lexmill.kinds.language_model.next_token import LanguageModelTask
    from lexmill.models import folder as model_folder
    from lexmill.models.start import start
    from lexmill.params import parse
    from lexmill.training.engine import fit
    from lexmill.training.production import settings_of
    from lexmill.training.seeding import derive, seed_all

    train, valid, characters = read(text)
    vocabulary = SPECIALS + len(characters)
    _write_shards(folder / "tokens", {"train": train, "valid": valid}, vocabulary)
    overrides = [
        f"model@models.gpt={CHOICES[setting]}",
        f"models.gpt.recipe.precision={precision}",
    ]
    if validate_every:
        overrides.append(f"models.gpt.recipe.validate_every={validate_every} steps")
    choices = parse(yaml.safe_load(compose(overrides, ROOT)))
    model = choices.models["gpt"]
    config = {
        "kind": model.kind,
        "family": model.family,
        "shape": dataclasses.asdict(model.shape),
        "vocab_size": vocabulary,
    }
    seed_all(derive(choices.training_seed, "weights"))
    module = models.build(config)
    start(module, config, str(ROOT / model.start), folder)
    task = LanguageModelTask(
        module,
        TokenShards(folder / "tokens", "train"),
        TokenShards(folder / "tokens", "valid"),
        context=model.shape.context,
        batch_tokens=model.recipe.batch,
        data_seed=choices.data_seed,
    )
    execution = Execution(
        accelerator="cuda" if setting == "full" else "cpu",
        threads=torch.get_num_threads(),
        checkpoint_root=str(folder / "checkpoints"),
    )
    settings = settings_of(model.recipe, task.batches.steps_per_epoch, choices.training_seed)
    rows = fit(task, settings, execution, name="x", identity={}).rows
    write_json(folder / "rows", [dict(row) for row in rows])
    model_folder.save(folder / "model", config, module)


def _write_shards(folder: Path, splits: dict[str, np.ndarray[Any, Any]], vocabulary: int) -> None:
    from lexmill.base.storage import write_json
    from lexmill.data.shards import VERSION, ShardWriter

    folder.mkdir()
    tokenizer, corpus = "a" * 64, "b" * 64
    manifest: dict[str, Any] = {
        "version": VERSION,
        "kind": "text",
        "tokenizer_fingerprint": tokenizer,
        "corpus_fingerprint": corpus,
        "vocab_size": vocabulary,
        "special": {"pad": 0, "unk": 1, "bos": 2, "eos": 3},
        "splits": {},
    }
    for split, ids in splits.items():
        writer = ShardWriter(folder, split, "text", vocab_size=vocabulary, tokenizer=tokenizer, corpus=corpus)
        writer.add(np.append(ids + SPECIALS, 3))
        manifest["splits"][split] = {"text": {**writer.close(), "bytes": len(ids), "unknown": 0}}
    write_json(folder / "manifest.json", manifest)


def _run_ours(
    text: Path, setting: str, threads: int, folder: Path, *, precision: str, validate_every: int
) -> tuple[float, list[tuple[int, float]], int]:
    """Seconds, scores, parameters."""
    from lexmill.models import folder as model_folder

    begun = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.tinyshakespeare", "--text", str(text.resolve()), "--setting", setting]
    how = ["--precision", precision, "--validate-every", str(validate_every)]
    _run([*command, *how, "--train-into", str(folder)], ROOT, threads)
    seconds = time.perf_counter() - begun
    config, module = model_folder.load(folder / "model")
    network: Any = module
    found = score(
        lambda x, y: float(network.loss(x + SPECIALS, y + SPECIALS)), read(text)[1], config["shape"]["context"]
    )
    return seconds, found, network.count_parameters()


def _run_nanogpt(
    text: Path, checkout: Path, setting: str, threads: int, folder: Path
) -> tuple[float, list[tuple[int, float]], int]:
    """Seconds, scores, parameters."""
    code = nanogpt_code(checkout)
    train, valid, characters = read(text)
    place = folder / "nanogpt"
    shutil.copytree(checkout, place, ignore=shutil.ignore_patterns(".git"))
    data = place / "data" / "shakespeare_char"
    data.mkdir(parents=True, exist_ok=True)
    for name, ids in (("train", train), ("val", valid)):
        ids.astype(np.uint16).tofile(data / f"{name}.bin")
    numbers = {character: index for index, character in enumerate(characters)}
    meta = {"vocab_size": len(characters), "stoi": numbers, "itos": dict(enumerate(characters))}
    (data / "meta.pkl").write_bytes(pickle.dumps(meta))
    begun = time.perf_counter()
    options = CPU if setting == "small" else []
    _run([sys.executable, "train.py", "config/train_shakespeare_char.py", *options], place, threads)
    seconds = time.perf_counter() - begun
    saved = torch.load(place / "out-shakespeare-char" / "ckpt.pt", map_location="cpu", weights_only=False)
    module = code.GPT(code.GPTConfig(**saved["model_args"])).eval()
    module.load_state_dict({name.removeprefix("_orig_mod."): value for name, value in saved["model"].items()})
    found = score(
        lambda x, y: float(module(x, y.contiguous())[1]) * y.numel(), valid, saved["model_args"]["block_size"]
    )
    return seconds, found, sum(parameter.numel() for parameter in module.parameters())


def _run(command: list[str], folder: Path, threads: int) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")


def main() -> None:
    """Both sides, or what is at hand of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tinyshakespeare")
    parser.add_argument("--text", type=Path, required=True, help="input.txt of tinyshakespeare")
    parser.add_argument("--nanogpt", type=Path, help="a checkout of nanoGPT; without it only lexmill trains")
    parser.add_argument("--setting", choices=tuple(CHOICES), default="small")
    parser.add_argument("--threads", type=int, default=1, help="of each side (default 1)")
    parser.add_argument("--precision", action="append", help="of lexmill's training (default bf16-mixed); again: both")
    parser.add_argument("--validate-every", type=int, default=0, help="steps between validations; 0: the recipe's")
    parser.add_argument("--train-into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    precisions = options.precision or ["bf16-mixed"]
    try:
        read(options.text)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if options.setting == "full" and not torch.cuda.is_available():
        parser.error("the full setting needs a GPU, and there is none here: it is not measured")
    if options.train_into:
        torch.set_num_threads(options.threads)
        ours(options.text, options.setting, options.train_into, precisions[0], options.validate_every)
        return
    print(machine_text(machine()))
    curves: dict[str, list[tuple[int, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for precision in precisions:
            place = Path(folder) / precision
            place.mkdir()
            made = _run_ours(
                *(options.text, options.setting, options.threads, place),
                precision=precision,
                validate_every=options.validate_every,
            )
            sides.append((f"lexmill, {precision}", *made))
            rows = json.loads((place / "rows").read_text(encoding="utf-8"))
            curves[precision] = [(row["step"], row["valid_loss"]) for row in rows if row.get("valid_loss") is not None]
        if options.nanogpt:
            place = options.nanogpt.resolve()
            sides.append(
                ("nanoGPT", *_run_nanogpt(options.text, place, options.setting, options.threads, Path(folder)))
            )
    for name, seconds, found, parameters in sides:
        losses = "; ".join(f"{nats:.4f} nats over {count:,} targets" for count, nats in found)
        print(f"{name}: {seconds:.1f} s with {options.threads} threads, {parameters:,} parameters, {losses}")
    if options.nanogpt:
        print(f"lexmill takes {sides[0][1] / sides[-1][1]:.2f} of nanoGPT's time")
    for precision, curve in curves.items():
        print(f"{precision}, valid loss by step: " + ", ".join(f"{step}: {loss:.4f}" for step, loss in curve))


if __name__ == "__main__":
    main()
