"""A model card (Mitchell et al. 2019) in Markdown, from a package's description alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lexmill.base.strict import flatten
from lexmill.registry.kinds import KINDS

_DOES = {
    "language_model": "continues text: it gives each next token a probability.",
    "classifier": "gives a text one of its labels, with a score for each.",
    "translator": "translates a sentence.",
}
# Figure, its words, and whether floors can stand beside it: perplexities of other tokens say nothing here.
_SHOWN = {
    "language_model": (("bits_per_byte", "bits per byte", True), ("perplexity", "perplexity a token", False)),
    "classifier": (("accuracy", "accuracy", True), ("macro_f1", "macro F1", True)),
    "translator": (("bleu", "BLEU", True), ("chrf", "chrF", True)),
}
_LIMITS = {
    "language_model": (
        "It knows the style and the facts of its corpus only; what it writes is likely text, not true text.",
        "Text before the last {context} tokens has no effect on what it writes.",
    ),
    "lstm": (
        "It knows the style and the facts of its corpus only; what it writes is likely text, not true text.",
        "It carries its state on without end, but learned to use only what lies at most {context} tokens back.",
    ),
    "classifier": (
        "It knows the labels of its corpus only and always answers with one of them, also for a text that fits none.",
        "Texts longer than {max_tokens} tokens are cut. Scores are not calibrated.",
    ),
    "translator": (
        "It was trained on sentences; each line is translated by itself, without the lines around it.",
        "Away from its corpus's subject it can leave things out or make them up, fluently.",
    ),
}


def card(description: Mapping[str, Any]) -> str:
    """The card's text.

    Args:
        description: package.json without the fingerprint: kind, name, params, metrics, test_corpus, example.
    """
    return "\n".join(_lines(description)) + "\n"


def _lines(description: Mapping[str, Any]) -> Iterator[str]:
    kind, name, chosen = description["kind"], description["name"], description["params"]
    yield f"# {name}"
    yield ""
    yield f"A {KINDS[kind].words} that {_DOES[kind]}"
    yield ""
    yield from _use(kind, name, description["example"])
    yield from _data(description["test_corpus"], chosen)
    yield from _training(chosen)
    yield from _figures(kind, description["metrics"], description["test_corpus"])
    yield "## Limits"
    yield ""
    values = {"context": chosen["model"].get("shape", {}).get("context"), **chosen["model"]}
    for limit in _LIMITS.get(chosen["model"].get("family"), _LIMITS[kind]):
        yield f"- {limit.format_map(values)}"
    yield "- The figures above hold for texts like those of its test split; measure it on yours."


def _use(kind: str, name: str, example: Mapping[str, Any]) -> Iterator[str]:
    yield "## Use"
    yield ""
    yield "```python"
    yield "import mlflow"
    yield f'mlflow.pyfunc.load_model("models:/{name}@champion").predict({_text(example["input"][:1] or ["..."])})'
    yield "```"
    yield ""
    yield f"or `lexmill {KINDS[kind].verb} --model {name}`."
    yield ""
    if not example["input"]:
        return
    yield "An example, from its evaluation:"
    yield ""
    yield "```"
    yield f"in   {_text(example['input'][0])}"
    yield f"out  {_text(example['output'][0])}"
    yield "```"
    yield ""


def _text(value: Any) -> str:
    # A fence inside an example would end the block.
    return json.dumps(value, ensure_ascii=False).replace("```", "'''")


def _data(corpus: Mapping[str, Any], chosen: Mapping[str, Any]) -> Iterator[str]:
    yield "## Data"
    yield ""
    source = chosen["corpus"]["source"]
    where = source.get("name") or source.get("dataset") or ", ".join(source.get("paths") or source.get("urls") or ())
    at = f" {source['version']}" if source.get("version") else ""
    yield f"- Corpus `{corpus['name']}` ({' to '.join(chosen['corpus']['languages'])}), from {where}{at}"
    yield f"- Its licence: {chosen['corpus']['licence'] or 'not stated'}"
    for split in ("train", "valid", "test"):
        counts = corpus["counts"].get(split, {})
        unit = chosen["corpus"]["unit"]
        yield f"- {split}: {counts.get('records', 0):,} records, groups (each a {unit}): {counts.get('groups', 0):,}"
    yield "- A group lies whole in one split."
    for name, member in chosen.get("mixture", {}).items():
        licence = member["licence"] or "not stated"
        yield f"- {100 * member['share']:.3g} % of what it learned from is corpus `{name}`, licence: {licence}"
    if "checkpoint" in chosen:
        start = chosen["checkpoint"]
        licence = start["licence"] or "not stated"
        yield f"- Starts from the pretrained `{start['name']}`, licence: {licence}"
        if start["note"]:
            yield f"- {start['note']}"
    yield ""


def _training(chosen: Mapping[str, Any]) -> Iterator[str]:
    yield "## Training"
    yield ""
    yield "| param | value |"
    yield "|---|---|"
    for key, value in table({"model": chosen["model"], "tokenizer": chosen.get("tokenizer", {})}).items():
        yield f"| {key} | {_cell(value)} |"
    yield f"| data_seed | {chosen['data_seed']} |"
    yield f"| training_seed | {chosen['training_seed']} |"
    yield ""


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split()).replace("|", "\\|") or "(none)"


def table(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values by dotted keys, as people read them: lists as JSON text, no empty mappings."""
    return {
        key: json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple) else value
        for key, value in flatten(nested).items()
        if value != {}
    }


def _figures(kind: str, metrics: Mapping[str, Any], corpus: Mapping[str, Any]) -> Iterator[str]:
    test, floors = metrics["test"], metrics["floors"]
    yield f"## Figures on the test split of `{corpus['name']}`"
    yield ""
    yield "| figure | this model | " + "".join(f"{name.replace('_', ' ')} | " for name in floors)
    yield "|---|---|" + "---|" * len(floors)
    for key, words, beside_floors in _SHOWN[kind]:
        if key not in test:
            continue
        value = _figure(test[key])
        if f"{key}_low" in test:
            value += f" [{_figure(test[f'{key}_low'])}, {_figure(test[f'{key}_high'])}]"
        beside = "".join(f"{_figure(f[key]) if beside_floors and key in f else '-'} | " for f in floors.values())
        yield f"| {words} | {value} | {beside}"
    yield ""
    for key in sorted(test):
        if key.endswith("_signature"):
            yield f"{key.removesuffix('_signature')}: `{test[key]}`"
            yield ""
    if not floors:
        yield "No floor was measured beside it."
        yield ""


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
