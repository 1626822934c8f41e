"""The initial weights of a training: drawn by a recipe, or those of a model (continued pre-training)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import sha256_file, sha256_folder
from lexmill.models.declaration import family, unlike
from lexmill.models.input_embeddings import NAMES
from lexmill.models.pretrained import Pretrained, mapping, read, tensors
from lexmill.tokenizers.imported import origin, origin_of

if TYPE_CHECKING:
    from torch import Tensor, nn

_EMBEDDING = "embedding.weight"
# Matrices with a row per vocabulary entry or position; of a larger one the first rows are used.
_BY_TOKEN = (*NAMES, "head.weight", "output_bias")
_BY_POSITION = ("positions.weight",)


def digest(path: str | Path) -> str:
    """Return a hash of what `start` names, a recipe or a folder.

    Raises:
        UserError: it does not exist.
    """
    path = _existing(path)
    return sha256_file(path) if path.is_file() else sha256_folder(path)


def _existing(path: str | Path) -> Path:
    if not Path(path).exists():
        raise UserError("start: this does not exist; name a file of conf/initialization/ or a model's folder", path)
    return Path(path)


def start(module: nn.Module, config: Mapping[str, Any], path: str | Path, tokenizer: Path) -> None:
    """Set the module's initial weights.

    Args:
        module: built from `config`.
        config: the model's: family, shape, vocab_size.
        path: a recipe (YAML), or a model's folder, ours or in Hugging Face format; word vectors start an embedding.
        tokenizer: the folder of its tokenizer.

    Raises:
        UserError, UserErrors: it does not exist; the model has another family, shape or tokenizer.
    """
    from lexmill.models.common.state import load_weights, weights

    path = _existing(path)
    if path.is_file():
        from lexmill.models.common.init import initialize, load_recipe

        initialize(module, load_recipe(path))
        return
    found = read(path, config["family"])
    errors = _shape_errors(found, config)
    if errors:
        raise UserErrors([f"{path}: {error}" for error in errors])
    if origin(path) != origin_of(tokenizer):
        raise UserError(
            f"this model has another tokenizer than {tokenizer}, which made its data: take the checkpoint's own as"
            " `data.tokenizer` (or, for a model of this project, that model's)",
            path,
        )
    size = config["vocab_size"]
    known = size - config.get("task_tokens", 0)
    if found.vocab_size < known:
        raise UserError(f"its embedding has {found.vocab_size} rows, but {tokenizer} {known} entries", path)
    from lexmill.models.common.both_directions import BothDirections
    from lexmill.models.common.heads import PooledClassifier, RewardModel
    from lexmill.models.common.pretraining import MaskedLanguageModel, ReplacedTokenDetection
    from lexmill.models.common.sentence_vectors import SentenceVectors
    from lexmill.models.common.span_head import SpanHead
    from lexmill.models.common.tagging import Tagger

    on_texts = PooledClassifier | RewardModel | SpanHead | Tagger | SentenceVectors
    headless = module.encoder if isinstance(module, on_texts | MaskedLanguageModel | ReplacedTokenDetection) else module
    if isinstance(headless, BothDirections):
        headless = headless.network
    taken = _cut(found, config)
    if found.family != config["family"]:  # word vectors: the other weights stay as they were drawn
        taken = {_EMBEDDING: taken[_EMBEDDING]}
        if _EMBEDDING not in weights(headless):
            raise UserError(f"family '{config['family']}' has no embedding that could start from word vectors", path)
        taken = {**weights(headless), **taken}
    load_weights(headless, taken, f"the weights of {path}")
    if isinstance(module, SpanHead) and found.span_head:
        load_weights(module.head, {key.removeprefix("head."): one for key, one in found.span_head.items()}, f"{path}")
    if isinstance(module, MaskedLanguageModel | ReplacedTokenDetection):
        _load_heads(module, path, found, size)


def _load_heads(module: nn.Module, path: Path, found: Pretrained, size: int) -> None:
    """Load each part beside the encoder whose weights the folder has, in equal sizes; the others stay as drawn."""
    from lexmill.models.common.state import load_weights, weights

    state = tensors(path)
    if not found.ours:
        reading = getattr(mapping(found.family), "read_pretraining", None)
        state = reading(state) if reading else {}
    state = {name: tensor[:size] if name == "head.bias" else tensor for name, tensor in state.items()}
    taken = weights(module)
    for part in dict(module.named_children()).keys() - {"encoder"}:
        own = {name: tensor for name, tensor in taken.items() if name.startswith(f"{part}.")}
        if all(name in state and state[name].shape == tensor.shape for name, tensor in own.items()):
            taken |= {name: state[name] for name in own}
    load_weights(module, taken)


def _shape_errors(found: Pretrained, config: Mapping[str, Any]) -> list[str]:
    """Return what must change in params.yaml, field by field."""
    errors = []
    for key, (there, here) in unlike(config["family"], config["shape"], found.family, found.shape).items():
        if key == "family":
            errors.append(f"family is '{there}' there, '{here}' in params.yaml; they must be equal")
        else:
            shrinking = key in family(config["family"]).shrinking
            rule = "it may not be longer" if shrinking else "they must be equal"
            errors.append(f"shape.{key} is {there} there, {here} in params.yaml; {rule}")
    return errors


def _cut(found: Pretrained, config: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the weights with the config's rows.

    Padded vocabularies and longer contexts lose their last ones. Task tokens that the model has not yet are drawn,
    normally distributed with the standard deviation of the others.
    """
    import torch

    rows = dict.fromkeys(_BY_TOKEN, int(config["vocab_size"]))
    if "context" in config["shape"]:
        rows |= dict.fromkeys(_BY_POSITION, int(config["shape"]["context"]))
    taken = {name: tensor[: rows[name]] if name in rows else tensor for name, tensor in found.state.items()}
    for name in _BY_TOKEN:
        if name in taken and (missing := rows[name] - len(taken[name])):
            drawn = torch.randn(missing, *taken[name].shape[1:]) * taken[name].float().std()
            taken[name] = torch.cat([taken[name], drawn.to(taken[name].dtype)])
    return taken
