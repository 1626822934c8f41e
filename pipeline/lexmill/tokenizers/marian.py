"""The tokenizer of a Marian: one vocabulary of source and target (vocab.json), a SentencePiece model for each side.

Each side becomes a Unigram model with the ids of vocab.json. Its pieces have their scores; an entry of the other side
alone has a name that no text can spell, so that it is decoded but never written by this side. A single character that
only the other side has is taken as it is, as `transformers` does; any other is unknown.

Where it finds `sacremoses`, `transformers` also changes the punctuation of a text; this does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.errors import UserError
from lexmill.base.outside import parsing, read_json_object
from lexmill.tokenizers.tokenizer import SPACE_MARK

if TYPE_CHECKING:
    import tokenizers

VOCABULARY, SIDES = "vocab.json", ("source.spm", "target.spm")
SPECIAL_TOKENS = {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"}
_ELSEWHERE = "\ue000"  # before an entry of the other side: a private character, which is taken out of texts
_LAST = -1e4  # score of what is taken only where no piece fits
_UNIGRAM, _NORMAL, _USER_DEFINED = 1, 1, 4  # of SentencePiece's protocol


def is_marian(checkpoint: Path) -> bool:
    """Whether a folder has the files of such a tokenizer, and no tokenizer.json."""
    names = (VOCABULARY, *SIDES)
    return not (checkpoint / "tokenizer.json").is_file() and all((checkpoint / name).is_file() for name in names)


def backends(checkpoint: Path) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """Return the tokenizers of source and target, which decode alike.

    Raises:
        UserError: a file is damaged, the ids have holes, or a side is no Unigram model.
    """
    path = checkpoint / VOCABULARY
    by_id = {i: piece for piece, i in read_json_object(path).items() if isinstance(i, int)}
    if not by_id or sorted(by_id) != list(range(len(by_id))):
        raise UserError("not a vocabulary: its ids are not 0, 1, 2 ... without holes", path)
    pieces = [by_id[i] for i in range(len(by_id))]
    if missing := [token for token in SPECIAL_TOKENS.values() if token not in pieces]:
        raise UserError(f"not a Marian's vocabulary: it has no {' and no '.join(missing)}", path)
    source, target = (_side(checkpoint / name, pieces) for name in SIDES)
    return source, target


def _side(path: Path, pieces: list[str]) -> tokenizers.Tokenizer:
    import tokenizers
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    model = _protocol(path)
    if model.trainer_spec.model_type != _UNIGRAM:
        raise UserError("this SentencePiece model is not a unigram model, and only these are read", path)
    scores = {one.piece: one.score for one in model.pieces if one.type in (_NORMAL, _USER_DEFINED)}
    tokens = [one for one in pieces if one in SPECIAL_TOKENS.values() or (one.startswith(">>") and one.endswith("<<"))]
    entries = [_entry(piece, scores, tokens) for piece in pieces]
    backend = tokenizers.Tokenizer(models.Unigram(entries, pieces.index(SPECIAL_TOKENS["unk"]), False))
    spec, steps = model.normalizer_spec, list[Any]()
    if spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(spec.precompiled_charsmap))
    steps.append(normalizers.Replace(_ELSEWHERE, ""))
    if spec.remove_extra_whitespaces:  # of spaces alone
        steps += [normalizers.Replace(tokenizers.Regex(found), "") for found in (r"\A +", r" +\z", r" +(?= )")]
    backend.normalizer = normalizers.Sequence(steps)
    scheme = "always" if spec.add_dummy_prefix else "never"
    backend.pre_tokenizer = pre_tokenizers.Metaspace(SPACE_MARK, prepend_scheme=scheme, split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_ELSEWHERE, ""), decoders.Metaspace(SPACE_MARK, prepend_scheme=scheme)]
    )
    backend.add_special_tokens([tokenizers.AddedToken(token, special=True, normalized=False) for token in tokens])
    return backend


def _entry(piece: str, scores: Mapping[str, float], tokens: list[str]) -> tuple[str, float]:
    """Return an entry of the vocabulary as this side has it: its name and score."""
    if piece in tokens:
        return piece, _LAST
    if piece in scores:
        return piece, scores[piece]
    return (piece, _LAST) if len(piece) == 1 else (_ELSEWHERE + piece, 0.0)


def _protocol(path: Path) -> Any:
    """Return a SentencePiece model's file, read as the data that it is."""
    if find_spec("google.protobuf") is None:
        raise UserError("a SentencePiece model needs the package protobuf: pip install protobuf", path)
    from transformers.convert_slow_tokenizer import import_protobuf

    with parsing("not a SentencePiece model", path):
        model = import_protobuf().ModelProto()
        model.ParseFromString(path.read_bytes())
    return model
