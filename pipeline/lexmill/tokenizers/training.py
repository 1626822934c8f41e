"""Training a tokenizer on a stream of texts: the same bytes every time, in every process.

The trainers of `tokenizers` number symbols in the order of a randomly seeded hash map. For byte-level BPE and whole
words that order does not reach the result; for WordPiece and Unigram it does (ties between equally frequent pairs
fall differently, floating-point sums differ). Here WordPiece training is given its symbols in a fixed order, and
Unigram training (`unigram`) counts in whole numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from lexmill.base.errors import UserError
from lexmill.tokenizers import kinds
from lexmill.tokenizers.bulk import pieces
from lexmill.tokenizers.counting import Texts, alphabet, by_frequency, count_characters, ordinary_tokens, within
from lexmill.tokenizers.kinds import CONTINUES, Kind
from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS, UNK
from lexmill.tokenizers.unigram import train_unigram

# Characters without a break are cut here in training: BPE takes the square of a run's length (2 million: for ever).
_LONGEST_RUN = 4000


def train(
    kind: Kind, texts: Texts, *, vocab_size: int, min_frequency: int = 1, lowercase: bool = False
) -> tokenizers.Tokenizer:
    """Train a tokenizer.

    Args:
        kind: the algorithm, see `kinds`.
        texts: gives a fresh iterator over the training texts; read once to three times, never held in memory.
        vocab_size: most entries, special tokens included; 0: no bound (byte, character).
        min_frequency: a pair (bpe, wordpiece, unigram), word or character seen less often is left out.
        lowercase: fold case first.

    Raises:
        UserError: there is no text, a text is not Unicode, or vocab_size cannot be met by this kind.
    """
    if kind == "byte":
        if vocab_size not in (0, 256 + len(SPECIAL_TOKENS)):
            raise UserError(f"vocab_size: a byte tokenizer has 261 entries, got {vocab_size}; leave it out (0)")
        return kinds.assemble(kind, kinds.byte_model(), lowercase)

    def stream() -> Iterator[str]:
        normalizer = kinds.normalizer(lowercase)
        for text in texts():
            _check_unicode(text)
            for piece in pieces(text):
                for start in range(0, len(piece), _LONGEST_RUN):
                    run = piece[start : start + _LONGEST_RUN]
                    yield normalizer.normalize_str(run) if normalizer else run

    characters = count_characters(stream())
    if not characters:
        raise UserError("the train split holds no text to train a tokenizer on; see what prepare removed")
    room = vocab_size - len(SPECIAL_TOKENS)
    if kind == "bpe":
        model = _bpe(stream, vocab_size, min_frequency)
    elif kind == "character":
        frequent = [c for c in by_frequency(characters) if characters[c] >= min_frequency]
        model = kinds.character_model(frequent[:room] if vocab_size else frequent)
    elif kind == "word":
        model = _words(stream, vocab_size, min_frequency)
    elif kind == "wordpiece":
        model = _wordpiece(stream, characters, room, min_frequency)
    else:
        model = train_unigram(stream, characters, room, min_frequency)
    return kinds.assemble(kind, model, lowercase)


def _check_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"a training text is not Unicode: a lone surrogate at character {error.start} of {text[:40]!a}"
        ) from None


def _bpe(stream: Texts, vocab_size: int, min_frequency: int) -> models.Model:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = kinds.pre_tokenizer("bpe")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(stream(), trainer)
    return backend.model


def _words(stream: Texts, vocab_size: int, min_frequency: int) -> models.Model:
    backend = tokenizers.Tokenizer(models.WordLevel(unk_token=SPECIAL_TOKENS[UNK]))
    backend.pre_tokenizer = kinds.pre_tokenizer("word")
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    backend.train_from_iterator(stream(), trainer)
    return kinds.word_model(ordinary_tokens(backend))


def _wordpiece(stream: Texts, characters: Counter[str], room: int, min_frequency: int) -> models.Model:
    """The WordPiece trainer of `tokenizers`, given every symbol that starts or continues a word beforehand.

    Left to itself it meets the continuing symbols in the order of a hash map, and their numbers break its ties. They
    are passed as special tokens, which get their numbers in the order given, and are taken out of that role after.
    At most half of the vocabulary goes to single characters; text is cut at the rarer ones.
    """
    kept = alphabet(characters, max(1, room // 4))
    backend = tokenizers.Tokenizer(models.WordPiece(unk_token=SPECIAL_TOKENS[UNK]))
    backend.pre_tokenizer = kinds.pre_tokenizer("wordpiece")
    trainer = trainers.WordPieceTrainer(
        vocab_size=len(SPECIAL_TOKENS) + room,
        min_frequency=min_frequency,
        special_tokens=[*SPECIAL_TOKENS, *(CONTINUES + character for character in kept)],
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    backend.train_from_iterator(within(stream, characters.keys() - set(kept))(), trainer)
    return kinds.wordpiece_model(ordinary_tokens(backend))
