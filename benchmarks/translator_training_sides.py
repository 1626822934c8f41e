"""The trainings that `benchmarks/translator_training.py` sets beside each other: one network, one set of batches.

The Trainer starts from the engine's weights and computes the same function. JoeyNMT's network has the same sizes and
its own initial weights; it would also drop attention's weights and the feed-forward layer's inner activations, which is
switched off here. Its loss is a divergence; the entropy of the smoothed target is added.

Letters: B pairs, S source length, T target length.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import cores

LR, BETAS = 5e-4, (0.9, 0.999)
SMOOTHING = 0.1
UNK, PAD, BOS, EOS = range(4)  # JoeyNMT's numbers
PAIRS = 8192  # as many as lexmill sorts together
MAX_POSITIONS = 256


@dataclass(frozen=True)
class Work:
    """What is trained.

    Attributes:
        layers: of the encoder, and of the decoder.
        batch: most tokens of either side, padding included.
        steps: optimizer steps.
        pairs: sentence pairs in the corpus.
        bf16: whether matrix products are made in bf16 (autocast); else float32.
        joeynmt: the folder of a checkout of JoeyNMT.
    """

    layers: int
    d_model: int
    d_ffn: int
    n_head: int
    vocab_size: int
    dropout: float
    batch: int = 4096
    steps: int = 8
    pairs: int = PAIRS
    bf16: bool = False
    joeynmt: str = ""

    @property
    def name(self) -> str:
        """The network, for people."""
        return f"{self.layers} + {self.layers} layers, width {self.d_model}, vocabulary {self.vocab_size:,}"

    @property
    def shape(self) -> dict[str, Any]:
        """The network's sizes, as the family `transformer` declares them."""
        layers = {"encoder_layers": self.layers, "decoder_layers": self.layers}
        sizes = {"n_head": self.n_head, "d_model": self.d_model, "d_ffn": self.d_ffn, "dropout": self.dropout}
        return {**layers, **sizes, "norm": "post", "max_positions": MAX_POSITIONS}


@dataclass
class Trained:
    """What a training did in each step: its loss in nats a target, its targets, and the processor time as it began.

    One step more than is asked for begins: its start is the end of the last one.
    """

    losses: list[float] = field(default_factory=list)
    targets: list[int] = field(default_factory=list)
    began: list[float] = field(default_factory=list)
    more: dict[str, float] = field(default_factory=dict)


def captions(work: Work) -> tuple[list[list[int]], list[list[int]]]:
    """Return sources and targets without end tokens: about 12 tokens, frequencies that fall as in text.

    A target follows its source by a rule, so there is something to learn.
    """
    random = np.random.default_rng(0)
    lengths = np.clip(np.rint(random.lognormal(np.log(11.5), 0.32, work.pairs)), 3, 45).astype(int)
    longer = np.clip(np.rint(lengths * random.lognormal(0, 0.15, work.pairs)), 3, 45).astype(int)
    rule = random.permutation(work.vocab_size - 4)
    sources = [(random.pareto(1.0, n) * 10).astype(np.int64) % (work.vocab_size - 4) for n in lengths]
    targets = [np.resize(rule[source], n) for source, n in zip(sources, longer, strict=True)]
    return tuple([(4 + ids).tolist() for ids in side] for side in (sources, targets))  # type: ignore[return-value]


def batches(work: Work, folder: Path) -> Any:
    """Return lexmill's batches of the captions, written to `folder`."""
    from lexmill.base.storage import write_json
    from lexmill.data.shards import VERSION, ShardWriter, TokenShards
    from lexmill.kinds.translator.batches import ParallelBatches

    tokenizer, corpus = "a" * 64, "b" * 64
    sides: dict[str, Any] = {}
    for side, sentences in zip(("source", "target"), captions(work), strict=True):
        writer = ShardWriter(folder, "train", side, vocab_size=work.vocab_size, tokenizer=tokenizer, corpus=corpus)
        for ids in sentences:
            writer.add([*ids, EOS])
        sides[side] = {**writer.close(), "bytes": 0, "unknown": 0}
    manifest = {"version": VERSION, "kind": "parallel", "vocab_size": work.vocab_size, "splits": {"train": sides}}
    fingerprints = {"tokenizer_fingerprint": tokenizer, "corpus_fingerprint": corpus}
    special = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}
    write_json(folder / "manifest.json", {**manifest, **fingerprints, "special": special})
    both = (TokenShards(folder, "train", side) for side in ("source", "target"))
    return ParallelBatches(*both, work.batch, 0, MAX_POSITIONS)


def model(work: Work) -> Any:
    """Return lexmill's network with the initial weights of its presets."""
    from lexmill import models
    from lexmill.models.common.init import Xavier, initialize

    torch.manual_seed(0)
    module = models.build({"family": "transformer", "shape": work.shape, "vocab_size": work.vocab_size})
    initialize(module, Xavier(embedding_std=0.0))
    return module


def engine(work: Work) -> Trained:
    """`lexmill.training.engine.fit` over the translator's own task."""
    from lexmill.compute.execution import Execution
    from lexmill.kinds.translator import TranslationRecipe
    from lexmill.kinds.translator.task import TranslationTask
    from lexmill.params.length import Length
    from lexmill.params.optimizers import Adam, ConstantSchedule
    from lexmill.training.engine import fit
    from lexmill.training.settings import TrainingSettings
    from lexmill.training.task import Arrays

    found = Trained()

    class Clocked(TranslationTask):
        def batch(self, step: int, rank: int, world: int) -> Arrays:
            found.began.append(time.process_time())
            return super().batch(step, rank, world)

        def loss_sum(self, module: Any, batch: Any) -> tuple[Tensor, Tensor | int]:
            loss, targets = super().loss_sum(module, batch)
            found.losses.append(float(loss.detach()) / int(targets))
            found.targets.append(int(targets))
            return loss, targets

        def validation_batches(self, rank: int, world: int) -> Any:
            yield super().batch(0, rank, world)

    adam, schedule, steps = Adam("adam", LR, *BETAS), ConstantSchedule("constant"), work.steps + 1
    recipe = TranslationRecipe("gradient", adam, schedule, Length(steps, "steps"), work.batch, SMOOTHING)
    settings = TrainingSettings(
        optimizer=adam,
        schedule=schedule,
        steps=steps,
        seed=0,
        precision="bf16-mixed" if work.bf16 else "32-true",
        validate_every=steps,
        keep="last",
    )
    with tempfile.TemporaryDirectory() as folder:
        made = batches(work, Path(folder))
        task = Clocked(model(work), made, made, recipe, steps)
        execution = Execution(checkpoint_root=f"{folder}/checkpoints", checkpoint_seconds=1e9, threads=cores())
        fit(task, settings, execution, name="benchmark", identity={})
        found.more = {"parameters": task.module.count_parameters(), "padding": made.padding_share()}
    return found


def marian(work: Work) -> Any:
    """Return transformers' Marian with the initial weights of lexmill's network."""
    from transformers import MarianConfig, MarianMTModel

    from lexmill.models.transformer.hugging_face import write_config, write_tensors

    ours = model(work)
    config = write_config(work.shape, work.vocab_size)
    special = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": BOS, "decoder_start_token_id": BOS}
    peer = MarianMTModel(MarianConfig(**config, **special, use_cache=False))
    state = write_tensors(work.shape, ours.state_dict())
    for name in ("lm_head", "model.encoder.embed_tokens", "model.decoder.embed_tokens"):
        state[f"{name}.weight"] = state["model.shared.weight"]
    peer.load_state_dict(state)
    return peer


def trainer(work: Work) -> Trained:
    """The Hugging Face Trainer over transformers' Marian; the batches are collated before the clock starts.

    Raises:
        LookupError: it cannot be imported.
    """
    try:
        import accelerate
        from transformers import Trainer, TrainerCallback, TrainingArguments
    except ImportError as error:
        raise LookupError(f"the Hugging Face Trainer is left out: it needs accelerate ({error})") from None
    assert accelerate
    torch.set_num_threads(cores())
    found = Trained()

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            found.began.append(time.process_time())

    class InOrder(Trainer):  # type: ignore[misc]
        def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def compute_loss(self, model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
            found.targets.append(int(inputs["labels"].ne(-100).sum()))
            loss = super().compute_loss(model, inputs, *rest, **more)
            found.losses.append(float(loss.detach()))
            return loss

    with tempfile.TemporaryDirectory() as folder:
        made = batches(work, Path(folder))
        data = [_for_marian(made.batch(step)) for step in range(work.steps + 1)]
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=1,  # one of these batches
            max_steps=work.steps + 1,
            label_smoothing_factor=SMOOTHING,
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
            seed=0,
        )
        torch.manual_seed(0)
        clock = [Clock()]
        InOrder(
            marian(work), arguments, train_dataset=data, data_collator=lambda rows: dict(rows[0]), callbacks=clock
        ).train()
    return found


def _for_marian(batch: Any) -> dict[str, Tensor]:
    """Return a batch under the names of transformers' encoder-decoders."""
    return {
        "input_ids": torch.from_numpy(batch.source),
        "attention_mask": torch.from_numpy(batch.source_mask).long(),
        "decoder_input_ids": torch.from_numpy(batch.target_in),
        "labels": torch.from_numpy(np.where(batch.target_mask, batch.target_out, -100)),
    }


def joeynmt(work: Work, own: bool = False) -> Trained:
    """JoeyNMT's `TrainManager` over its Transformer.

    Args:
        own: batches of its own, of as many tokens, in place of lexmill's.

    Raises:
        LookupError: there is no checkout, or a package that it needs is not installed.
    """
    if not (Path(work.joeynmt) / "joeynmt" / "training.py").is_file() or not work.joeynmt:
        raise LookupError("JoeyNMT is left out: give the folder of a checkout by --joeynmt")
    sys.path.insert(0, work.joeynmt)
    try:
        from joeynmt.config import parse_train_args
        from joeynmt.datasets import BaseDataset
        from joeynmt.training import TrainManager
    except ImportError as error:
        raise LookupError(f"JoeyNMT is left out: install what it needs ({error})") from None
    torch.set_num_threads(cores())
    found, network = Trained(), _joey_model(work)
    entropy = -(1 - SMOOTHING) * log(1 - SMOOTHING) - SMOOTHING * log(SMOOTHING / (work.vocab_size - 2))
    vocabulary = network.trg_vocab
    sides = dict(zip(("source", "target"), captions(work), strict=True))

    class Pairs(BaseDataset):  # type: ignore[misc]
        def get_item(self, idx: int, lang: str, is_train: bool | None = None) -> list[str]:
            return [str(one) for one in sides[lang][idx]]

        def __len__(self) -> int:
            return work.pairs

        def make_iter(self, **given: Any) -> Any:
            if own:
                return super().make_iter(**given)
            keys = ("pad_index", "eos_index", "device")
            collate = partial(self.collate_fn, **{key: given[key] for key in keys})
            return torch.utils.data.DataLoader(self, batch_sampler=_Rows(order), collate_fn=collate)

    class Clocked(TrainManager):  # type: ignore[misc]
        def _train_step(self, batch: Any) -> tuple[float, int]:
            found.began.append(time.process_time())
            loss, correct = super()._train_step(batch)
            found.losses.append(loss + entropy)
            found.targets.append(batch.ntokens)
            return loss, correct

    with tempfile.TemporaryDirectory() as folder:
        made = batches(work, Path(folder))
        order = [made.batch(step).index.tolist() for step in range(work.steps + 1)]
        encode = dict.fromkeys(sides, vocabulary.sentences_to_ids)
        data = Pairs("", *sides, has_trg=True, has_prompt=dict.fromkeys(sides, False), sequence_encoder=encode)
        data.reset_indices()
        arguments = {
            "normalization": "tokens",
            "label_smoothing": SMOOTHING,
            "optimizer": "adam",
            "adam_betas": BETAS,
            "learning_rate": LR,
            "scheduling": "exponential",
            "decrease_factor": 1.0,
            "learning_rate_min": 0.0,
            "clip_grad_norm": 1.0,
            "batch_type": "token",
            "batch_size": work.batch,
            "updates": work.steps + 1,
            "logging_freq": 10**6,
            "validation_freq": 10**6,
        }
        Clocked(
            0,
            network,
            Path(folder),
            torch.device("cpu"),
            autocast={"device_type": "cpu", "enabled": False},
            train_args=parse_train_args(arguments),
        ).train_and_validate(data, data)
    return found


def _joey_model(work: Work) -> Any:
    """Return JoeyNMT's Transformer of the same sizes, with dropout at the same places."""
    from joeynmt.config import _check_special_symbols
    from joeynmt.model import build_model
    from joeynmt.transformer_layers import MultiHeadedAttention, PositionwiseFeedForward
    from joeynmt.vocabulary import Vocabulary

    class Special:
        def __init__(self) -> None:
            vars(self).update(_check_special_symbols({}))

    part = {
        "type": "transformer",
        "num_layers": work.layers,
        "num_heads": work.n_head,
        "embeddings": {"embedding_dim": work.d_model, "scale": True},
        "hidden_size": work.d_model,
        "ff_size": work.d_ffn,
        "dropout": work.dropout,
        "layer_norm": "post",
    }
    vocabulary = Vocabulary([str(number) for number in range(4, work.vocab_size)], Special())
    torch.manual_seed(0)
    tied = {"tied_embeddings": True, "tied_softmax": True}
    network = build_model({"encoder": part, "decoder": part, **tied}, vocabulary, vocabulary)
    network.loss_function = ("crossentropy", SMOOTHING)
    for module in network.modules():
        if isinstance(module, MultiHeadedAttention):
            module.dropout.p = 0.0
        elif isinstance(module, PositionwiseFeedForward):
            module.pwff_layer[2].p = 0.0
    return network


class _Rows(list[list[int]]):
    """The pairs of each batch, with what JoeyNMT asks of a sampler."""

    def set_seed(self, seed: int) -> None:
        """The order is given."""

    def get_state(self) -> Tensor:
        """Nothing is drawn."""
        return torch.empty(0)


SIDES: dict[str, tuple[str, Callable[[Work], Trained]]] = {
    "engine": ("engine.fit", engine),
    "trainer": ("Hugging Face Trainer", trainer),
    "joeynmt": ("JoeyNMT", joeynmt),
    "joeynmt_own": ("JoeyNMT, batches of its own", partial(joeynmt, own=True)),
}
"""Each side by its name for people."""
