"""Tiny pretrained models in Hugging Face format, made by `transformers` itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

END = "<|endoftext|>"
TEXTS = [
    "The mill turns slowly in the evening wind, and the miller's daughter counts the sacks.",
    "  Two spaces,\n\na new paragraph; 1999 was 7% better than 1998!",
    "Grüße aus Köln, ça va? The water turns the wheel, the wheel turns the stone.",
]


def gpt2_tokenizer(size: int = 320) -> Tokenizer:
    """Byte-level BPE as GPT-2 has it, its end token last."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=size - 1, initial_alphabet=alphabet))
    backend.add_special_tokens([AddedToken(END, special=True)])
    return backend


def llama_tokenizer() -> Tokenizer:
    """SentencePiece's BPE as Llama 2 has it: marks for spaces, bytes for what is unknown, a template with <s>."""
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    letters = sorted({c for text in TEXTS for c in text.replace(" ", "▁") if c.isascii() or c == "▁"})
    vocabulary = {piece: i for i, piece in enumerate([*special, *letters, "th", "▁th", "▁the"])}
    merges = [("t", "h"), ("▁", "th"), ("▁th", "e")]
    backend = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special[:3]])
    return backend


def save_tokenizer(backend: Tokenizer, folder: Path, **special: str) -> None:
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)


def save_gpt2(folder: Path, *, seed: int = 0, pad: int = 0, **changes: Any) -> Any:
    """A GPT2LMHeadModel of a few thousand weights with its tokenizer; `pad` more rows than the tokenizer needs."""
    from transformers import GPT2Config, GPT2LMHeadModel

    backend = gpt2_tokenizer()
    size = backend.get_vocab_size()
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 32} | changes
    config = GPT2Config(
        vocab_size=size + pad,
        bos_token_id=size - 1,
        eos_token_id=size - 1,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **shape,
    )
    torch.manual_seed(seed)
    model = _stirred(GPT2LMHeadModel(config).eval())
    model.save_pretrained(folder)
    save_tokenizer(backend, folder, eos_token=END, bos_token=END, unk_token=END)
    return model


def save_llama(folder: Path, *, seed: int = 0, max_shard_size: str = "1GB", **changes: Any) -> Any:
    """A LlamaForCausalLM with grouped queries and a SentencePiece-like tokenizer."""
    from transformers import LlamaConfig, LlamaForCausalLM

    backend = llama_tokenizer()
    shape = {
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
    } | changes
    config = LlamaConfig(vocab_size=backend.get_vocab_size(), bos_token_id=1, eos_token_id=2, **shape)
    torch.manual_seed(seed)
    model = _stirred(LlamaForCausalLM(config).eval())
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    save_tokenizer(backend, folder, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    return model


@torch.no_grad()
def _stirred(model: Any) -> Any:
    """Every weight away from its fresh value: a bias of zero or a norm of one would hide a mix-up."""
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter) * 0.2)
    return model
