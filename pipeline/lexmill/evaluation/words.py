"""Words of a corpus or of a vocabulary, and their tokens inside a text.

A word is what the tokenizer `word` takes for one: letters and marks, with apostrophes inside, case as it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus, texts_of
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.counting import by_frequency
from lexmill.tokenizers.kinds import pre_tokenizer

Texts = Callable[[dict[str, Any]], tuple[str, ...]]
MOST_WORDS = 20_000
MOST_CHARACTERS = 20_000_000  # of a larger corpus, which adds hardly a frequent word
_BEFORE = "a "  # a word inside a text has white space before it


def frequent_words(
    corpus: PreparedCorpus, most: int = MOST_WORDS, split: str = "train", *, texts: Texts = texts_of
) -> list[str]:
    """Return the words of a split's first `MOST_CHARACTERS`, most frequent first; of a record those of its `texts`.

    Cost: about 0.1 s a million characters; memory O(different strings between white space).
    """
    strings: Counter[str] = Counter()
    read = 0
    for record in corpus.records(split):
        for text in texts(record):
            strings.update(text.split())
            read += len(text)
        if read >= MOST_CHARACTERS:
            break
    counts: Counter[str] = Counter()
    cut = cutter()
    for string, count in strings.items():  # each different one is cut once
        for word in cut(string):
            counts[word] += count
    return by_frequency(counts)[:most]


def cutter() -> Callable[[str], list[str]]:
    """Return a function that gives the words of a text, in order."""
    pieces = pre_tokenizer("word")
    assert pieces is not None

    def cut(text: str) -> list[str]:
        found = (piece.strip() for piece, _ in pieces.pre_tokenize_str(text))
        return [piece for piece in found if piece[:1].isalpha()]

    return cut


def vocabulary_words(tokenizer: Tokenizer, most: int = MOST_WORDS) -> list[str]:
    """Return the entries that are whole words, in the order of their ids.

    An entry is one if its text is a word that, inside a text, is encoded as this entry alone.
    """
    texts = [tokenizer.decode([i]).strip() for i in range(tokenizer.vocab_size)]
    tokens = word_tokens(texts, tokenizer)
    cut = cutter()
    found = (text for i, text in enumerate(texts) if tokens[i] == [i] and cut(text) == [text])
    return list(dict.fromkeys(found))[:most]


def word_tokens(words: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the ids of each word as it stands inside a text.

    A token that has the space before the word and a beginning of it is the word's; one that is only the space is not.

    Raises:
        UserError: a word is not Unicode.
    """
    try:
        encodings = tokenizer.backend.encode_batch([_BEFORE + word for word in words], add_special_tokens=False)
    except (UnicodeEncodeError, TypeError):
        raise UserError("a word is not Unicode: it has a lone surrogate") from None
    return [[i for i, (_, end) in zip(one.ids, one.offsets, strict=True) if end > len(_BEFORE)] for one in encodings]
