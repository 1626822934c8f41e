"""What the rest of the program knows of an architecture without loading torch.

A family is a folder of `lexmill.models`. Its `shape.py` declares its sizes, a dataclass `Shape`, and one `FAMILY`; its
`model.py` has the network. Everything else finds it by the folder's name: to add a family, add a folder.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from lexmill.base.budgets import MAX_VOCABULARY
from lexmill.base.errors import UserError
from lexmill.base.shown import value_text
from lexmill.base.strict import build, nearest

LOADS = ("lexmill.models.{family}.shape",)  # by name, see lexmill.base.code

_MOST_BEGINS = 256  # ids before a text
# The choices of a head that tags words, in a model folder's config.json.
_OF_TAGS = {"scheme": ("none", "iob2", "bioes"), "pieces": ("first", "mean"), "head": ("softmax", "crf")}
_OF_WORDS = {"scheme": _OF_TAGS["scheme"], "method": ("hidden_markov_model", "averaged_perceptron")}
Pooling = Literal["mean", "max", "last", "attention"]
"""What a head on a whole text reads of the states of its tokens."""

Role = Literal["causal", "encoder", "encoder_decoder", "static", "bag", "words"]


@dataclass(frozen=True)
class Sizes:
    """What every `Shape` has; its fields are declared with `base.strict.spec`."""

    @property
    def unlimited(self) -> bool:
        """Whether the network reads text of any length at the same cost a token, by a state of one size."""
        return False

    @property
    def prefixes(self) -> tuple[str, str]:
        """What the network itself reads before each source and each target, as text."""
        return "", ""

    @property
    def prefix_is_token(self) -> bool:
        """Whether the prefix of a source must be one token of the vocabulary, as that of a target is."""
        return False

    def errors(self) -> list[str]:
        """Return what is wrong with the sizes together, each as `field: why`."""
        return []

    def entry_errors(self) -> list[str]:
        """Return what is missing in an entry of params.yaml, though no config.json of a checkpoint has it."""
        return []

    @classmethod
    def resolved(cls, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """Return plain sizes with every derived one written out, so that equal functions have equal sizes."""
        return dict(sizes)


@dataclass(frozen=True)
class Family:
    """An architecture.

    Attributes:
        role: what it computes: next-token logits, hidden states of a text, target logits given a source, one vector for
            each token, whatever its text, features of a whole text, or of words as text.
        network: the class in its `model.py`, called with (shape, vocab_size).
        shape: the dataclass of its sizes.
        tiny: fields of a shape small enough for tests and examples.
        variants: changes of `tiny`, each tested as a family is.
        carries: its state can go from one training window to the next.
        both_directions: its causal mask can be lifted, so that a token sees those after it too.
        model_types: the `model_type`s in transformers that its module `hugging_face` reads; it writes the first.
        free: sizes that may differ from those of the model whose weights a training starts from.
        shrinking: sizes that may be smaller then; the first rows of the weights are used.
        libraries: what it computes with besides torch.
    """

    role: Role
    network: str
    shape: type[Sizes]
    tiny: Mapping[str, Any]
    variants: tuple[Mapping[str, Any], ...] = ()
    carries: bool = False
    both_directions: bool = False
    model_types: tuple[str, ...] = ()
    free: tuple[str, ...] = ("dropout",)
    shrinking: tuple[str, ...] = ("context",)
    libraries: tuple[str, ...] = ()


def families(*roles: Role) -> list[str]:
    """Return the names of all families, or of those with one of the roles."""
    names = sorted(path.parent.name for path in Path(__file__).parent.glob("*/shape.py"))
    return [name for name in names if not roles or family(name).role in roles]


def family(name: object) -> Family:
    """Return the declaration of a family.

    Raises:
        UserError: there is no such family; names the nearest.
    """
    known = families()
    if not isinstance(name, str) or name not in known:
        raise UserError(f"there is no model family {value_text(name)}{nearest(str(name)[:60], known)}")
    found: Family = importlib.import_module(f"lexmill.models.{name}.shape").FAMILY
    return found


def config_errors(config: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the sizes in a model folder's config.json, each as `key: why`."""
    try:
        declared = family(config.get("family"))
    except UserError as error:
        return [f"family: {error}"]
    errors: list[str] = []
    if "shape" not in config:
        errors.append("shape: missing: the sizes of the model")
    else:
        build(declared.shape, config["shape"], errors, "shape")
    size = config.get("vocab_size")
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= MAX_VOCABULARY:
        errors.append(f"vocab_size: a whole number from 1 to {MAX_VOCABULARY:,} is expected, got {value_text(size)}")
    if "begins" in config and not errors:
        errors += _wrong_begins(config, declared)
    if "direction" in config and not (config["direction"] == "both" and declared.both_directions):
        errors.append(f"direction: {value_text(config['direction'])} is nothing that family '{config['family']}' does")
    for key in ("labels", "tags"):
        if key not in config:
            continue
        words = declared.role == "words"
        labels, dropout = config[key], 0.0 if words else config.get("dropout")
        if not isinstance(labels, list) or not labels or not all(isinstance(one, str) for one in labels):
            errors.append(f"{key}: a list of texts is expected")
        if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
            errors.append(f"dropout: a number from 0 to below 1 is expected, got {value_text(dropout)}")
        if "neighbours" in config:
            errors += _wrong_counts(config, "train_texts", "neighbours")
        if (pooling := config.get("pooling", "mean")) not in get_args(Pooling):
            errors.append(f"pooling: one of {', '.join(get_args(Pooling))} is expected, got {value_text(pooling)}")
    choices = _OF_WORDS if declared.role == "words" else _OF_TAGS
    for key, known in choices.items() if "tags" in config else ():
        if config.get(key) not in known:
            errors.append(f"{key}: one of {', '.join(known)} is expected, got {value_text(config.get(key))}")
    return errors


def _wrong_begins(config: Mapping[str, Any], declared: Family) -> list[str]:
    """Return what is wrong with the ids before each source and target."""
    if "source_prefix" not in {each.name for each in fields(declared.shape)}:
        return [f"begins: family '{config['family']}' reads no prefixes"]
    begins, size = config["begins"], config["vocab_size"]
    rows = list(begins.values()) if isinstance(begins, Mapping) and begins.keys() == {"source", "target"} else [None]
    if all(
        isinstance(ids, list) and len(ids) <= _MOST_BEGINS and all(type(i) is int and 0 <= i < size for i in ids)
        for ids in rows
    ):
        return []
    return [f"begins: ids below vocab_size are expected for source and for target, got {value_text(begins)}"]


def _wrong_counts(config: Mapping[str, Any], *keys: str) -> list[str]:
    """Return what is wrong with counts, of which each is at most the one before."""
    found, most = [], MAX_VOCABULARY
    for key in keys:
        count = config.get(key)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= most:
            found.append(f"{key}: a whole number from 1 to {most:,} is expected, got {value_text(count)}")
        else:
            most = count
    return found


def unlike(
    name: str, shape: Mapping[str, Any], found_name: str, found_shape: Mapping[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Return why a model cannot start from another's weights: each differing field -> (the other's value, its own).

    Fields that a shape lacks (an older model's may) have their default. If the family differs, only that is reported.
    An encoder of tokens may take its embedding from a static model of the same width, and only that.
    """
    if name != found_name:
        static = found_name in families("static") and name in families("encoder")
        width = shape.get("d_embedding", shape.get("d_model")) if static else None
        if width is None:
            return {"family": (found_name, name)}
        return {} if width == found_shape["d_model"] else {"d_model": (found_shape["d_model"], width)}
    kind = family(name)
    here, there = _compared(kind, shape), _compared(kind, found_shape)
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted(here.keys() | there.keys()):
        other, own = there.get(key), here.get(key)
        if own != other and not (key in kind.shrinking and int(own or 0) <= int(other or 0)):
            found[key] = (other, own)
    return found


def _compared(kind: Family, shape: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {each.name: each.default for each in fields(kind.shape) if each.default is not MISSING}
    whole = kind.shape.resolved({**defaults, **shape})
    return {key: value for key, value in whole.items() if key not in kind.free}


def mismatch(path: str, differing: Mapping[str, tuple[Any, Any]]) -> str:
    """Return `unlike`'s result as a sentence about the model at `path`."""
    there, here = (", ".join(f"{key} {values[i]}" for key, values in differing.items()) for i in (0, 1))
    rule = "the family must be the same" if "family" in differing else "only dropout may differ, and context be shorter"
    return f"{path} has {there}, this model has {here}; {rule}"
