"""Export a model as a folder for `transformers`, which gives the same ids and logits.

    <folder>/
        config.json, model.safetensors
        generation_config.json    of a model that writes text
        tokenizer.json, tokenizer_config.json, special_tokens_map.json
        README.md                 the model card, with the lines that load it

`lexmill` reads such a folder as a checkpoint with a `file` source.

A chat model's tokenizer has its chat template; there, unlike here, a text may spell the special tokens.

A reward model is exported for sequence classification, with one label; one that points at spans for question answering;
an encoder with the heads that it was pre-trained with; one that gives a text a vector as a plain encoder.

A model with labels is exported with its head on each token: the head is linear, so the mean of the logits over the
tokens is the head of the mean of the hidden states. The models of `transformers` for whole texts pool in another way.

A model that tags words is exported with its head on each token; a word's tag is that of its first piece.
`transformers` has neither a chain over tags nor the mean of a word's pieces: models with one of them are refused.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import kinds, tokenizers
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.models import folder as model_folder
from lexmill.registry.export_checks import new_or_empty, refuse_tags
from lexmill.registry.package import DESCRIPTION
from lexmill.tokenizers.saving import save_adding

if TYPE_CHECKING:
    from torch import Tensor

    from lexmill.models.declaration import Role

CARD = "README.md"


@dataclass(frozen=True)
class _Target:
    """What a role becomes there.

    Attributes:
        auto: the class of transformers that loads it.
        pipeline: the hub's name of the task.
        begins, ends: whether its tokenizer puts the begin token before a text, and the end token after it.
        use: lines of Python after the loading ones; {eos} is the end token's id.
        notes: sentences below these lines.
    """

    auto: str
    pipeline: str
    begins: bool
    ends: bool
    use: tuple[str, ...]
    notes: tuple[str, ...]


_TARGETS: dict[Role, _Target] = {
    "causal": _Target(
        "AutoModelForCausalLM",
        "text-generation",
        False,
        False,
        (),
        (
            "The tokenizer adds no token of its own. In training the end token is before and after each text, so put",
            "`tokenizer.eos_token_id` ({eos}) before the model's input.",
        ),
    ),
    "encoder": _Target(
        "AutoModelForTokenClassification",
        "text-classification",
        True,
        True,
        (
            'batch = tokenizer(["a text"], padding=True, truncation=True, return_tensors="pt")',
            'real = batch["attention_mask"].unsqueeze(-1)',
            "logits = (model(**batch).logits * real).sum(1) / real.sum(1)  # the mean over tokens is the text's",
            "print([model.config.id2label[int(i)] for i in logits.argmax(-1)])",
        ),
        ("A text's logits are the mean of its tokens' logits, because the model pools by the mean.",),
    ),
    "encoder_decoder": _Target(
        "AutoModelForSeq2SeqLM",
        "translation",
        False,
        True,
        (
            'batch = tokenizer(["a text"], padding=True, return_tensors="pt")',
            "print(tokenizer.batch_decode(model.generate(**batch, num_beams=4), skip_special_tokens=True))",
        ),
        ("Greedy translations are lexmill's; beam search there ranks by another length penalty.",),
    ),
}


def export(model: Path, target: Path, name: str, card: str = "", languages: Sequence[str] = ()) -> None:
    """Write a model folder in Hugging Face format.

    Args:
        model: a model folder of lexmill.
        target: a new or empty folder.
        name: of the model, for the card.
        card: Markdown to append to the card's first part.
        languages: BCP 47 tags of its text, for the card's metadata.

    Raises:
        UserError: `transformers` has no such network, or the target is not empty.
    """
    from safetensors.torch import save_file

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
    there, mapping = _target(config, declared.role, tokenizer), pretrained.mapping(config["family"])
    ids = _ids(tokenizer, declared.role)
    written = mapping.write_config(shape, config["vocab_size"])
    # Some encoders count positions by their padding token, which is a size of theirs.
    pad = {"pad_token_id": written.get("pad_token_id", ids["pad_token_id"])}
    described = {**written, **ids, **pad, "dtype": "float32"}
    tensors: dict[str, Tensor] = mapping.write_tensors(shape, pretrained.read(model).state)
    whole = pretrained.tensors(model)
    if labels := config.get("labels", config.get("tags")):
        described |= _labels(labels)
        for key in _PROBLEMS.keys() & config.keys():
            described["problem_type"] = _PROBLEMS[key]
        tensors |= mapping.write_head(shape, whole["head.weight"], whole["head.bias"])
    if config.get("spans"):
        described["architectures"] = [mapping.span_model(shape)]
        tensors |= mapping.write_span_head(shape, whole["head.weight"], whole["head.bias"])
    if "pretraining" in config:
        name_there, tensors = mapping.write_pretraining(shape, whole)
        described |= {"architectures": [name_there], "tie_word_embeddings": True}
    if config.get("reward"):
        described |= _labels(["reward"])
        tensors = {key: value for key, value in tensors.items() if key != "lm_head.weight"}
        tensors["score.weight"] = whole["head.weight"]
    with storage.new_folder(target) as folder:
        save_file(tensors, folder / pretrained.WEIGHTS, metadata={"format": "pt"})
        storage.write_json(folder / pretrained.CONFIG, described)
        if declared.role != "encoder":
            most = {"max_length": shape["max_positions"]} if declared.role == "encoder_decoder" else {}
            storage.write_json(folder / "generation_config.json", ids | most)
        _write_tokenizer(model / model_folder.TOKENIZER, folder, there, config, described)
        storage.write_text(
            folder / CARD,
            _head(there, tokenizer.eos_id, languages)
            + (card or f"# {name}\n\n{what[0].upper()}{what[1:]} made with lexmill.\n"),
        )


_CHAT = replace(
    _TARGETS["causal"],
    use=(
        'messages = [{"role": "user", "content": "a question"}]',
        "batch = tokenizer.apply_chat_template(",
        '    messages, add_generation_prompt=True, return_tensors="pt", return_dict=True',
        ")",
        "print(tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True))",
    ),
    notes=("Remove special tokens from texts that you do not trust: transformers reads them as such.",),
)
_REWARD = replace(
    _TARGETS["causal"],
    auto="AutoModelForSequenceClassification",
    pipeline="text-classification",
    use=(
        'messages = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": "an answer"}]',
        'batch = tokenizer.apply_chat_template(messages, return_tensors="pt", return_dict=True)',
        "print(model(**batch).logits)",
    ),
    notes=("The higher of two answers' logits is of the one that people prefer, as the model sees it.",),
)


_SPANS = replace(
    _TARGETS["encoder"],
    auto="AutoModelForQuestionAnswering",
    pipeline="question-answering",
    use=(
        'batch = tokenizer("a question", "a text that answers it", return_tensors="pt")',
        "found = model(**batch)",
        "first, last = int(found.start_logits.argmax()), int(found.end_logits.argmax())",
        'print(tokenizer.decode(batch["input_ids"][0, first : last + 1]))',
    ),
    notes=(
        "lexmill reads longer texts in windows, and takes only spans of the text; the threshold for no answer is its.",
    ),
)


_TAGS = replace(
    _TARGETS["encoder"],
    pipeline="token-classification",
    use=(
        'words = "a sentence as a list of its words".split()',
        'batch = tokenizer(words, is_split_into_words=True, truncation=True, return_tensors="pt")',
        "best, numbers = model(**batch).logits[0].argmax(-1), batch.word_ids()",
        "first = [i for i, word in enumerate(numbers) if word is not None and numbers[i - 1] != word]",
        "print([model.config.id2label[int(best[i])] for i in first])",
    ),
    notes=("A word's tag is that of its first piece; the tags of the other pieces mean nothing.",),
)


_VECTORS = replace(
    _TARGETS["encoder"],
    auto="AutoModel",
    pipeline="sentence-similarity",
    use=(
        'batch = tokenizer(["a text", "another"], padding=True, truncation=True, return_tensors="pt")',
        'real = batch["attention_mask"].unsqueeze(-1)',
        "pooled = (model(**batch).last_hidden_state * real).sum(1) / real.sum(1)",
        "print(pooled / pooled.norm(dim=1, keepdim=True))",
    ),
    notes=("A text's vector is the mean of its tokens' states, of length 1.",),
)


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
    elif "labels" in config and role != "encoder":
        why = "a biased matrix on the states of a network that reads from left to right"
    elif config.get("pooling", "mean") != "mean":
        why = f"a head that reads no mean of a text's states (recipe.pooling: {config['pooling']})"
    else:
        return
    raise UserError(f"{this} with {why}, which transformers does not have; it can be used here and served")


def _target(config: Mapping[str, Any], role: Role, tokenizer: tokenizers.Tokenizer) -> _Target:
    """Return what a model becomes; raise `UserError` where transformers would not find a text's last token."""
    if config.get("reward"):
        if tokenizer.pad_id == tokenizer.eos_id:
            raise UserError("a reward model whose tokenizer pads with its end token cannot be exported")
        return _REWARD
    if config.get("spans"):
        return _SPANS
    if "tags" in config:
        return _TAGS
    if "embedding" in config:
        return _VECTORS
    if "pretraining" in config:
        return _pretraining(config, tokenizer)
    if "levels" in config or "thresholds" in config:
        return _on_texts(config)
    return _CHAT if "chat_template" in config else _TARGETS[role]


def _on_texts(config: Mapping[str, Any]) -> _Target:
    """Return what a head becomes whose outputs are not one label's logits: those of several labels, or a number."""
    *begin, _ = _TARGETS["encoder"].use
    if "thresholds" in config:
        end = (
            f"enough = logits.sigmoid() >= logits.new_tensor({config['thresholds']})\n"
            "print([[model.config.id2label[i] for i, given in enumerate(row) if given] for row in enough.tolist()])"
        )
        note = "A text has each label whose probability is at least the label's threshold."
    elif levels := config["levels"]:
        gaps = [high - low for low, high in pairwise(levels)]
        end = f"print({levels[0]} + logits.sigmoid() @ logits.new_tensor({gaps}))"
        note = "A logit is that of being above a level; the number is the expected level."
    else:
        end, note = "print(logits[:, 0])", "The one logit is the number."
    return replace(_TARGETS["encoder"], use=(*begin, end), notes=(*_TARGETS["encoder"].notes, note))


def _pretraining(config: Mapping[str, Any], tokenizer: tokenizers.Tokenizer) -> _Target:
    """Return what an encoder becomes; raise `UserError` where transformers has no such heads."""
    if config["pretraining"]["objective"] != "masked":
        raise UserError("an encoder that finds replaced tokens cannot be exported: transformers has no such heads")
    assert tokenizer.mask_id is not None, "it was pre-trained with it"
    return replace(
        _TARGETS["encoder"],
        auto="AutoModelForMaskedLM" if config["pretraining"]["pairs"] == "none" else "AutoModelForPreTraining",
        pipeline="fill-mask",
        use=(
            'batch = tokenizer("the" + tokenizer.mask_token, return_tensors="pt")',
            'at = batch["input_ids"][0] == tokenizer.mask_token_id',
            "print(tokenizer.batch_decode(model(**batch)[0][0, at].argmax(-1)))",
        ),
        notes=(
            "A word's token brings the space before it along where the tokenizer is byte-level BPE.",
            "Remove special tokens from texts that you do not trust: transformers reads them as such.",
        ),
    )


def _ids(tokenizer: tokenizers.Tokenizer, role: Role) -> dict[str, int]:
    ids = {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id, "pad_token_id": tokenizer.pad_id}
    return ids | ({"decoder_start_token_id": tokenizer.bos_id} if role == "encoder_decoder" else {})


def _labels(labels: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    numbered = {label: i for i, label in enumerate(labels)}
    return {"id2label": {str(i): label for label, i in numbered.items()}, "label2id": numbered}


def _write_tokenizer(
    source: Path, folder: Path, there: _Target, config: Mapping[str, Any], described: Mapping[str, Any]
) -> None:
    """Copy a tokenizer with what belongs to the model: tokens added to a text, where texts are cut, a chat template."""
    for path in sorted(source.iterdir()):
        shutil.copyfile(path, folder / path.name)
    tokenizer = tokenizers.load(source)
    if there.ends:
        save_adding(tokenizer, folder / "tokenizer.json", begin=there.begins)
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


def _head(there: _Target, end: int, languages: Sequence[str]) -> str:
    """Return the first part of the card: metadata, and how to load the model."""
    lines = [
        "---",
        "library_name: transformers",
        f"pipeline_tag: {there.pipeline}",
        *([f"language: {json.dumps(list(languages))}"] if languages else []),
        "---",
        "",
        "```python",
        f"from transformers import {there.auto}, AutoTokenizer",
        "",
        'folder = "."  # this one',
        "tokenizer = AutoTokenizer.from_pretrained(folder)",
        f"model = {there.auto}.from_pretrained(folder)",
        *there.use,
        "```",
        "",
        *(line.format(eos=end) for line in there.notes),
        "",
    ]
    return "\n".join(lines) + "\n"


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
