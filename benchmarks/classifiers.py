"""Every classifier of conf/model/ on the default reviews, or on another corpus: one table.

    python -m benchmarks.classifiers [PRESET...] [--corpus FILE] [--set KEY=VALUE ...] [--folder DIR]

Each preset is trained and evaluated by the ordinary stages, one after the other, in a scratch folder whose params.yaml
has all of them; the corpus is fetched and prepared there first. What has been evaluated in that folder is not repeated,
so the same command goes on after an interruption. `--corpus` names the params.yaml of another workspace, as
`lexmill init classify` writes it, whose corpus of labelled texts is then the one that all presets and their tokenizers
read. `--set` changes keys of params.yaml.

The table has the accuracy and the macro F1 on the test split with their intervals, the parameters, and the seconds of
the train stage without its start.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from lexmill.config.compose import compose
from lexmill.params.derived import derive

ROOT = Path(__file__).resolve().parents[1]
PRESETS = (
    "naive_bayes",
    "naive_bayes_bernoulli",
    "perceptron",
    "averaged_perceptron",
    "linear_svm",
    "logistic_regression",
    "text_mlp",
    "text_cnn",
    "pixel_cnn",
    "elman_classifier",
    "gru_classifier",
    "lstm_classifier",
    "birnn_classifier",
    "llama_classifier",
    "reservoir_probe",
    "linformer_tiny",
    "modern_tiny_reviews",
    "minilm_neighbours",
    "minilm_probe",
    "minilm",
)
_GROUPS = ("corpora", "tokenizers", "checkpoints")


def params_of(presets: Sequence[str], settings: Sequence[str], corpus: Path | None = None) -> dict[str, Any]:
    """Return params.yaml with these presets and only what they read: their own corpus, or that of another params.yaml.

    Raises:
        ValueError: the other params.yaml has not just one corpus of labelled texts.
    """
    added = [f"+model@models.{name}={name}" for name in presets]
    data: dict[str, Any] = yaml.safe_load(compose([*added, *settings], ROOT))
    models = {name: data["models"][name] for name in presets}
    if corpus:
        theirs = yaml.safe_load(corpus.read_text(encoding="utf-8"))["corpora"]
        if [entry["kind"] for entry in theirs.values()] != ["labelled"]:
            raise ValueError(f"{corpus}: one corpus of labelled texts is expected, got {', '.join(theirs) or 'none'}")
        (name,) = data["corpora"] = theirs
        for entry in (*(entry["data"] for entry in models.values()), *data["tokenizers"].values()):
            entry["corpus"] = name
    used = {str(entry["data"][key]) for entry in models.values() for key in ("corpus", "tokenizer")}
    for group in _GROUPS:
        data[group] = {name: entry for name, entry in data[group].items() if name in used}
    data = {**data, "models": models, "experiment": "classifiers"}
    return {**data, **derive(data)}


def stages_of(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the stages and their arguments that make what the models read."""
    found = [("fetch", name) for name in data["corpora"]] + [("checkpoint", name) for name in data["checkpoints"]]
    found += [("prepare", name) for name in data["corpora"]]
    found += [("tokenizer", name) for name in data["tokenizers"]]
    return found + [("import_tokenizer", name) for name in data["imported_tokenizers"]]


def run(folder: Path, stage: str, name: str) -> None:
    """Run a stage in the folder."""
    with contextlib.chdir(folder):
        importlib.import_module(f"lexmill.stages.{stage}").main(name)


def row(folder: Path, name: str, family: str) -> str:
    """Return a model's line of the table, from its metrics."""
    test = json.loads((folder / f"metrics/evaluate/{name}.json").read_text(encoding="utf-8"))["test"]
    trained = json.loads((folder / f"metrics/train/{name}.json").read_text(encoding="utf-8"))
    took = json.loads((folder / f".lexmill/metrics/train-{name}.json").read_text(encoding="utf-8"))["seconds"]
    shown = [
        f"{test[key]:.3f} [{test[f'{key}_low']:.3f}, {test[f'{key}_high']:.3f}]" for key in ("accuracy", "macro_f1")
    ]
    return f"| {name} | {family} | {' | '.join(shown)} | {trained['parameters']:,} | {took:,.1f} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.classifiers")
    parser.add_argument("presets", nargs="*", default=list(PRESETS), metavar="PRESET")
    parser.add_argument("--corpus", type=Path, metavar="FILE")
    parser.add_argument("--set", nargs="*", default=[], dest="settings", metavar="KEY=VALUE")
    parser.add_argument("--folder", type=Path, default=Path(".lexmill") / "classifiers")
    chosen = parser.parse_args(arguments)
    folder: Path = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("conf", "sources.lock.yaml"):
        if not (folder / name).exists():
            (folder / name).symlink_to(ROOT / name)
    data = params_of(chosen.presets, chosen.settings, chosen.corpus)
    (folder / "params.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    made = {"fetch": "sources", "checkpoint": "checkpoints", "prepare": "corpora"}
    for stage, name in stages_of(data):
        if not (folder / "artifacts" / made.get(stage, "tokenizers") / name).exists():
            run(folder, stage, name)
    lines = ["| preset | family | accuracy | macro F1 | parameters | seconds |", "|---|---|---|---|---:|---:|"]
    for name in chosen.presets:
        if not (folder / f"metrics/evaluate/{name}.json").is_file():
            run(folder, "train", name)
            run(folder, "evaluate", name)
        lines.append(row(folder, name, data["models"][name]["family"]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
