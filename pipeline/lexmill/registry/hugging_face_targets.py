"""What each kind of model becomes in `transformers`: the class that loads it, and its card's code and sentences."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lexmill import tokenizers

if TYPE_CHECKING:
    from lexmill.models.declaration import Role


GENERATOR = "generator"  # folder of the one that replaced tokens


@dataclass(frozen=True)
class Target:
    """What a role becomes there.

    Attributes:
        auto: the class of transformers that loads it.
        pipeline: the hub's name of the task.
        begins, ends: whether its tokenizer puts the begin token before a text, and the end token after it.
        use: lines of Python after the loading ones; {eos} is the end token's id.
        notes: sentences below these lines.
        scores: whether it is a matrix on the state of a text's last token.
    """

    auto: str
    pipeline: str
    begins: bool
    ends: bool
    use: tuple[str, ...]
    notes: tuple[str, ...]
    scores: bool = False


_TARGETS: dict[Role, Target] = {
    "causal": Target(
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
    "encoder": Target(
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
    "encoder_decoder": Target(
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
    scores=True,
)
_LABELS_LAST = replace(
    _TARGETS["causal"],
    auto="AutoModelForSequenceClassification",
    pipeline="text-classification",
    begins=True,
    ends=True,
    use=(
        'batch = tokenizer(["a text"], padding=True, truncation=True, return_tensors="pt")',
        "print([model.config.id2label[int(i)] for i in model(**batch).logits.argmax(-1)])",
    ),
    notes=("The state of a text's last token, which is the end token, is classified.",),
    scores=True,
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


_REPLACED = replace(
    _TARGETS["encoder"],
    auto="AutoModelForPreTraining",
    pipeline="feature-extraction",
    use=(
        'batch = tokenizer("a text", return_tensors="pt")',
        "print(model(**batch).logits[0].sigmoid())  # for each token, how probably it was replaced",
    ),
    notes=(
        f'The generator is in `{GENERATOR}`: `AutoModelForMaskedLM.from_pretrained(folder, subfolder="{GENERATOR}")`.',
        "Remove special tokens from texts that you do not trust: transformers reads them as such.",
    ),
)


def target_of(config: Mapping[str, Any], role: Role, tokenizer: tokenizers.Tokenizer) -> Target:
    """Return what a model becomes."""
    found = _plain_target(config, role, tokenizer)
    if config.get("begins"):
        found = replace(
            found, notes=(*found.notes, "The tokenizer puts the prefix before a text: give the text alone.")
        )
    windows = ("Longer texts are cut; lexmill reads them in windows and takes the mean of the windows' logits.",)
    return replace(found, notes=(*found.notes, *windows)) if "stride" in config and "labels" in config else found


def _plain_target(config: Mapping[str, Any], role: Role, tokenizer: tokenizers.Tokenizer) -> Target:
    if config.get("reward"):
        return _REWARD
    if "labels" in config and role == "causal":
        return _LABELS_LAST
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


def _on_texts(config: Mapping[str, Any]) -> Target:
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


def _pretraining(config: Mapping[str, Any], tokenizer: tokenizers.Tokenizer) -> Target:
    """Return what an encoder under the heads of its pre-training becomes."""
    if config["pretraining"]["objective"] == "replaced":
        return _REPLACED
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


def card_head(there: Target, end: int, languages: Sequence[str]) -> str:
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
