"""A model card (Mitchell et al. 2019) in Markdown, from a package's description alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lexmill import kinds
from lexmill.base.strict import flatten
from lexmill.kinds import Kind


def card(description: Mapping[str, Any]) -> str:
    """The card's text.

    Args:
        description: package.json without the fingerprint: kind, name, params, metrics, test_corpus, example.
    """
    return "\n".join(_lines(description)) + "\n"


def _lines(description: Mapping[str, Any]) -> Iterator[str]:
    kind, name, chosen = kinds.find(description["kind"]), description["name"], description["params"]
    yield f"# {name}"
    yield ""
    yield f"A {kind.words} that {kind.does}."
    yield ""
    yield from _use(kind, name, description["example"])
    yield from _data(description["test_corpus"], chosen)
    yield from _training(chosen)
    yield from _figures(kind, description["metrics"], description["test_corpus"])
    yield "## Limits"
    yield ""
    for limit in kind.limits(chosen["model"]):
        yield f"- {limit}"
    yield "- The figures above hold for texts like those of its test split; measure it on yours."


def _use(kind: Kind, name: str, example: Mapping[str, Any]) -> Iterator[str]:
    yield "## Use"
    yield ""
    yield "```python"
    yield "import mlflow"
    yield f'mlflow.pyfunc.load_model("models:/{name}@champion").predict({_text(example["input"][:1] or ["..."])})'
    yield "```"
    yield ""
    yield f"or `lexmill {kind.verb} --model {name}`."
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


def _figures(kind: Kind, metrics: Mapping[str, Any], corpus: Mapping[str, Any]) -> Iterator[str]:
    test, baselines = metrics["test"], metrics["baselines"]
    yield f"## Figures on the test split of `{corpus['name']}`"
    yield ""
    yield "| figure | this model | " + "".join(f"{name.replace('_', ' ')} | " for name in baselines)
    yield "|---|---|" + "---|" * len(baselines)
    for metric in kind.metrics:
        key = metric.name
        if key not in test:
            continue
        value = _figure(test[key])
        if f"{key}_low" in test:
            value += f" [{_figure(test[f'{key}_low'])}, {_figure(test[f'{key}_high'])}]"
        # Means over the tokens of other tokenizers say nothing here.
        beside = "".join(
            f"{_figure(f[key]) if key in f and not metric.over_tokens else '-'} | " for f in baselines.values()
        )
        yield f"| {metric.words} | {value} | {beside}"
    yield ""
    for key in sorted(test):
        if key.endswith("_signature"):
            yield f"{key.removesuffix('_signature')}: `{test[key]}`"
            yield ""
    if not baselines:
        yield "No baseline was measured beside it."
        yield ""


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
