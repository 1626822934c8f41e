"""Trains presets of one kind on one corpus by the ordinary stages, and prints their results as one table.

All are in one params.yaml of a scratch folder, one after the other; the corpus is fetched and prepared there first.
What has been evaluated in that folder is not repeated, so the same command goes on after an interruption.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lexmill.config.compose import compose
from lexmill.params.derived import derive

ROOT = Path(__file__).resolve().parents[1]
_GROUPS = ("corpora", "tokenizers", "checkpoints")


@dataclass(frozen=True)
class Table:
    """What a table is of.

    Attributes:
        name: the module's.
        presets: files of conf/model/.
        corpus, items: the kind of corpus that they read, and what it consists of.
        metrics: of the test split, each with its name in the head of the table; those that a corpus lacks are left out.
        further: the corpora that the presets name and conf/config.yaml lacks, as settings; the table is then of
            another params.yaml's corpus.
    """

    name: str
    presets: Sequence[str]
    corpus: str
    items: str
    metrics: Sequence[tuple[str, str]]
    further: Sequence[str] = ()

    def params(
        self, presets: Sequence[str], settings: Sequence[str], corpus: Path | None = None, each: str = ""
    ) -> dict[str, Any]:
        """Return params.yaml with these presets and only what they read: their own corpus, or another params.yaml's.

        A setting of `models.*` is one of every model. A corpus without entities is learned as it is (`data.bioes`).
        `each`, as KEY=VALUE,VALUE, makes of every preset one model for each value of a key below its own, with both
        names.

        Raises:
            ValueError: the other params.yaml has not just one corpus of the kind.
        """
        key, _, values = each.partition("=")
        named = {f"{preset}_{value}".strip("_"): (preset, value) for preset in presets for value in values.split(",")}
        added = [f"+model@models.{name}={preset}" for name, (preset, _) in named.items()]
        given = [one.replace("models.*.", f"models.{name}.", 1) for one in settings for name in named]
        chosen = [f"models.{name}.{key}={value}" for name, (_, value) in named.items() if key]
        choices = dict.fromkeys([*self.further, *added, *given, *chosen])
        data: dict[str, Any] = yaml.safe_load(compose(list(choices), ROOT))
        models = {name: data["models"][name] for name in named}
        if corpus:
            theirs = yaml.safe_load(corpus.read_text(encoding="utf-8"))["corpora"]
            if [entry["kind"] for entry in theirs.values()] != [self.corpus]:
                found = ", ".join(theirs) or "none"
                raise ValueError(f"{corpus}: one corpus of {self.items} is expected, got {found}")
            (name,) = data["corpora"] = theirs
            for entry in (*(entry["data"] for entry in models.values()), *data["tokenizers"].values()):
                entry["corpus"] = name
            if theirs[name]["reader"].get("scheme") == "none":
                for entry in models.values():
                    entry["data"]["bioes"] = False
        used = {str(entry["data"][key]) for entry in models.values() for key in ("corpus", "tokenizer")}
        for group in _GROUPS:
            data[group] = {name: entry for name, entry in data[group].items() if name in used}
        data = {**data, "models": models, "experiment": self.name}
        return {**data, **derive(data)}

    def lines(self, folder: Path, families: dict[str, str]) -> list[str]:
        """Return the table of the models, by the metrics in the folder."""
        tests = {name: _read(folder / f"metrics/evaluate/{name}.json")["test"] for name in families}
        shown = [(key, words) for key, words in self.metrics if all(key in test for test in tests.values())]
        head = ["preset", "family", *(words for _, words in shown), "parameters", "seconds"]
        lines = [f"| {' | '.join(head)} |", f"|---|---|{'---|' * len(shown)}---:|---:|"]
        for name, test in tests.items():
            trained = _read(folder / f"metrics/train/{name}.json")
            took = _read(folder / f".lexmill/metrics/train-{name}.json")["seconds"]
            figures = [f"{test[key]:.3f} [{test[f'{key}_low']:.3f}, {test[f'{key}_high']:.3f}]" for key, _ in shown]
            cells = [name, families[name], *figures, f"{trained['parameters']:,}", f"{took:,.1f}"]
            lines.append(f"| {' | '.join(cells)} |")
        return lines

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """Read the command line, train and evaluate what is missing, print the table."""
        parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{self.name}")
        parser.add_argument("presets", nargs="*", default=list(self.presets), metavar="PRESET")
        parser.add_argument("--corpus", type=Path, metavar="FILE", required=bool(self.further))
        parser.add_argument("--set", nargs="*", default=[], dest="settings", metavar="KEY=VALUE")
        parser.add_argument("--each", default="", metavar="KEY=VALUE,...")
        parser.add_argument("--folder", type=Path, default=Path(".lexmill") / self.name)
        chosen = parser.parse_args(arguments)
        folder: Path = chosen.folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("conf", "sources.lock.yaml"):
            if not (folder / name).exists():
                (folder / name).symlink_to(ROOT / name)
        data = self.params(chosen.presets, chosen.settings, chosen.corpus, chosen.each)
        (folder / "params.yaml").write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
        made = {"fetch": "sources", "checkpoint": "checkpoints", "prepare": "corpora", "encode": "tokens"}
        for stage, name in stages_of(data):
            if not (folder / "artifacts" / made.get(stage, "tokenizers") / name).exists():
                _run(folder, stage, name)
        for name in data["models"]:
            if not (folder / f"metrics/evaluate/{name}.json").is_file():
                _run(folder, "train", name)
                _run(folder, "evaluate", name)
        families = {name: model["family"] for name, model in data["models"].items()}
        print("\n".join(self.lines(folder, families)))


def stages_of(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the stages and their arguments that make what the models read."""
    found = [("fetch", name) for name in data["corpora"]] + [("checkpoint", name) for name in data["checkpoints"]]
    found += [("prepare", name) for name in data["corpora"]]
    found += [("tokenizer", name) for name in data["tokenizers"]]
    found += [("import_tokenizer", name) for name in data["imported_tokenizers"]]
    return found + [("encode", name) for name in data["encodings"]]


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _run(folder: Path, stage: str, name: str) -> None:
    with contextlib.chdir(folder):
        importlib.import_module(f"lexmill.stages.{stage}").main(name)
