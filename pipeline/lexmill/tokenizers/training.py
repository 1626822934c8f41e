"""Train a tokenizer on a stream of texts: the same bytes every time, in every process.

The trainers of `tokenizers` number symbols in the order of a randomly seeded hash map. The order does not affect
byte-level BPE and whole words, but WordPiece and Unigram (ties between equally frequent pairs, floating-point sums). So
WordPiece training gets its symbols in a fixed order, and Unigram training (`unigram`) counts in integers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from lexmill.base.errors import UserError
from lexmill.tokenizers import kinds
from lexmill.tokenizers.bulk import pieces
from lexmill.tokenizers.counting import (
    Texts,
    alphabet,
    by_frequency,
    count_characters,
    ordinary_tokens,
    trained,
    within,
)
from lexmill.tokenizers.kinds import CONTINUES, Kind
from lexmill.tokenizers.tokenizer import SPECIAL_TOKENS, UNK
from lexmill.tokenizers.unigram import train_unigram

# Longer runs of characters are cut in training: the time of BPE is quadratic in the length of a run.
_LONGEST_RUN = 4000


def train(
    kind: Kind,
    texts: Texts,
    *,
    vocab_size: int,
    min_frequency: int = 1,
    lowercase: bool = False,
    share: float = 1.0,
) -> tokenizers.Tokenizer:
    """Train a tokenizer.

    Args:
        kind: the algorithm, see `kinds`.
        texts: returns a fresh iterator over the training texts; read once to three times, never held in memory.
        vocab_size: the maximum number of entries, special tokens included; 0: no bound (byte, character).
        min_frequency: rarer pairs (bpe, wordpiece, unigram), words or characters are left out.
        lowercase: lowercase texts first.
        share: of the texts, drawn evenly in pieces of about 2,000 characters; memory grows with the different words.

    Raises:
        UserError: there is no text, a text is not Unicode, or vocab_size cannot be met by this kind.
    """
    if kind == "byte":
        if vocab_size not in (0, 256 + len(SPECIAL_TOKENS)):
            raise UserError(f"vocab_size: a byte tokenizer has 261 entries, got {vocab_size}; leave it out (0)")
        return kinds.assemble(kind, kinds.byte_model(), lowercase)

    def stream() -> Iterator[str]:
        normalizer, drawn = kinds.normalizer(kind, lowercase), evenly(share)
        for text in texts():
            _check_unicode(text)
            for piece in pieces(text):
                if not drawn():
                    continue
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
    elif kind in ("word", "blanks"):
        model = _words(stream, vocab_size, min_frequency, kind)
    elif kind == "wordpiece":
        model = _wordpiece(stream, characters, room, min_frequency)
    else:
        model = train_unigram(stream, characters, room, min_frequency)
    return kinds.assemble(kind, model, lowercase)


def evenly(share: float) -> Callable[[], bool]:
    """Return a function that is true for this share of its calls, the same ones each time.

    The multiples of the golden ratio, modulo 1, cover the unit interval evenly from any start (Knuth, The Art of
    Computer Programming 3, section 6.4), so no regular order of texts, as source and target by turns, matters.
    """
    turns = count()
    most = round(share * _TURN)
    return lambda: next(turns) * _GOLDEN % _TURN < most


_TURN = 1 << 64
_GOLDEN = 11400714819323198485  # _TURN over the golden ratio


def _check_unicode(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"a training text is not Unicode: a lone surrogate at character {error.start} of {text[:40]!a}"
        ) from None


def _bpe(stream: Texts, vocab_size: int, min_frequency: int) -> models.Model:
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return trained(stream, models.BPE(), trainer, "bpe").model


def _words(stream: Texts, vocab_size: int, min_frequency: int, kind: Kind) -> models.Model:
    trainer = trainers.WordLevelTrainer(
        vocab_size=vocab_size, min_frequency=min_frequency, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    model = models.WordLevel(unk_token=SPECIAL_TOKENS[UNK])
    return kinds.word_model(ordinary_tokens(trained(stream, model, trainer, kind)))


def _wordpiece(stream: Texts, characters: Counter[str], room: int, min_frequency: int) -> models.Model:
    """Train with the WordPiece trainer of `tokenizers`, with a fixed order of the symbols that continue a word.

    The trainer numbers these symbols in the order of a hash map, and breaks ties by number. Passed as special tokens,
    they are numbered in the given order; the model then has them as ordinary ones.
    At most half of the vocabulary is single characters; text is split at the rarer ones.
    """
    kept = alphabet(characters, max(1, room // 4))
    trainer = trainers.WordPieceTrainer(
        vocab_size=len(SPECIAL_TOKENS) + room,
        min_frequency=min_frequency,
        special_tokens=[*SPECIAL_TOKENS, *(CONTINUES + character for character in kept)],
        continuing_subword_prefix=CONTINUES,
        show_progress=False,
    )
    model = models.WordPiece(unk_token=SPECIAL_TOKENS[UNK])
    stream = within(stream, characters.keys() - set(kept))
    return kinds.wordpiece_model(ordinary_tokens(trained(stream, model, trainer, "wordpiece")))
