"""A model card (Mitchell et al. 2019) in Markdown, from a package's description alone."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from lexmill import kinds
from lexmill.base.strict import flatten
from lexmill.corpora.prepared import SPLITS, in_order
from lexmill.kinds import Kind


def card(description: Mapping[str, Any]) -> str:
    """Return the card's text.

    Args:
        description: package.json without the fingerprint: kind, name, params, metrics, test_corpus, example.
    """
    return "\n".join(_lines(description)) + "\n"


def _lines(description: Mapping[str, Any]) -> Iterator[str]:
    kind, name, chosen = kinds.find(description["kind"]), description["name"], description["params"]
    yield from (f"# {name}", "", f"{kind.one[0].upper()}{kind.one[1:]} that {kind.does}.", "")
    yield from _use(kind, name, description["example"])
    yield from _data(description["test_corpus"], chosen)
    yield from _training(chosen)
    yield from _metrics(kind, description["metrics"], description["test_corpus"])
    yield from ("## Limits", "")
    for limit in kind.limits(chosen["model"]):
        yield f"- {limit}"
    yield "- The metrics above hold for texts like those of its test split; measure it on yours."


def _use(kind: Kind, name: str, example: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Use", "", "```python", "import mlflow")
    yield f'mlflow.pyfunc.load_model("models:/{name}@champion").predict({_text(example["input"][:1] or ["..."])})'
    yield from ("```", "", f"or `lexmill {kind.verb} --model {name}`.", "")
    if example["input"]:
        yield from ("An example, from its evaluation:", "", "```", f"in   {_text(example['input'][0])}")
        yield from (f"out  {_text(example['output'][0])}", "```", "")


def _text(value: Any) -> str:
    # A fence inside an example would end the block.
    return json.dumps(value, ensure_ascii=False).replace("```", "'''")


def _data(corpus: Mapping[str, Any], chosen: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Data", "")
    source = chosen["corpus"]["source"]
    where = source.get("name") or source.get("dataset") or ", ".join(source.get("paths") or source.get("urls") or ())
    at = f" {source['version']}" if source.get("version") else ""
    yield f"- Corpus `{corpus['name']}` ({' to '.join(chosen['corpus']['languages'])}), from {where}{at}"
    yield f"- Its licence: {chosen['corpus']['licence'] or 'not stated'}"
    for split in in_order({*SPLITS, *corpus["counts"]}):
        counts = corpus["counts"].get(split, {})
        unit = chosen["corpus"]["unit"]
        yield f"- {split}: {counts.get('records', 0):,} records, groups (each a {unit}): {counts.get('groups', 0):,}"
    yield "- Each group is in one split only."
    for name, member in chosen.get("mixture", {}).items():
        licence = member["licence"] or "not stated"
        made = ""
        if "translation" in member:
            by = member["translation"]
            made = f", whose {by['writes']} side `{by['model']}` translated from corpus `{by['corpus']}`"
        yield f"- {100 * member['share']:.3g} % of its training data is corpus `{name}`{made}, licence: {licence}"
    if "checkpoint" in chosen:
        start = chosen["checkpoint"]
        licence = start["licence"] or "not stated"
        yield f"- Starts from the pretrained `{start['name']}`, licence: {licence}"
        if start["note"]:
            yield f"- {start['note']}"
    yield ""


def _training(chosen: Mapping[str, Any]) -> Iterator[str]:
    yield from ("## Training", "", "| param | value |", "|---|---|")
    for key, value in table({"model": chosen["model"], "tokenizer": chosen.get("tokenizer", {})}).items():
        yield f"| {key} | {_cell(value)} |"
    yield from (f"| data_seed | {chosen['data_seed']} |", f"| training_seed | {chosen['training_seed']} |", "")


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return " ".join(text.split()).replace("|", "\\|") or "(none)"


def table(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values by dotted keys, for display: lists as JSON text, no empty mappings."""
    return {
        key: json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple) else value
        for key, value in flatten(nested).items()
        if value != {}
    }


def _metrics(kind: Kind, metrics: Mapping[str, Any], corpus: Mapping[str, Any]) -> Iterator[str]:
    test, baselines = metrics["test"], metrics["baselines"]
    yield from (f"## Metrics on the test split of `{corpus['name']}`", "")
    yield "| metric | this model | " + "".join(f"{name.replace('_', ' ')} | " for name in baselines)
    yield "|---|---|" + "---|" * len(baselines)
    for metric in kind.metrics:
        key = metric.name
        if key not in test:
            continue
        value = _with_interval(test, key)
        # Means over the tokens of other tokenizers cannot be compared.
        cells = "".join(
            f"{_metric(f[key]) if key in f and not metric.over_tokens else '-'} | " for f in baselines.values()
        )
        yield f"| {metric.words} | {value} | {cells}"
    yield ""
    for split, further in metrics.get("tests", {}).items():
        found = [f"{one.words} {_with_interval(further, one.name)}" for one in kind.metrics if one.name in further]
        yield from (f"On the further test set `{split}`: {', '.join(found)}", "")
    for key in sorted(test):
        if key.endswith("_signature"):
            yield from (f"{key.removesuffix('_signature')}: `{test[key]}`", "")
    if not baselines:
        yield from ("No baseline was measured.", "")


def _with_interval(metrics: Mapping[str, Any], key: str) -> str:
    value = _metric(metrics[key])
    if f"{key}_low" in metrics:
        value += f" [{_metric(metrics[f'{key}_low'])}, {_metric(metrics[f'{key}_high'])}]"
    return value


def _metric(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
