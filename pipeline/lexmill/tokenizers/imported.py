"""The tokenizer of a pretrained model, converted for lexmill: same vocabulary, same ids, nothing added automatically.

    <folder>/
        tokenizer.json           the model's, without padding, truncation and the tokens that a template adds
        target_tokenizer.json    of a Marian, whose targets are segmented otherwise (`marian`)
        special_tokens.json      the ids of the end, padding, unknown ... tokens (see `Tokenizer`)
        tokenizer_config.json, special_tokens_map.json    so that `transformers.AutoTokenizer` gives the same ids

A causal model's tokenizer is refused if decoding does not give the text back, because loss per byte would mean nothing.
An encoder's tokenizer, which has a mask token or is WordPiece, is accepted with `keeps_text` false, and so is an
encoder-decoder's; its begin token is the one that the decoder starts with.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.base.outside import parsing, read_json_object
from lexmill.tokenizers import marian
from lexmill.tokenizers.kinds import byte_alphabet
from lexmill.tokenizers.saving import serialized, write_config
from lexmill.tokenizers.tokenizer import SPECIAL, TARGET, Tokenizer, is_space_mark, load, read_backend

if TYPE_CHECKING:
    import tokenizers

OWN = "tokenizer"  # the tokenizer's folder in a model folder of lexmill
# BERT's names (Devlin et al. 2019), for checkpoints without a tokenizer_config.json.
_BERT = {"bos": "[CLS]", "eos": "[SEP]", "pad": "[PAD]", "unk": "[UNK]", "mask": "[MASK]"}
ROLES = ("pad", "unk", "bos", "eos", "mask")
PROBES = (
    "To be, or not to be: that is the question.",
    "In 1999 she'd paid $3.50 for it -- 7% less!",
    "Grüße, ça va? naïve café, Ωμέγα, 東京, Привет 🙂",
    "  two spaces,\n\n\tnewlines and a tab \n",
    'def f(x):\n    return {"a": x**2}\n',
)
# The files of a tokenizer without a tokenizer.json.
_RAW = (
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "spiece.model",
    "spm.model",
    "sentencepiece.bpe.model",
    "vocab.txt",
    "added_tokens.json",
    *marian.SIDES,
)
_ELSE = {"bos": "cls_token", "eos": "sep_token"}  # what some encoders call them


def origin(checkpoint: Path) -> str:
    """Return a hash of the tokenizer's files in a checkpoint folder; the same for a folder of lexmill and its export.

    Raises:
        UserError: the folder holds no tokenizer.
    """
    for folder in (checkpoint / OWN, checkpoint):
        if (folder / "tokenizer.json").is_file():
            return origin_of(folder)
    raw = {name: storage.sha256_file(checkpoint / name) for name in _RAW if (checkpoint / name).is_file()}
    if not raw:
        raise UserError("there is no tokenizer here", checkpoint)
    return storage.fingerprint(raw)


def origin_of(folder: Path) -> str:
    """The hash of the files that a tokenizer folder was imported from; for one trained here, its own.

    A template that an export adds to a tokenizer makes no other tokenizer of it.
    """
    if (folder / SPECIAL).is_file():
        return str(_read(folder / SPECIAL).get("origin", ""))
    path = folder / "tokenizer.json"
    data, backend = read_backend(path)
    if backend.post_processor is None:
        return storage.sha256_bytes(data)
    backend.post_processor = None
    return storage.sha256_bytes(serialized(backend).encode())


def _read(path: Path) -> dict[str, Any]:
    """Read a JSON object; {} without a file."""
    return read_json_object(path) if path.is_file() else {}


def import_tokenizer(checkpoint: Path, folder: Path) -> Tokenizer:
    """Convert the tokenizer of a checkpoint folder into a tokenizer folder.

    Args:
        checkpoint: a folder in Hugging Face format, or a model folder of lexmill.
        folder: an empty folder.

    Raises:
        UserError: there is none, it has no end token, or decoding does not give texts back.
    """
    own = checkpoint / OWN
    ours = own if (own / "tokenizer.json").is_file() else checkpoint
    if _is_ours(ours):
        for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", SPECIAL, TARGET):
            if (ours / name).is_file():
                shutil.copyfile(ours / name, folder / name)
        return load(folder)
    backend, of_target = marian.backends(checkpoint) if marian.is_marian(checkpoint) else (_backend(checkpoint), None)
    whole = json.loads(backend.to_str())
    state = {**whole, "truncation": None, "padding": None, "post_processor": None}
    special = _special(state, checkpoint)
    if (separators := _separators(whole["post_processor"])) != 1:
        special["separators"] = separators
    storage.write_text(folder / "tokenizer.json", json.dumps(state, ensure_ascii=False, indent=2) + "\n")
    storage.write_json(folder / SPECIAL, special)
    write_config(_names(special, state), folder)
    if of_target is not None:
        storage.write_text(folder / TARGET, serialized(of_target))
    tokenizer = load(folder)
    for text in PROBES:
        with parsing("this tokenizer cannot encode text", checkpoint):
            back, expected = tokenizer.decode(tokenizer.encode(text)), tokenizer.normalize(text)
        if back == expected or not special["keeps_text"]:
            continue
        if special["mask"] is None and _decoder_start(checkpoint) is None:
            raise UserError(
                f"this tokenizer does not give a text back: {expected!r} becomes {back!r}; bits per byte would mean"
                " nothing, so train a tokenizer of your own",
                checkpoint,
            )
        special["keeps_text"] = tokenizer.keeps_text = False
        storage.write_json(folder / SPECIAL, special)
    return tokenizer


def _separators(processor: Mapping[str, Any] | None) -> int:
    """Return how many tokens stand between the two texts of a pair, 1 or 2, by a tokenizer.json's post-processor."""
    counts = [1]
    for step in _steps(processor, "processors"):
        if step["type"] == "RobertaProcessing":
            counts.append(2)
        elif step["type"] == "TemplateProcessing":
            texts = [place for place, part in enumerate(step["pair"]) if "Sequence" in part]
            counts.append(texts[-1] - texts[0] - 1)
    return min(max(counts), 2)


def _is_ours(folder: Path) -> bool:
    """Whether the folder holds a tokenizer of lexmill, trained or imported (a model folder or an export)."""
    if (folder / SPECIAL).is_file():
        return True
    try:
        load(folder)
    except UserError:
        return False
    return True


def _backend(checkpoint: Path) -> tokenizers.Tokenizer:
    path = checkpoint / "tokenizer.json"
    if path.is_file():
        return read_backend(path)[1]
    from transformers import AutoTokenizer  # converts old folders without a tokenizer.json

    with parsing("no tokenizer.json, and transformers cannot make one from this folder", checkpoint):
        # Code of the checkpoint is never run; without the argument, transformers would ask at the terminal.
        made = AutoTokenizer.from_pretrained(checkpoint, local_files_only=True, trust_remote_code=False)
        return made.backend_tokenizer


def _special(state: Mapping[str, Any], checkpoint: Path) -> dict[str, Any]:
    """The contents of `special_tokens.json`."""
    ids = {token["content"]: token["id"] for token in state["added_tokens"]}
    model, vocabulary = state["model"], state["model"].get("vocab", {})
    if isinstance(vocabulary, list):  # Unigram: [piece, score] in the order of the ids
        vocabulary = {piece: i for i, (piece, _) in enumerate(vocabulary)}
    wordpiece = model["type"] == "WordPiece"
    named = (_BERT if wordpiece else {}) | _declared(checkpoint)
    if marian.is_marian(checkpoint):
        named = marian.SPECIAL_TOKENS | named
    found = {role: ids.get(named.get(role, ""), vocabulary.get(named.get(role, ""))) for role in ROLES}
    eos = found["eos"] if found["eos"] is not None else _config_eos(checkpoint)
    if eos is None:
        raise UserError("this tokenizer names no end token (eos_token), which must end each document", checkpoint)
    unseen = {token["id"] for token in state["added_tokens"] if token["special"]} | {eos}
    unk = _unknown(model, vocabulary)
    if (first := _decoder_start(checkpoint)) is not None:
        found["bos"] = first
    return {
        "eos": eos,
        "bos": eos if found["bos"] is None else found["bos"],
        "pad": eos if found["pad"] is None else found["pad"],
        "mask": found["mask"],
        "unk": unk,
        "unseen": sorted(unseen - {unk}),
        "cuts_at_space": _cuts_at_space(state),
        "space_mark": any(is_space_mark(step) for step in _steps(state.get("normalizer"), "normalizers")),
        "keeps_text": not wordpiece,
        "origin": origin(checkpoint),
    }


def _declared(checkpoint: Path) -> dict[str, str]:
    """The special tokens in tokenizer_config.json and special_tokens_map.json: role -> token."""
    data: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        data |= {key: value for key, value in _read(checkpoint / name).items() if value is not None}
    found: dict[str, str] = {}
    for role in ROLES:
        for name in (f"{role}_token", _ELSE.get(role, "")):
            token = data.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                found.setdefault(role, token)
    return found


def _config_eos(checkpoint: Path) -> int | None:
    value = _read(checkpoint / "config.json").get("eos_token_id")
    value = value[0] if isinstance(value, list) and value else value
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _decoder_start(checkpoint: Path) -> int | None:
    """Return the token that the decoder starts with; None: it is no encoder-decoder."""
    config = _read(checkpoint / "config.json")
    if not config.get("is_encoder_decoder"):
        return None
    for found in (config, _read(checkpoint / "generation_config.json")):
        value = found.get("decoder_start_token_id")
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    raise UserError(
        "config.json has no decoder_start_token_id, the token that a target begins with; write it there", checkpoint
    )


def _unknown(model: Mapping[str, Any], vocabulary: Mapping[str, int]) -> int | None:
    """The id of the unknown token; None with a byte alphabet."""
    if model["type"] == "Unigram":
        return None if model.get("byte_fallback") else model.get("unk_id")
    token = model.get("unk_token")
    if token is None or model.get("byte_fallback") or set(byte_alphabet()) <= vocabulary.keys():
        return None
    return vocabulary.get(token)


def _steps(part: Any, key: str) -> list[dict[str, Any]]:
    if part is None:
        return []
    return list(part[key]) if part["type"] == "Sequence" else [part]


def _cuts_at_space(state: Mapping[str, Any]) -> bool:
    """Whether chunks of `bulk` give the same ids: GPT-2's pattern, perhaps with single digits, and nothing else."""
    steps = _steps(state.get("pre_tokenizer"), "pretokenizers")
    last = steps[-1] if steps else {"type": ""}
    gpt2 = last["type"] == "ByteLevel" and last.get("use_regex", True) and not last.get("add_prefix_space", True)
    plain = all(step["type"] == "Digits" for step in steps[:-1])
    added = any(not token["special"] for token in state["added_tokens"])
    return bool(gpt2 and plain and not added and state.get("normalizer") is None and state["model"]["type"] == "BPE")


def _names(special: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, str]:
    """The special tokens by `transformers`' names."""
    by_id = {token["id"]: token["content"] for token in state["added_tokens"]}
    vocabulary = state["model"].get("vocab", {})
    if isinstance(vocabulary, dict):
        by_id = {i: token for token, i in vocabulary.items()} | by_id
    return {f"{role}_token": by_id[special[role]] for role in ROLES if special[role] in by_id}
