"""A pretrained encoder in Hugging Face format that is made in a moment: random weights, a few dozen words."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "initializer_range": 0.2,
}


def make_tiny_bert(folder: Path, words: Sequence[str], **shape: Any) -> None:
    """Write config.json, model.safetensors and tokenizer.json (with fixed padding, as some published ones have)."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel

    vocabulary = {word: i for i, word in enumerate([*SPECIALS, *dict.fromkeys(words)])}
    torch.manual_seed(0)
    model = BertModel(BertConfig(**{**SIZES, "vocab_size": len(vocabulary), **shape}))
    model.save_pretrained(folder)
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.add_special_tokens(SPECIALS)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    backend.enable_padding(length=20, pad_token="[PAD]")
    backend.enable_truncation(20)
    backend.save(str(folder / "tokenizer.json"))
