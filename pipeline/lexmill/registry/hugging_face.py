"""Export a model as a folder for `transformers`, which gives the same ids and logits.

    <folder>/
        config.json, model.safetensors
        generation_config.json    of a model that writes text
        tokenizer.json, tokenizer_config.json, special_tokens_map.json
        README.md                 the model card, with the lines that load it
        generator/                of an encoder that finds replaced tokens: config.json, model.safetensors

`lexmill` reads such a folder as a checkpoint with a `file` source.

A chat model's tokenizer has its chat template; there, unlike here, a text may spell the special tokens.

A reward model is exported for sequence classification, with one label; one that points at spans for question answering;
an encoder with the heads that it was pre-trained with; one that gives a text a vector as a plain encoder.

An encoder with labels is exported with its head on each token: the head is linear, so the mean of the logits over the
tokens is the head of the mean of the hidden states. The encoders of `transformers` for whole texts pool in another way.
A causal network with labels is exported for sequence classification, which reads the last token before the padding.

A model that tags words is exported with its head on each token; a word's tag is that of its first piece.
`transformers` has neither a chain over tags nor the mean of a word's pieces: models with one of them are refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import kinds, tokenizers
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.models import folder as model_folder
from lexmill.registry.export_checks import new_or_empty, refuse_tags
from lexmill.registry.hugging_face_targets import GENERATOR, Target, card_head, target_of
from lexmill.registry.package import DESCRIPTION
from lexmill.tokenizers.saving import add_padding, save_adding

if TYPE_CHECKING:
    from torch import Tensor

    from lexmill.models.declaration import Role

CARD = "README.md"


def export(model: Path, target: Path, name: str, card: str = "", languages: Sequence[str] = ()) -> None:
    """Write a model folder in Hugging Face format.

    Args:
        model: a model folder of lexmill.
        target: a new or empty folder.
        name: of the model, for the card.
        card: Markdown to append to the card's first part.
        languages: BCP 47 tags of its text, for the card's metadata.

    Raises:
        UserError: `transformers` has no such network or head, or the target is not empty.
    """
    from safetensors.torch import save_file
    from torch.nn import functional

    from lexmill.models import family, pretrained

    config = model_folder.read_config(model)
    what = kinds.find(config["kind"]).one
    declared = family(config["family"])
    if not declared.model_types:
        of = f"of family '{config['family']}', which has no counterpart in transformers"
        raise UserError(f"'{name}' is {what} {of}")
    new_or_empty(target)
    refuse_tags(config, f"'{name}' is {what}")
    _refuse_heads(config, declared.role, f"'{name}' is {what}")
    shape, tokenizer = config["shape"], tokenizers.load(model / model_folder.TOKENIZER)
    there, mapping = target_of(config, declared.role, tokenizer), pretrained.mapping(config["family"])
    ids, size, state = _ids(tokenizer, declared.role), config["vocab_size"], pretrained.read(model).state
    # There a text ends before its padding: with end tokens as padding, its own would not be read.
    pads = there.scores and tokenizer.pad_id == tokenizer.eos_id
    if pads:
        ids["pad_token_id"] = tokenizer.vocab_size
        rows, size = size, max(size, tokenizer.vocab_size + 1)
        state["embedding.weight"] = functional.pad(state["embedding.weight"], (0, 0, 0, size - rows))
    written = mapping.write_config(shape, size)
    # Some encoders count positions by their padding token, which is a size of theirs.
    pad = {"pad_token_id": written.get("pad_token_id", ids["pad_token_id"])}
    described = {**written, **ids, **pad, "dtype": "float32"}
    tensors: dict[str, Tensor] = mapping.write_tensors(shape, state)
    whole = pretrained.tensors(model)
    if labels := config.get("labels", config.get("tags")):
        described |= _labels(labels)
        for key in _PROBLEMS.keys() & config.keys():
            described["problem_type"] = _PROBLEMS[key]
        if declared.role == "encoder":
            tensors |= mapping.write_head(shape, whole["head.weight"], whole["head.bias"])
    if config.get("spans"):
        described["architectures"] = [mapping.span_model(shape)]
        tensors |= mapping.write_span_head(shape, whole["head.weight"], whole["head.bias"])
    below: dict[str, tuple[dict[str, Any], dict[str, Tensor]]] = {}  # further models, by their folders
    if "pretraining" in config and config["pretraining"]["objective"] == "replaced":
        found, small = mapping.write_replaced(shape, config["pretraining"]["generator"], whole)
        below[GENERATOR] = (described | small[0], small[1])
        described, tensors = described | found[0], found[1]
    elif "pretraining" in config:
        name_there, tensors = mapping.write_pretraining(shape, whole)
        described |= {"architectures": [name_there], "tie_word_embeddings": True}
    if config.get("reward"):
        described |= _labels(["reward"])
    if there.scores:
        name_there, tensors = mapping.write_classifier(tensors, whole["head.weight"], whole.get("head.bias"))
        described["architectures"] = [name_there]
    with storage.new_folder(target) as folder:
        for inside, (sizes, weights) in {"": (described, tensors), **below}.items():
            (folder / inside).mkdir(exist_ok=True)
            save_file(weights, folder / inside / pretrained.WEIGHTS, metadata={"format": "pt"})
            storage.write_json(folder / inside / pretrained.CONFIG, sizes)
        if declared.role != "encoder" and not there.scores:
            more = {"max_length": shape["max_positions"]} if declared.role == "encoder_decoder" else {}
            if of_target := config.get("begins", {}).get("target"):
                more["forced_bos_token_id"] = of_target[0]
            storage.write_json(folder / "generation_config.json", ids | more)
        _write_tokenizer(model / model_folder.TOKENIZER, folder, there, config, described)
        if pads:
            add_padding(folder)
        storage.write_text(
            folder / CARD,
            card_head(there, tokenizer.eos_id, languages)
            + (card or f"# {name}\n\n{what[0].upper()}{what[1:]} made with lexmill.\n"),
        )


# What a head on whole texts reads there, by role.
_POOLED = {
    "encoder": ("mean", "the mean of a text's states"),
    "causal": ("last", "the state of a text's last token"),
}
_PROBLEMS = {"thresholds": "multi_label_classification", "levels": "regression"}


def _refuse_heads(config: Mapping[str, Any], role: Role, this: str) -> None:
    """Raise `UserError` for a head that transformers cannot compute; `this` begins the sentence."""
    if "mixture" in config:
        why = "n-grams beside the network"
    elif config.get("head") == "crf":
        why = "a chain over its tags (recipe.head: crf)"
    elif config.get("pieces") == "mean":
        why = "words that are the mean of their pieces (data.pieces: mean)"
    elif "neighbours" in config:
        why = "the vectors of its neighbours in place of a matrix"
    elif "labels" in config and (pooling := config.get("pooling", "mean")) != _POOLED[role][0]:
        why = f"a head that does not read {_POOLED[role][1]} (recipe.pooling: {pooling})"
    else:
        return
    raise UserError(f"{this} with {why}, which transformers does not have; it can be used here and served")


def _ids(tokenizer: tokenizers.Tokenizer, role: Role) -> dict[str, int]:
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id, "pad_token_id": tokenizer.pad_id}
    return ids | ({"decoder_start_token_id": tokenizer.bos_id} if role == "encoder_decoder" else {})


def _labels(labels: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    numbered = {label: i for i, label in enumerate(labels)}
    return {"id2label": {str(i): label for label, i in numbered.items()}, "label2id": numbered}


def _write_tokenizer(
    source: Path, folder: Path, there: Target, config: Mapping[str, Any], described: Mapping[str, Any]
) -> None:
    """Copy a tokenizer with what belongs to the model: tokens added to a text, where texts are cut, a chat template."""
    for path in sorted(source.iterdir()):
        shutil.copyfile(path, folder / path.name)
    tokenizer = tokenizers.load(source)
    if there.ends:
        begins = [tokenizer.bos_id] if there.begins else config.get("begins", {}).get("source", ())
        save_adding(tokenizer, folder / "tokenizer.json", begins=begins)
    more: dict[str, Any] = {}
    if "max_tokens" in config:
        more["model_max_length"] = config["max_tokens"]
    pairs = config.get("spans") or "separator" in config
    if pairs and described.get("type_vocab_size", 1) > 1 and len(tokenizer.between) == 1:
        more["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    if "chat_template" in config:
        more |= {"chat_template": config["chat_template"], "split_special_tokens": False}
    if "pretraining" in config:
        more["split_special_tokens"] = False
    if more:
        path = folder / "tokenizer_config.json"
        storage.write_json(path, {**storage.read_json(path), **more})


def described(package: Path, model: Path) -> tuple[str, list[str]]:
    """Return the card and the languages that a package states if it holds this very model, else "" and none."""
    weights: list[Any] = [folder / model_folder.WEIGHTS for folder in (package / "model", model)]
    card = package / "card.md"
    if not card.is_file() or not all(path.is_file() for path in weights):
        return "", []
    if storage.sha256_file(weights[0]) != storage.sha256_file(weights[1]):
        return "", []
    chosen = storage.read_json(package / DESCRIPTION)["params"]
    return card.read_text(encoding="utf-8"), list(chosen["corpus"]["languages"])
