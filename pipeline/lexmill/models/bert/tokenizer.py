"""The tokenizer that came with a pretrained encoder, in the format of `tokenizers`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lexmill.base.errors import UserError
from lexmill.base.storage import sha256_bytes

if TYPE_CHECKING:
    import tokenizers

FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt")  # the last three may lack


class PretrainedTokenizer:
    """Texts to ids as the encoder was trained on: `[CLS] text [SEP]`, longer texts cut.

    A special token typed in a text stays text. Padding is the batch's business.

    Attributes:
        vocab_size: ids are 0 .. vocab_size - 1.
        fingerprint: sha256 of tokenizer.json.
    """

    def __init__(self, backend: tokenizers.Tokenizer, fingerprint: str) -> None:
        # Lost on save, so it is set at every load: "[SEP]" in a text is five characters, not the separator.
        backend.encode_special_tokens = True
        backend.no_padding()
        backend.no_truncation()
        self.backend, self.fingerprint = backend, fingerprint
        self.vocab_size: int = backend.get_vocab_size()

    def encode_batch(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """The ids of texts, at most `max_tokens` each, the special tokens around the text included.

        Raises:
            UserError: a text is not Unicode (a lone surrogate).
        """
        self.backend.enable_truncation(max_tokens)
        try:
            return [encoding.ids for encoding in self.backend.encode_batch_fast(list(texts))]
        except (UnicodeEncodeError, TypeError):
            bad = next((i for i, text in enumerate(texts) if not _is_unicode(text)), None)
            if bad is None:
                raise
            raise UserError(f"text {bad} is not Unicode (a lone surrogate)") from None


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def load(folder: str | Path) -> PretrainedTokenizer:
    """Load the tokenizer of a checkpoint, or the one in a model folder; raises `UserError` where there is none."""
    import tokenizers

    path = Path(folder) / FILES[0]
    try:
        data = path.read_bytes()
        backend = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    except FileNotFoundError:
        raise UserError("there is no tokenizer here; a checkpoint needs its tokenizer.json", path) from None
    except Exception as error:  # the library raises a bare Exception for any fault of the file
        raise UserError(f"not a tokenizer file ({error})", path) from None
    return PretrainedTokenizer(backend, sha256_bytes(data))


def copy(checkpoint: str | Path, target: str | Path) -> None:
    """Copy a checkpoint's tokenizer files into a new folder."""
    target = Path(target)
    target.mkdir()
    for name in FILES:
        if (Path(checkpoint) / name).is_file():
            shutil.copyfile(Path(checkpoint) / name, target / name)
