"""The paths of each stage's results, relative to the workspace, as dvc.yaml declares them.

artifacts/ is cached by DVC; metrics/ and reports/ are small and live in git.
"""

from __future__ import annotations

from pathlib import Path

ARTIFACTS = Path("artifacts")
METRICS = Path("metrics")
REPORTS = Path("reports")
COMPARISON = METRICS / "comparison.json"  # of `lexmill compare`, no stage's
COMPARISON_PICTURES = REPORTS / "comparison"
CODE = Path("code.json")  # digests of each stage's code (code)


def source(corpus: str) -> Path:
    """The fetched files of a corpus or checkpoint, as they came (fetch)."""
    return ARTIFACTS / "sources" / corpus


def corpus(name: str) -> Path:
    """A prepared corpus: JSONL shards for each split and a manifest (prepare)."""
    return ARTIFACTS / "corpora" / name


def tokenizer(name: str) -> Path:
    return ARTIFACTS / "tokenizers" / name


def tokens(corpus_name: str, tokenizer_name: str) -> Path:
    return ARTIFACTS / "tokens" / f"{corpus_name}-{tokenizer_name}"


def checkpoint(name: str) -> Path:
    """A pretrained model in Hugging Face format (checkpoint)."""
    return ARTIFACTS / "checkpoints" / name


def model(name: str) -> Path:
    return ARTIFACTS / "models" / name


def predictions(name: str) -> Path:
    """One row an item, as JSON lines (evaluate, baseline)."""
    return ARTIFACTS / "predictions" / name


def package(name: str) -> Path:
    return ARTIFACTS / "packages" / name


def metrics(stage: str, name: str) -> Path:
    return METRICS / stage / f"{name}.json"


def plots(name: str) -> Path:
    """A folder of PNG pictures of a model (evaluate)."""
    return REPORTS / "plots" / name


def curve(name: str) -> Path:
    """A training curve: CSV with the columns step, tokens, train_loss, valid_loss, lr, ..."""
    return REPORTS / "curves" / f"{name}.csv"


def samples(name: str) -> Path:
    """Sample outputs of a model, as JSON."""
    return REPORTS / "samples" / f"{name}.json"
