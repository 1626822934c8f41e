"""Pretrained encoders of every shape that `hugging_face_encoder` reads, made by `transformers`: random weights, a few
dozen words, and a tokenizer of the algorithm and the special tokens that published ones of the shape have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from lexmill.models.hugging_face_encoder.hugging_face import CLASSES

SIZES: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "initializer_range": 0.2,
}
MORE: dict[str, dict[str, Any]] = {
    "roberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "xlm-roberta": {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "distilbert": {"n_layers": 2, "hidden_dim": 32, "dim": 16, "n_heads": 2},
    "electra": {"embedding_size": 8},
    "mpnet": {"layer_norm_eps": 1e-5},
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 4,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "layer_norm_eps": 1e-7,
        "hidden_act": "gelu_new",
    },
    "modernbert": {"local_attention": 4},
}
BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
# Of each: its special tokens by role, their order, and the algorithm.
_TOKENIZERS: dict[str, tuple[tuple[str, ...], tuple[int, ...], str]] = {
    "roberta": (ROBERTA, (2, 0, 3, 1, 4), "bpe"),
    "xlm-roberta": (ROBERTA, (2, 0, 3, 1, 4), "unigram"),
    "distilbert": (BERT, (0, 1, 2, 3, 4), "wordpiece"),
    "electra": (BERT, (0, 1, 2, 3, 4), "wordpiece"),
    "mpnet": (("<pad>", "[UNK]", "<s>", "</s>", "<mask>"), (2, 0, 3, 1, 4), "wordpiece"),
    "deberta-v2": (BERT, (0, 2, 3, 1, 4), "unigram"),
    "modernbert": (BERT, (1, 2, 3, 0, 4), "bpe"),
}


def make_tiny_encoder(folder: Path, model_type: str, words: Sequence[str], head: str = "Model", **changes: Any) -> Any:
    """Write config.json, model.safetensors and a tokenizer; return the model, in eval mode."""
    import transformers

    names, order, algorithm = _TOKENIZERS[model_type]
    special = [names[i] for i in order]
    backend = _backend(algorithm, special, names[1], words)
    ids = {name: backend.token_to_id(name) for name in names}
    pad, _, first, last, _ = names
    double = f"{last} {last}" if model_type in ("roberta", "xlm-roberta", "mpnet") else last
    if model_type == "roberta":
        backend.post_processor = processors.RobertaProcessing((last, ids[last]), (first, ids[first]), True, False)
    else:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}",
            pair=f"{first} $A {double} $B {last}",
            special_tokens=[(first, ids[first]), (last, ids[last])],
        )
    stem = CLASSES[model_type][0]
    roles = {
        f"{role}_token_id": ids[name] for role, name in zip(("pad", "bos", "eos"), (pad, first, last), strict=True)
    }
    if model_type == "modernbert":
        roles |= {"cls_token_id": ids[first], "sep_token_id": ids[last]}
    sizes = SIZES if model_type != "distilbert" else {key: SIZES[key] for key in list(SIZES)[4:]}
    config = getattr(transformers, f"{stem}Config")(
        **{**sizes, **MORE[model_type], "vocab_size": backend.get_vocab_size() + 3, **roles, **changes}
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{stem}{head}")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    named = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), names, strict=True))
    if model_type != "modernbert":
        named |= {"bos_token": first, "eos_token": last}
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **named).save_pretrained(folder)
    return model


def _backend(algorithm: str, special: Sequence[str], unk: str, words: Sequence[str]) -> Tokenizer:
    """A tokenizer whose first ids are the special tokens."""
    if algorithm == "wordpiece":
        vocabulary = {word: i for i, word in enumerate([*special, *dict.fromkeys(words)])}
        backend = Tokenizer(models.WordPiece(vocabulary, unk_token=unk))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece()
    elif algorithm == "unigram":
        letters = sorted({letter for word in words for letter in word})
        pieces = [*((name, 0.0) for name in special), ("\u2581", -3.0), *((one, -5.0) for one in letters)]
        pieces += [(f"\u2581{word}", -2.0) for word in dict.fromkeys(words)]
        backend = Tokenizer(models.Unigram(pieces, special.index(unk), False))
        backend.normalizer = normalizers.Replace(" {2,}", " ")
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
        backend.decoder = decoders.Metaspace()
    else:
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        size = len(special) + len(alphabet) + 12
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False
        )
        backend.train_from_iterator([" ".join(words)] * 3, trainer)
    backend.add_special_tokens([AddedToken(name, special=True) for name in special])
    return backend
