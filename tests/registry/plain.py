"""params.yaml of three tiny models, as plain data."""

from typing import Any

_ADAMW = {"name": "adamw", "lr": 0.001}
_SOURCE = {"kind": "file", "paths": ["data.txt"]}


def plain_params() -> dict[str, Any]:
    """params.yaml of a language model, a classifier and a translator."""
    cosine = {"name": "cosine", "warmup": "1 steps"}
    return {
        "experiment": "tiny",
        "data_seed": 1,
        "training_seed": 2,
        "corpora": {
            "plays": {"kind": "text", "source": _SOURCE, "reader": {"format": "text"}, "unit": "play"},
            "mail": {
                "kind": "labelled",
                "source": _SOURCE,
                "reader": {"format": "csv", "text": "body", "label": "queue"},
                "licence": "ours | all",
            },
            "pairs": {
                "kind": "parallel",
                "source": _SOURCE,
                "reader": {"format": "tsv", "source": "en", "target": "de"},
                "languages": ["en", "de"],
            },
        },
        "tokenizers": {"bytes": {"corpus": "plays", "kind": "byte"}},
        "encodings": {
            "plays": {"corpus": "plays", "tokenizer": "bytes"},
            "pairs": {"corpus": "pairs", "tokenizer": "bytes"},
        },
        "checkpoints": {"tiny_bert": {"source": _SOURCE, "licence": "MIT"}},
        "language_models": {
            "gpt": {
                "family": "gpt",
                "corpus": "plays",
                "train": "plays",
                "init_from": "conf/initialization/gpt2.yaml",
                "tokenizer": "bytes",
                "shape": {"n_layer": 1, "n_head": 2, "d_model": 16, "context": 32},
                "optimizer": _ADAMW,
                "schedule": cosine,
                "length": "10 steps",
                "batch_tokens": 64,
            }
        },
        "classifiers": {
            "tickets": {
                "checkpoint": "tiny_bert",
                "corpus": "mail",
                "optimizer": _ADAMW,
                "epochs": 1,
                "batch_size": 4,
                "max_tokens": 16,
            }
        },
        "translators": {
            "en_de": {
                "family": "transformer",
                "corpus": "pairs",
                "tokenizer": "bytes",
                "shape": {
                    "encoder_layers": 1,
                    "decoder_layers": 1,
                    "n_head": 2,
                    "d_model": 16,
                    "d_ffn": 32,
                    "max_positions": 64,
                },
                "optimizer": _ADAMW,
                "schedule": cosine,
                "length": "10 steps",
                "batch_tokens": 64,
                "beam": {"beam_size": 2, "max_length_ratio": 1.0, "max_length_extra": 4},
            }
        },
        "baselines": {"language_model": {"plays": {"corpus": "plays", "tokenizer": "bytes"}}},
        "evaluation": {"bootstrap_samples": 200},
        "promotion": {"tests_per_year": 1},
    }
