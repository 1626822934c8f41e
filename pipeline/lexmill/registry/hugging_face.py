"""Export a language model as a folder for `transformers`, which gives the same logits and ids.

    <folder>/
        config.json, generation_config.json, model.safetensors
        tokenizer.json, tokenizer_config.json, special_tokens_map.json
        README.md                 the model card

`lexmill` reads such a folder as a checkpoint with a `file` source.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lexmill import tokenizers
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.models import folder as model_folder
from lexmill.registry.package import DESCRIPTION

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
        UserError: `transformers` has no such network, it has a classification head, or the target is not empty.
    """
    from safetensors.torch import save_file

    from lexmill.models import family, pretrained

    config = model_folder.read_config(model)
    what = config["kind"].replace("_", " ")
    if not family(config["family"]).model_types:
        of = f"of family '{config['family']}', which has no counterpart in transformers"
        raise UserError(f"'{name}' is a {what} {of}")
    if "labels" in config:
        raise UserError(f"'{name}' is a {what}; its head of labels cannot be exported yet")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UserError("this exists and is not empty; name a new folder", target)
    shape, tokenizer = config["shape"], tokenizers.load(model / model_folder.TOKENIZER)
    mapping = pretrained.mapping(config["family"])
    described = {**mapping.write_config(shape, config["vocab_size"]), **_ids(tokenizer), "dtype": "float32"}
    found = pretrained.read(model)
    with storage.new_folder(target) as folder:
        save_file(mapping.write_tensors(shape, found.state), folder / pretrained.WEIGHTS, metadata={"format": "pt"})
        storage.write_json(folder / pretrained.CONFIG, described)
        storage.write_json(folder / "generation_config.json", _ids(tokenizer))
        for path in sorted((model / model_folder.TOKENIZER).iterdir()):
            shutil.copyfile(path, folder / path.name)
        storage.write_text(folder / CARD, _card(name, tokenizer, card, languages))


def _ids(tokenizer: tokenizers.Tokenizer) -> dict[str, int]:
    return {"bos_token_id": tokenizer.bos_id, "eos_token_id": tokenizer.eos_id, "pad_token_id": tokenizer.pad_id}


def _card(name: str, tokenizer: tokenizers.Tokenizer, card: str, languages: Sequence[str]) -> str:
    lines = [
        "---",
        "library_name: transformers",
        "pipeline_tag: text-generation",
        *([f"language: {json.dumps(list(languages))}"] if languages else []),
        "---",
        "",
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        'folder = "."  # this one',
        "tokenizer = AutoTokenizer.from_pretrained(folder)",
        "model = AutoModelForCausalLM.from_pretrained(folder)",
        "```",
        "",
        "The tokenizer adds no token of its own. In training the end token is before and after each text, so put",
        f"`tokenizer.eos_token_id` ({tokenizer.eos_id}) before the model's input.",
        "",
    ]
    return "\n".join(lines) + "\n" + (card or f"# {name}\n\nA language model made with lexmill.\n")


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
