"""A trained tokenizer as the other rooms see it: text to ids and back, nothing added, nothing eaten."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lexmill import storage
from lexmill.errors import UserError

if TYPE_CHECKING:
    import tokenizers

PAD, UNK, BOS, EOS, MASK = range(5)
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")  # their ids are their places, in every kind
_UNSEEN = frozenset({PAD, BOS, EOS, MASK})  # what decode leaves out; an unknown token is shown


class Tokenizer:
    """Text to ids and back.

    Special tokens are never added by `encode`, and one typed in the text stays text.

    Attributes:
        vocab_size: ids are 0 .. vocab_size - 1.
        pad_id, bos_id, eos_id, mask_id: the special tokens.
        unk_id: the unknown token; None where it cannot occur (bytes are the alphabet).
        fingerprint: sha256 of tokenizer.json.
    """

    def __init__(self, backend: tokenizers.Tokenizer, fingerprint: str) -> None:
        # Lost on save, so it is set at every load: "</s>" in a text is four characters, not the end token.
        backend.encode_special_tokens = True
        backend.no_padding()
        backend.no_truncation()
        self.backend, self.fingerprint = backend, fingerprint
        self.vocab_size: int = backend.get_vocab_size()
        self.pad_id, self.bos_id, self.eos_id, self.mask_id = PAD, BOS, EOS, MASK
        model = json.loads(backend.to_str())["model"]
        byte_alphabet = model["type"] == "BPE" and model["unk_token"] is None
        self.unk_id: int | None = None if byte_alphabet else UNK

    def encode(self, text: str) -> list[int]:
        """The ids of a text; raises `UserError` for text that is not Unicode (a lone surrogate)."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of several texts, in parallel over the machine's cores; the result does not depend on them."""
        try:
            encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except (UnicodeEncodeError, TypeError):
            raise UserError(_not_unicode(texts)) from None
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of ids; no space is added or removed.

        Args:
            ids: token ids.
            skip_special: leave out padding, beginning, end and mask; an unknown token is always shown as <unk>.
        """
        kept = [int(i) for i in ids]
        if skip_special:
            kept = [i for i in kept if i not in _UNSEEN]
        return str(self.backend.decode(kept, skip_special_tokens=False))

    def normalize(self, text: str) -> str:
        """The text as the tokenizer sees it; decoding gives this text back."""
        if self.backend.normalizer is None:
            return text
        try:
            return str(self.backend.normalizer.normalize_str(text))
        except (UnicodeEncodeError, TypeError):
            raise UserError(_not_unicode([text])) from None


def _not_unicode(texts: Sequence[str]) -> str:
    for i, text in enumerate(texts):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"text {i} is not Unicode: a lone surrogate {text[error.start]!r} at character {error.start}"
    raise TypeError(f"texts must be str, got {sorted({type(text).__name__ for text in texts})}")


def load(folder: str | Path) -> Tokenizer:
    """Load a tokenizer folder; raises `UserError` where it holds none."""
    import tokenizers

    path = Path(folder) / "tokenizer.json"
    if not path.is_file():
        raise UserError("there is no tokenizer here; run the tokenizer stage first", path)
    data = path.read_bytes()
    try:
        backend = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except Exception as error:  # the library raises a bare Exception for any fault of the file
        raise UserError(f"not a tokenizer file ({error}); run the tokenizer stage again", path) from None
    found = [backend.id_to_token(i) for i in range(len(SPECIAL_TOKENS))]
    if found != list(SPECIAL_TOKENS):
        raise UserError(f"its first tokens are {found}, they must be {list(SPECIAL_TOKENS)}", path)
    return Tokenizer(backend, storage.sha256_bytes(data))
