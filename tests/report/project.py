"""A project in a folder as its stages leave it: the real params.yaml and dvc.yaml, made metrics, curves and samples."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import yaml

from lexmill import params
from lexmill.base import layout, storage
from lexmill.params.derived import derive
from lexmill.report.page import render
from lexmill.training.curve import write_csv

ROOT = Path(__file__).parents[2]


class Project:
    """A workspace under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("params.yaml", "dvc.yaml"):
            shutil.copy(ROOT / name, root / name)
        models = yaml.safe_load((root / "params.yaml").read_text(encoding="utf-8"))["models"]
        del models["lstm"]  # one of each kind is measured here
        self.change_params(models=models)

    @property
    def page(self) -> str:
        return render(params.load(self.root / "params.yaml"), self.root)

    def json(self, path: Path, value: Any) -> None:
        storage.write_json(self.root / path, value)

    def change_params(self, **values: Any) -> None:
        """Replace top-level keys of params.yaml, and what follows from the models; None removes one."""
        path = self.root / "params.yaml"
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        for key, value in values.items():
            if value is None:
                del data[key]
            else:
                data[key] = value
        data |= derive(data)
        path.write_text(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), encoding="utf-8")

    def everything(self) -> Project:
        """All that the demo leaves."""
        self.corpora()
        self.language_model()
        self.classifier()
        self.translator()
        return self

    def corpora(self) -> None:
        for name, raw, removed in (
            ("shakespeare", 42, {"min_characters": 0, "exact_duplicates": 0}),
            ("movie_reviews", 10605, {"neutral_rating": 533, "exact_duplicates": 2}),
            ("home_assistant", 63034, {"min_words": 30284, "drop_newlines": 577, "exact_duplicates": 8151}),
        ):
            used = raw - sum(removed.values())
            parts = {"test": used // 20, "valid": used // 20}
            records = {**parts, "train": used - sum(parts.values())}
            counts = {
                key: {split: n * each for split, n in records.items()}
                for key, each in (("records", 1), ("groups", 1), ("words", 19), ("bytes", 112))
            }
            overlap = {"train_in_valid_or_test": 0, "valid_in_test": 0}
            self.json(
                layout.metrics("prepare", name),
                {"raw": raw, "used": used, "removed": removed, "overlap": overlap, **counts},
            )
            examples = ["Milky Way ||| Milchstraße", "Not charging ||| Wird nicht geladen"]
            filters = [
                {"name": key, "removed": n, "examples": examples if n else []} for key, n in reversed(removed.items())
            ]
            self.json(layout.samples(f"prepare-{name}"), {"filters": filters})
        for name, corpus in (("shakespeare_bpe", "shakespeare"), ("home_assistant_bpe", "home_assistant")):
            fit = {"bytes_per_token": 3.6042633721345427, "tokens_per_word": 1.9474306376468953, "tokens": 28006}
            metrics = {"vocab_size": 2048, "unknown": 0, "round_trip_failures": 0, "valid": fit}
            self.json(layout.metrics("tokenizer", name), metrics)
            self.json(layout.metrics("encode", f"{corpus}-{name}"), {"train": {"tokens": 1744059}, "vocab_size": 2048})

    def language_model(self, bits: float = 2.31) -> None:
        self.metrics(
            "gpt",
            {"bits_per_byte": bits, "perplexity": 66.2, "nats_per_token": 4.19},
            {
                "unigram": {"bits_per_byte": 3.4, "perplexity": 478.0},
                "byte_trigram": {"bits_per_byte": 2.91, "perplexity": 7.5},
                "token_trigram": {"bits_per_byte": 2.08, "perplexity": 43.8},
            },
            "language_model-shakespeare-shakespeare_bpe",
        )
        self._training("gpt", 7.6, 4.05)
        text = "Good morrow, gentle cousin.\n\nFIRST LORD.\nWhat, is the king within? <b>I prithee</b> & go.\n" * 4
        self.json(
            layout.samples("gpt"),
            {"samples": [{"prompt": prompt, "text": text} for prompt in ("ROMEO.\n", "To be,")], "temperature": 0.8},
        )
        self.json(
            layout.samples("baseline-language_model-shakespeare-shakespeare_bpe"),
            {"samples": [{"prompt": "To be,", "text": " or the king of gentle"}]},
        )

    def classifier(self) -> None:
        self.metrics(
            "sentiment",
            {"accuracy": 0.842, "macro_f1": 0.841, "loss": 0.37},
            {
                "majority": {"accuracy": 0.51, "macro_f1": 0.338},
                "tfidf_logistic_regression": {"accuracy": 0.801, "macro_f1": 0.8},
            },
            "classifier-movie_reviews",
            confusion={
                "negative as negative": 447,
                "negative as positive": 82,
                "positive as negative": 89,
                "positive as positive": 463,
            },
            per_class={
                "negative": {"items": 529, "precision": 0.834, "recall": 0.845, "f1": 0.839, "roc_auc": 0.9173},
                "positive": {"items": 552, "precision": 0.85, "recall": 0.8387, "f1": 0.844},
            },
        )
        self._training("sentiment", 0.69, 0.36)
        sample = {"text": "A deeply felt, slyly funny film.", "label": "positive", "predicted": "positive"}
        wrong = {**sample, "text": "Not even the cast can save it.", "label": "negative"}
        samples = [{**sample, "score": 0.97, "loss": 0.03}, {**wrong, "score": 0.81, "loss": 1.6}]
        self.json(layout.samples("sentiment"), {"samples": samples * 6, "worst": samples})

    def translator(self) -> None:
        self.metrics(
            "en_de",
            {"bleu": 24.6, "chrf": 51.3, "ter": 61.0},
            {"copy_source": {"bleu": 14.1, "chrf": 33.9}},
            "translator-home_assistant",
        )
        self._training("en_de", 7.9, 2.9)
        pair = {"source": "Failed to connect to the device.", "reference": "Verbindung zum Gerät fehlgeschlagen."}
        samples = [{**pair, "hypothesis": f"Verbindung mit dem Gerät {i} fehlgeschlagen."} for i in range(20)]
        self.json(layout.samples("en_de"), {"samples": samples})

    def metrics(
        self,
        name: str,
        metrics: dict[str, float],
        baselines: dict[str, dict[str, float]],
        beside: str,
        **more: Any,
    ) -> None:
        test = {**with_intervals(metrics), "items": 1081, "interval_unit": "component"}
        self.json(layout.metrics("evaluate", name), {"test": test, **more})
        self.json(layout.metrics("baseline", beside), {label: with_intervals(f) for label, f in baselines.items()})

    def _training(self, name: str, start: float, end: float) -> None:
        rows: list[dict[str, float]] = []
        for step in range(5, 505, 5):
            loss = end + (start - end) * math.exp(-step / 60)
            wave = 0.04 * math.sin(step) * (start - end)
            row: dict[str, float] = {"step": step, "tokens": step * 4096, "train_loss": loss * 0.96 + wave, "lr": 0.002}
            if step % 50 == 0:
                row["valid_loss"] = loss
            rows.append(row)
        write_csv(self.root / layout.curve(name), rows)
        trained = {"steps": 500, "best_step": 450, "parameters": 2_190_000, "tokens": 2_048_000, "valid_loss": end}
        self.json(layout.metrics("train", name), trained)


def with_intervals(metrics: dict[str, float], width: float = 0.02) -> dict[str, float]:
    """The metrics, each with an interval of +-`width` of it."""
    found = dict(metrics)
    for name, value in metrics.items():
        found[f"{name}_low"], found[f"{name}_high"] = value * (1 - width), value * (1 + width)
    return found
