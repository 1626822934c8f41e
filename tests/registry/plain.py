"""params.yaml of three tiny models, as plain data."""

from typing import Any

from tests.support.small_project import whole

_ADAMW = {"name": "adamw", "lr": 0.001}
_SOURCE = {"kind": "file", "paths": ["data.txt"]}


BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}


def _recipe() -> dict[str, Any]:
    return {
        "method": "gradient",
        "optimizer": _ADAMW,
        "schedule": {"name": "cosine", "warmup": "1 steps"},
        "length": "10 steps",
        "batch": 64,
    }


def plain_params() -> dict[str, Any]:
    """params.yaml of a language model, a classifier and a translator, with what follows from them."""
    chosen = {
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
        "checkpoints": {"tiny_bert": {"source": _SOURCE, "licence": "MIT"}},
        "models": {
            "gpt": {
                "kind": "language_model",
                "family": "gpt",
                "shape": {"n_layer": 1, "n_head": 2, "d_model": 16, "context": 32},
                "data": {"corpus": "plays", "train": "plays", "tokenizer": "bytes"},
                "start": "conf/initialization/gpt2.yaml",
                "recipe": _recipe(),
                "evaluate": {"prompts": [""], "ngrams": {}},
            },
            "tickets": {
                "kind": "classifier",
                "family": "bert",
                "shape": BERT,
                "data": {"corpus": "mail", "tokenizer": "tiny_bert", "max_tokens": 16},
                "start": "artifacts/checkpoints/tiny_bert",
                "recipe": _recipe() | {"length": "1 epochs", "batch": 4},
                "evaluate": {},
            },
            "en_de": {
                "kind": "translator",
                "family": "transformer",
                "shape": {
                    "encoder_layers": 1,
                    "decoder_layers": 1,
                    "n_head": 2,
                    "d_model": 16,
                    "d_ffn": 32,
                    "max_positions": 64,
                },
                "data": {"corpus": "pairs", "tokenizer": "bytes"},
                "start": "conf/initialization/transformer.yaml",
                "recipe": _recipe(),
                "evaluate": {"beam": {"beam_size": 2, "max_length_ratio": 1.0, "max_length_extra": 4}},
            },
        },
        "evaluation": {"bootstrap_samples": 200},
        "promotion": {"tests_per_year": 1},
    }
    return whole(chosen)
