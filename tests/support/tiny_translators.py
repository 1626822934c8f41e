"""Pretrained translators of every shape that `hugging_face_translator` reads, made by `transformers`: random weights,
two dozen words, and tokenizer files as published ones of the shape have them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from torch import nn

MARK = "\u2581"
BART: dict[str, Any] = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "d_model": 16,
    "max_position_embeddings": 40,
    "scale_embedding": True,
}
T5: dict[str, Any] = {
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 2,
    "d_model": 16,
    "d_kv": 6,
    "d_ff": 24,
    "n_positions": 40,
    "decoder_start_token_id": 0,
}
# Of each: its class, the special tokens in order, and its sizes.
KINDS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "marian": ("MarianMT", (), {**BART, "activation_function": "swish"}),
    "nllb": ("M2M100", ("<s>", "<pad>", "</s>", "<unk>"), BART),
    "t5": ("T5", ("<pad>", "</s>", "<unk>"), {**T5, "feed_forward_proj": "relu"}),
    "flan": ("T5", ("<pad>", "</s>", "<unk>"), {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "mt5": ("MT5", ("<pad>", "</s>", "<unk>"), {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
}
LANGUAGES = ("eng_Latn", "deu_Latn")
# What an entry of params.yaml adds to the shape of each.
PREFIXES = {
    "nllb": {"source_prefix": LANGUAGES[0], "target_prefix": LANGUAGES[1]},
    "t5": {"source_prefix": "translate English to German: "},
}


def make_tiny_translator(
    folder: Path,
    kind: str,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    rows: int = 3,
    steps: int = 0,
    **changes: Any,
) -> Any:
    """Write config.json, model.safetensors and a tokenizer; return the model, in eval mode.

    Args:
        sources, targets: words of both languages.
        rows: of the embedding without an entry of the tokenizer.
        steps: of a training on copies.
    """
    import transformers

    stem, special, sizes = KINDS[kind]
    folder.mkdir(parents=True)
    if kind == "marian":
        size = _write_marian(folder, sources, targets)
        ids = {
            "pad_token_id": size - 1,
            "decoder_start_token_id": size - 1,
            "eos_token_id": 0,
            "forced_eos_token_id": 0,
        }
    else:
        backend = _backend(special, [*sources, *targets, "translate", "English", "to", "German"], kind)
        size = backend.get_vocab_size() + rows
        ids = {f"{role}_token_id": special.index(token) for role, token in (("pad", "<pad>"), ("eos", "</s>"))}
        if kind == "nllb":
            ids |= {"bos_token_id": 0, "decoder_start_token_id": ids["eos_token_id"]}
        named = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
        transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **named).save_pretrained(folder)
    config = getattr(transformers, f"{stem.removesuffix('MT')}Config")(
        **{**sizes, **ids, "vocab_size": size, **changes}
    )
    torch.manual_seed(0)
    name = f"{stem}Model" if kind == "marian" else f"{stem}ForConditionalGeneration"
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        if kind in ("flan", "mt5"):
            model.lm_head.weight = nn.Parameter(torch.randn(size, 16) * 0.5)
        for path, parameter in model.named_parameters():
            if "embed_positions" not in path:
                parameter.add_(torch.randn_like(parameter) * 0.2)
        if kind == "marian":
            model.final_logits_bias.copy_(torch.randn(1, size))
    _learn(model, ids["eos_token_id"], ids["pad_token_id"], steps)
    model.save_pretrained(folder)
    if kind in ("flan", "mt5"):  # as published: transformers writes true whatever the weights are
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"tie_word_embeddings": False}), encoding="utf-8")
    return model


@torch.enable_grad()
def _learn(model: Any, eos: int, pad: int, steps: int) -> None:
    """Let the model learn to copy, so that it writes what hangs on its source, and ends."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        lengths = torch.randint(1, 6, (32, 1))
        source = torch.randint(5, 24, (32, 6)).masked_fill(torch.arange(6) > lengths, pad)
        source = source.scatter(1, lengths, eos)
        labels = source.masked_fill(source == pad, -100)
        loss = model(input_ids=source, attention_mask=(source != pad).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _backend(special: Sequence[str], words: Sequence[str], kind: str) -> Tokenizer:
    """A Unigram tokenizer whose first ids are the special tokens; an NLLB's last ones name languages."""
    after = [*LANGUAGES, "<mask>"] if kind == "nllb" else []
    backend = Tokenizer(
        models.Unigram(
            [*((one, 0.0) for one in special), *pieces(words), *((one, 0.0) for one in after)],
            special.index("<unk>"),
            False,
        )
    )
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    backend.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in (*special, *after)])
    first = [LANGUAGES[0]] if kind == "nllb" else []
    backend.post_processor = processors.TemplateProcessing(
        single=[*first, "$A", "</s>"], special_tokens=[(one, backend.token_to_id(one)) for one in (*first, "</s>")]
    )
    return backend


def pieces(words: Sequence[str]) -> list[tuple[str, float]]:
    """Pieces with log-probabilities: words, and the letters in them."""
    letters = sorted({letter for word in words for letter in word} | set(":</>"))
    return [(MARK, -3.0), *((one, -5.0) for one in letters), *((f"{MARK}{one}", -2.0) for one in dict.fromkeys(words))]


def _write_marian(folder: Path, sources: Sequence[str], targets: Sequence[str]) -> int:
    """Write vocab.json and a SentencePiece model of each side; return the number of entries."""
    from transformers.convert_slow_tokenizer import import_protobuf

    entries = ["</s>", "<unk>"]
    for name, words in (("source.spm", sources), ("target.spm", targets)):
        model = import_protobuf().ModelProto()
        model.trainer_spec.model_type = 1
        model.normalizer_spec.add_dummy_prefix = model.normalizer_spec.remove_extra_whitespaces = True
        for piece, score in [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *pieces(words)]:
            model.pieces.add(piece=piece, score=score, type={"<unk>": 2, "<s>": 3, "</s>": 3}.get(piece, 1))
        (folder / name).write_bytes(model.SerializeToString())
        entries += [piece for piece, _ in pieces(words)]
    entries = list(dict.fromkeys([*entries, ">>deu<<", "<pad>"]))
    (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(entries)}), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    return len(entries)
