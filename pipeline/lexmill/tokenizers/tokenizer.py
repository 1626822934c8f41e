"""Tokenizers as the other packages use them: text to ids and back, without adding or losing anything.

Those trained here have the five special tokens as their first ids. Those of pretrained models have their own, listed in
`special_tokens.json` next to tokenizer.json (written by `lexmill.tokenizers.imported`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base import storage
from lexmill.base.budgets import MAX_JSON_BYTES, MAX_VOCABULARY, MIB
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.outside import parsing, read_json_object
from lexmill.base.strict import build, spec

if TYPE_CHECKING:
    import tokenizers

PAD, UNK, BOS, EOS, MASK = range(5)
NEVER_WRITTEN = (PAD, UNK, BOS, MASK)
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")  # by id, in every kind
SPACE_MARK = "\u2581"  # SentencePiece's lower one eighth block
GOES_ON = "@@"  # at the end of a subword in tokenised text (Sennrich et al. 2016): its word goes on in the next one
SPECIAL = "special_tokens.json"  # next to the tokenizer.json of an imported tokenizer
TARGET = "target_tokenizer.json"  # of one that segments the targets of pairs otherwise


@dataclass(frozen=True)
class SpecialIds:
    """The ids that a search begins with, ends with, pads with, and never writes; by default a trained tokenizer's."""

    pad: int = PAD
    bos: int = BOS
    eos: int = EOS
    never_written: tuple[int, ...] = NEVER_WRITTEN


TRAINED = SpecialIds()


class Tokenizer:
    """Text to ids and back.

    `encode` never adds special tokens, and one typed in the text stays text.

    Attributes:
        vocab_size: ids are 0 .. vocab_size - 1.
        eos_id: the end token, which ends each document and precedes the first.
        pad_id, bos_id: the end token where an imported tokenizer has none (padding is always masked).
        mask_id: None where an imported tokenizer has none.
        unk_id: the unknown token; None where it cannot occur (a byte alphabet).
        unseen: ids that `decode` leaves out; an unknown token is shown.
        never_written: ids that are never generated: padding, unknown, beginning, mask.
        cuts_at_space: whether no token crosses from a visible character to white space (required by `bulk`).
        imported: whether it came with a pretrained model.
        keeps_text: whether decoding gives back every normalised text.
        at_blanks: whether its tokens are what blanks separate, of text that is tokenised already.
        between: what stands between the two texts of a pair: an end token, two as RoBERTa has it, or a delimiter.
        target: that of the targets of pairs, which has the same ids: most often itself.
        fingerprint: sha256 of tokenizer.json, and of the target's.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, fingerprint: str, special: Mapping[str, Any] | None = None
    ) -> None:
        """`special`: the contents of `special_tokens.json` of an imported tokenizer; None: one trained here."""
        # Not saved by the library, so set at every load: "</s>" in a text is four characters, not the end token.
        backend.encode_special_tokens = True
        backend.no_padding()
        backend.no_truncation()
        self.backend, self.fingerprint, self.imported = backend, fingerprint, special is not None
        self.target = self
        self.vocab_size: int = backend.get_vocab_size()
        self.pad_id, self.bos_id, self.eos_id = PAD, BOS, EOS
        self.mask_id: int | None = MASK
        self.unk_id: int | None
        self._normalizer, self.at_blanks = backend.normalizer, False
        if special is None:
            model = json.loads(backend.to_str())["model"]
            byte_alphabet = model["type"] == "BPE" and model["unk_token"] is None
            self.unk_id = None if byte_alphabet else UNK
            self.unseen = frozenset({PAD, BOS, EOS, MASK})
            self.at_blanks = model["type"] == "WordLevel" and type(backend.pre_tokenizer).__name__ == "WhitespaceSplit"
            self.cuts_at_space, self.keeps_text = not self.at_blanks, True
            self.between = [EOS]
        else:
            self.vocab_size = max(backend.get_vocab().values()) + 1  # ids may have holes
            self.pad_id, self.bos_id, self.eos_id = special["pad"], special["bos"], special["eos"]
            self.mask_id, self.unk_id = special["mask"], special["unk"]
            self.unseen = frozenset(special["unseen"])
            delimiter = special.get("delimiter")
            self.between = [self.eos_id] * special.get("separators", 1) if delimiter is None else [delimiter]
            self.cuts_at_space, self.keeps_text = special["cuts_at_space"], special["keeps_text"]
            if special["space_mark"]:
                self._normalizer = _without_space_marks(backend)
        reserved = NEVER_WRITTEN if special is None else (self.pad_id, self.unk_id, self.bos_id, self.mask_id)
        self.never_written = tuple(sorted({i for i in reserved if i is not None and i != self.eos_id}))

    @property
    def special(self) -> SpecialIds:
        """What a search must know of the ids."""
        return SpecialIds(self.pad_id, self.bos_id, self.eos_id, self.never_written)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; raise `UserError` for text that is not Unicode (a lone surrogate)."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of several texts, encoded in parallel; the result does not depend on the number of cores."""
        try:
            encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):
            raise UserError(_not_unicode(texts)) from None
        return [encoding.ids for encoding in encodings]

    def encode_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """Return the ids of each text, and of each id the span of characters of the text as given that it stands for.

        A span may be empty, hold white space at its ends, or be that of several ids (bytes of one character).
        """
        try:
            encodings = self.backend.encode_batch(list(texts), add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):
            raise UserError(_not_unicode(texts)) from None
        return [(encoding.ids, encoding.offsets) for encoding in encodings]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """Return the text of ids; no space is added or removed.

        Args:
            ids: token ids.
            skip_special: leave out padding, beginning, end and mask; an unknown token is always shown as <unk>.
        """
        kept = [int(i) for i in ids if not (skip_special and int(i) in self.unseen)]
        return str(self.backend.decode(kept, skip_special_tokens=False))

    def normalize(self, text: str) -> str:
        """Return the text as the tokenizer sees it, and as decoding gives it back, without the marks for spaces."""
        if self._normalizer is None:
            return text
        try:
            return str(self._normalizer.normalize_str(text))
        except (UnicodeEncodeError, TypeError):
            raise UserError(_not_unicode([text])) from None


def joined(text: str) -> str:
    """Return tokenised text with its subwords joined: `anst@@ arr@@ t` is `anstarrt`."""
    return f"{text} ".replace(f"{GOES_ON} ", "").removesuffix(" ")


def _not_unicode(texts: Sequence[str]) -> str:
    for i, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"text {i} is not Unicode: a lone surrogate {text[error.start]!r} at character {error.start}"
    raise TypeError(f"texts must be str, got {sorted({type(text).__name__ for text in texts})}")


def _without_space_marks(backend: tokenizers.Tokenizer) -> tokenizers.normalizers.Normalizer | None:
    """The normalizer without the steps that write a mark for each space, which decoding removes."""
    import tokenizers

    state = json.loads(backend.to_str())
    steps = state["normalizer"]["normalizers"] if state["normalizer"]["type"] == "Sequence" else [state["normalizer"]]
    kept = [step for step in steps if not is_space_mark(step)]
    if not kept:
        return None
    whole = {**state, "normalizer": {"type": "Sequence", "normalizers": kept}}
    return tokenizers.Tokenizer.from_str(json.dumps(whole)).normalizer


def is_space_mark(step: Mapping[str, Any]) -> bool:
    """Whether a step of a normalizer (as in tokenizer.json) only writes a mark for spaces, as SentencePiece does."""
    if step["type"] == "Prepend":
        return str(step["prepend"]) == SPACE_MARK
    return step["type"] == "Replace" and step["pattern"] == {"String": " "} and step["content"] == SPACE_MARK


def read_backend(path: Path) -> tuple[bytes, tokenizers.Tokenizer]:
    """Return the bytes of a tokenizer.json and its tokenizer.

    Raises:
        UserError: it is larger than `MAX_JSON_BYTES`, no tokenizer, or has no tokens or ids of over `MAX_VOCABULARY`.
    """
    import tokenizers

    if path.stat().st_size > MAX_JSON_BYTES:
        raise UserError(f"larger than {MAX_JSON_BYTES // MIB} MiB, which no tokenizer.json is", path)
    data = path.read_bytes()
    with parsing("not a tokenizer file", path):
        backend = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
        ids = backend.get_vocab().values()
    if not ids or max(ids) >= MAX_VOCABULARY:
        raise UserError(
            f"not a usable tokenizer: it has {len(ids)} tokens, with ids up to {max(ids, default=0):,}", path
        )
    return data, backend


@dataclass(frozen=True)
class _Special:
    """The contents of special_tokens.json."""

    eos: int = spec("the end token", low=0)
    bos: int = spec("the first token of a text", low=0)
    pad: int = spec("the padding token", low=0)
    mask: int | None = spec("the mask token", low=0)
    unk: int | None = spec("the unknown token", low=0)
    unseen: tuple[int, ...] = spec("ids that decoding leaves out", low=0)
    cuts_at_space: bool = spec("no token crosses from a visible character to white space")
    space_mark: bool = spec("the normalizer writes a mark for each space")
    keeps_text: bool = spec("decoding gives a text back")
    origin: str = spec("the hash of the files it was imported from")
    separators: int = spec("end tokens between the two texts of a pair", 1, low=1, high=2)
    delimiter: int | None = spec("the token between them, if it is not the end token", None, low=0)


def _read_special(path: Path, backend: tokenizers.Tokenizer) -> dict[str, Any]:
    """Return the contents of special_tokens.json; raise `UserErrors` for what is wrong or no id of the vocabulary."""
    errors: list[str] = []
    found = build(_Special, read_json_object(path), errors)
    if found is not None:
        ids = set(backend.get_vocab().values())
        for role in ("eos", "bos", "pad", "mask", "unk", "delimiter"):
            if (i := getattr(found, role)) is not None and i not in ids:
                errors.append(f"{role}: {i} is no id of tokenizer.json")
    if errors or found is None:
        raise UserErrors([UserError(f"{error}; import the tokenizer again", path) for error in errors])
    return asdict(found)


def _imported(folder: Path, data: bytes, backend: tokenizers.Tokenizer, special: Mapping[str, Any]) -> Tokenizer:
    """Return an imported tokenizer, with that of its targets if it has one."""
    path = folder / TARGET
    if not path.is_file():
        return Tokenizer(backend, storage.sha256_bytes(data), special)
    other, of_target = read_backend(path)
    if of_target.get_vocab_size() != backend.get_vocab_size():
        raise UserError("it has other ids than tokenizer.json; import the tokenizer again", path)
    fingerprint = storage.sha256_bytes(data + other)
    found = Tokenizer(backend, fingerprint, special)
    found.target = Tokenizer(of_target, fingerprint, special)
    return found


def load(folder: str | Path) -> Tokenizer:
    """Load a tokenizer folder; raise `UserError` where it holds none."""
    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise UserError("there is no tokenizer here; run the tokenizer stage first", path)
    data, backend = read_backend(path)
    special = Path(folder) / SPECIAL
    if special.is_file():
        return _imported(Path(folder), data, backend, _read_special(special, backend))
    found = [backend.id_to_token(i) for i in range(len(SPECIAL_TOKENS))]
    if found != list(SPECIAL_TOKENS):
        raise UserError(f"its first tokens are {found}, they must be {list(SPECIAL_TOKENS)}", path)
    return Tokenizer(backend, storage.sha256_bytes(data))
