"""A MiniLM that classifies reviews: fine-tuning and classifying beside transformers, and int8 beside float32.

    python -m benchmarks.minilm [finetune] [classify] [int8] [--texts N] [--repetitions N] [--folder DIR] [--json FILE]

The folder is that of `python -m benchmarks.classifiers minilm`, which makes it first: the default reviews, the MiniLM
checkpoint and a classifier trained from it.

finetune: the train stage on four times `--texts` texts for one epoch beside the Hugging Face Trainer (needs
accelerate). Both have the same first weights, texts as ids, batch, precision, dropout, optimizer, schedule and
clipping, and validate once; the Trainer pads a batch to its longest text. Texts a second, the validation included, and
the accuracy on the test split.

classify: texts to labels, tokenization included, one text a call and 64, beside `pipeline("text-classification")`. Its
model is transformers' BERT with our pooling and weights. The labels must be the same.

int8: `lexmill export --to onnx --int8` beside lexmill in float32, and the accuracy of both on the whole test split.

On one thread (`taskset -c 0`) processor time is what an idle machine takes; a busy one changes it little.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import yaml

from benchmarks import classifiers
from benchmarks.measure import Comparison, child, cores, in_turn, machine, machine_text, show
from lexmill import params, tokenizers
from lexmill.base.quiet import quieten
from lexmill.base.storage import read_json
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.permutation import fold, permute
from lexmill.data.texts import encode, pad, records_of
from lexmill.decoding.batching import by_length
from lexmill.decoding.predictor import TEXT_TOKENS
from lexmill.kinds.classifier import Classifier, FineTuning
from lexmill.kinds.classifier.predict import Predictor
from lexmill.models import folder as model_folder
from lexmill.params.optimizers import AdamW
from lexmill.training import engine

MODEL, CORPUS = "artifacts/models/minilm", "artifacts/corpora/movie_reviews"
BATCHES = (1, 64)
UNIT = "texts a second of processor time"
Labels = list[str]


def pooled_bert(folder: Path, labels: Sequence[str]) -> Any:
    """Return transformers' BERT with the mean over its tokens and one matrix, as lexmill's classifier has it."""
    from transformers import BertModel, BertPreTrainedModel
    from transformers.modeling_outputs import SequenceClassifierOutput

    class PooledBert(BertPreTrainedModel):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            self.bert = BertModel(config, add_pooling_layer=False)
            self.dropout = torch.nn.Dropout(0.1)
            self.classifier = torch.nn.Linear(config.hidden_size, len(labels))
            self.post_init()

        def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None, **_: Any) -> Any:
            hidden = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state  # (B, T, D)
            real = attention_mask.unsqueeze(-1)
            logits = self.classifier(self.dropout((hidden * real).sum(1) / real.sum(1)))
            loss = None if labels is None else torch.nn.functional.cross_entropy(logits, labels)
            return SequenceClassifierOutput(loss=loss, logits=logits)

    numbered = dict(enumerate(labels))
    found = PooledBert.from_pretrained(folder, local_files_only=True, id2label=numbered)
    return found.eval()


def classify(folder: Path, texts: int, repetitions: int) -> list[Comparison]:
    """Measure both sides; raise `RuntimeError` where they give other labels."""
    from transformers import AutoTokenizer, pipeline

    from lexmill.registry.hugging_face import export

    ours = _predictor(folder / MODEL)
    with tempfile.TemporaryDirectory() as place:
        export(folder / MODEL, Path(place) / "there", "minilm")
        peer = pooled_bert(Path(place) / "there", ours.config["labels"])
        tokenizer = AutoTokenizer.from_pretrained(Path(place) / "there")
    logging.disable(logging.ERROR)  # that it does not know the class
    pipe = pipeline("text-classification", model=peer, tokenizer=tokenizer, device="cpu")
    logging.disable(logging.NOTSET)
    found = []
    for batch in BATCHES:
        some = _texts(folder)[: texts if batch > 1 else texts // 4]
        labels: dict[str, Labels] = {}

        def mine(some: list[str] = some, batch: int = batch) -> Labels:
            return [one["label"] for rows in _calls(some, batch) for one in ours.predict(rows)]

        def theirs(some: list[str] = some, batch: int = batch) -> Labels:
            if batch == 1:
                return [pipe(text, truncation=True)[0]["label"] for text in some]
            return [one["label"] for one in pipe(some, batch_size=batch, truncation=True)]

        we, they = in_turn(_timed("ours", mine, labels), _timed("peer", theirs, labels), repetitions)
        if labels["ours"] != labels["peer"]:
            raise RuntimeError("the sides give different labels")
        sides = ("lexmill", we["rate"]), ("transformers' pipeline", they["rate"])
        found.append(Comparison("classify", f"MiniLM, {len(some)} reviews, {batch} a call", UNIT, *sides))
    return found


def int8(folder: Path, texts: int, repetitions: int) -> list[Comparison]:
    """Measure both, and print the accuracy of both on the test split."""
    import onnxruntime
    import tokenizers as library

    from lexmill.registry.onnx_export import GRAPH, TOKENIZER, export_onnx

    ours = _predictor(folder / MODEL)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = cores()
    with tempfile.TemporaryDirectory() as place:
        export_onnx(folder / MODEL, Path(place) / "there", "minilm", int8=True)
        session = onnxruntime.InferenceSession(str(Path(place) / "there" / GRAPH), options)
        tokenizer = library.Tokenizer.from_file(str(Path(place) / "there" / TOKENIZER))
    tokenizer.encode_special_tokens = True

    def rounded(rows: list[str]) -> Labels:
        ids, labels = [one.ids for one in tokenizer.encode_batch(rows)], [""] * len(rows)
        for group in by_length([len(one) for one in ids], TEXT_TOKENS):  # as lexmill does
            tokens, mask = pad([ids[i] for i in group])
            (chances,) = session.run(None, {"input_ids": tokens, "attention_mask": mask.astype(np.int64)})
            for i, best in zip(group, chances.argmax(axis=1), strict=True):
                labels[i] = ours.config["labels"][best]
        return labels

    every, right = _texts(folder), [record["label"] for record in PreparedCorpus(folder / CORPUS).records("test")]
    found = []
    for batch in BATCHES:
        some, labels = every[:texts], dict[str, Labels]()

        def mine(some: list[str] = some, batch: int = batch) -> Labels:
            return [one["label"] for rows in _calls(some, batch) for one in ours.predict(rows)]

        def theirs(some: list[str] = some, batch: int = batch) -> Labels:
            return [label for rows in _calls(some, batch) for label in rounded(rows)]

        we, they = in_turn(_timed("float32", mine, labels), _timed("int8", theirs, labels), repetitions)
        sides = ("int8, ONNX Runtime", they["rate"]), ("lexmill, float32", we["rate"])
        found.append(Comparison("int8", f"MiniLM, {len(some)} reviews, {batch} a call", UNIT, *sides))
        whole = {"float32": [one["label"] for one in ours.predict(every)], "int8": theirs(every)}
        for name, given in whole.items():
            print(f"{batch} a call, {name}: accuracy {np.mean(np.array(given) == np.array(right)):.4f} of {len(right)}")
    return found


def finetune(folder: Path, texts: int, repetitions: int) -> list[Comparison]:
    """Measure both sides, each in a process of its own, and print the accuracy of both."""
    texts *= 4
    found = in_turn(
        lambda: child("minilm", "--side", "ours", "--texts", texts, "--folder", folder),
        lambda: child("minilm", "--side", "trainer", "--texts", texts, "--folder", folder),
        repetitions,
    )
    for name, values in zip(("lexmill", "Hugging Face Trainer"), found, strict=True):
        print(f"finetune, {name}: accuracy {np.median(values['accuracy']):.4f}")
    sides = ("lexmill", found[0]["rate"]), ("Hugging Face Trainer", found[1]["rate"])
    return [Comparison("finetune", f"MiniLM, {texts:,} reviews, batch 32, float32", UNIT, *sides)]


def side_ours(folder: Path, texts: int) -> dict[str, float]:
    """Train and evaluate by the stages, in a scratch folder that shares what has been prepared."""
    original, took = engine.fit, list[float]()

    def fit(*arguments: Any, **more: Any) -> engine.FitResult:
        begun = time.process_time()
        found = original(*arguments, **more)
        took.append(time.process_time() - begun)
        return found

    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        (place / "artifacts").mkdir()
        for shared in ("conf", "artifacts/corpora", "artifacts/checkpoints", "artifacts/tokenizers"):
            (place / shared).symlink_to((folder / shared).resolve())
        (place / "params.yaml").write_text(yaml.safe_dump(_choices(texts), sort_keys=False), encoding="utf-8")
        with mock.patch.object(engine, "fit", fit):
            classifiers.run(place, "train", "minilm")
        classifiers.run(place, "evaluate", "minilm")
        accuracy = read_json(place / "metrics/evaluate/minilm.json")["test"]["accuracy"]
    return {"rate": texts / took[0], "accuracy": accuracy}


def side_trainer(folder: Path, texts: int) -> dict[str, float]:
    """Return the same of the Hugging Face Trainer, on the same texts."""
    from transformers import Trainer, TrainingArguments

    torch.set_num_threads(cores())
    chosen = params.parse(_choices(texts))
    model = chosen.models["minilm"]
    assert isinstance(model, Classifier)
    assert isinstance(model.recipe, FineTuning)
    corpus, tokenizer = PreparedCorpus(folder / CORPUS), tokenizers.load(folder / "artifacts/tokenizers/minilm")
    labels, recipe, optimizer = list(corpus.labels), model.recipe, model.recipe.optimizer
    assert isinstance(optimizer, AdamW)

    def rows(split: str) -> list[dict[str, Any]]:
        records = records_of(corpus, split)
        if split == "train":
            kept = permute(np.arange(texts), len(records), fold(chosen.data_seed, "max_train"))
            records = [records[i] for i in sorted(kept.tolist())]
        ids = encode(tokenizer, [record["text"] for record in records], model.data.max_tokens)
        numbers = [labels.index(record["label"]) for record in records]
        return [{"input_ids": one, "labels": number} for one, number in zip(ids, numbers, strict=True)]

    def collate(some: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        tokens, mask = (torch.from_numpy(array) for array in pad([one["input_ids"] for one in some]))
        return {
            "input_ids": tokens,
            "attention_mask": mask.long(),
            "labels": torch.tensor([one["labels"] for one in some]),
        }

    torch.manual_seed(chosen.training_seed)
    peer = pooled_bert(folder / "artifacts/checkpoints/minilm", labels)
    with tempfile.TemporaryDirectory() as place:
        arguments = TrainingArguments(
            output_dir=place,
            num_train_epochs=1,
            per_device_train_batch_size=recipe.batch,
            per_device_eval_batch_size=64,
            learning_rate=optimizer.lr,
            adam_beta1=optimizer.beta1,
            adam_beta2=optimizer.beta2,
            adam_epsilon=optimizer.eps,
            weight_decay=optimizer.weight_decay,
            lr_scheduler_type="linear",
            warmup_steps=0.1,
            max_grad_norm=recipe.clip_norm,
            optim="adamw_torch_fused",
            eval_strategy="epoch",
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=chosen.training_seed,
        )
        trainer = Trainer(
            peer, arguments, data_collator=collate, train_dataset=rows("train"), eval_dataset=rows("valid")
        )
        begun = time.process_time()
        trainer.train()
        took = time.process_time() - begun
        found = trainer.predict(rows("test"))
    return {"rate": texts / took, "accuracy": float((found.predictions.argmax(axis=1) == found.label_ids).mean())}


def _choices(texts: int) -> dict[str, Any]:
    """Return params.yaml of the fine-tuning: so many texts, and one validation."""
    changed = [f"models.minilm.data.max_train={texts}", "models.minilm.recipe.validate_every=1 epochs"]
    return classifiers.TABLE.params(["minilm"], changed)


def _predictor(model: Path) -> Predictor:
    config, module = model_folder.load(model)
    return Predictor("minilm", config, module, tokenizers.load(model / "tokenizer"))


def _texts(folder: Path) -> list[str]:
    return [record["text"] for record in PreparedCorpus(folder / CORPUS).records("test")]


def _calls(texts: list[str], batch: int) -> list[list[str]]:
    return [texts[start : start + batch] for start in range(0, len(texts), batch)]


def _timed(name: str, answer: Callable[[], Labels], labels: dict[str, Labels]) -> Callable[[], dict[str, float]]:
    def measure() -> dict[str, float]:
        begun = time.process_time()
        labels[name] = answer()
        return {"rate": len(labels[name]) / (time.process_time() - begun)}

    return measure


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the parts named, or all; print the machine and a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.minilm")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(".lexmill") / "classifiers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every value here")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    quieten(offline=True)
    if chosen.side:
        print(json.dumps(SIDES[chosen.side](chosen.folder, chosen.texts)))
        return
    torch.set_num_threads(cores())
    if not (chosen.folder / MODEL).is_dir():
        classifiers.main(["minilm", "--folder", str(chosen.folder)])
    here = machine()
    print(machine_text(here), file=sys.stderr)
    found = [
        one
        for part in chosen.parts or PARTS
        for one in PARTS[part](chosen.folder.resolve(), chosen.texts, chosen.repetitions)
    ]
    show(found, here, chosen.repetitions, chosen.json)


PARTS: dict[str, Callable[[Path, int, int], list[Comparison]]] = {
    "finetune": finetune,
    "classify": classify,
    "int8": int8,
}
SIDES: dict[str, Callable[[Path, int], dict[str, float]]] = {"ours": side_ours, "trainer": side_trainer}

if __name__ == "__main__":
    main()
