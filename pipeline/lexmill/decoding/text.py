"""The text of tokens that come one by one: what of it is settled, and whether it has reached a stop string.

A token may end in the middle of a character, and a stop string may span tokens or begin in the middle of one. So text
is given away only when no later token can change it: whole characters, and no end that may yet become a stop string.
Joined, the pieces are what decoding all tokens at once gives, up to the first stop string.
Cost: decoding the last few tokens once a token; O(1) memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lexmill.tokenizers import Tokenizer

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what stands for bytes that are no character, or not yet one
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # a byte in a vocabulary that spells rare characters by their bytes


class GrowingText:
    """The text after a prompt, fed token by token.

    Attributes:
        stopped: whether a stop string was reached; what comes after it is not wanted.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str] = ()) -> None:
        """Args: prompt: the tokens before the text, whose own text is left out."""
        self.stopped = False
        self._tokenizer, self._stop = tokenizer, stop
        self._context, self._before = list(prompt), tokenizer.decode(prompt)  # settled, and how that reads alone
        self._waiting: list[int] = []  # not settled yet
        self._held = ""  # settled, but it may begin a stop string

    def add(self, token: int) -> str:
        """Take one token; gives the text that it settles, often none."""
        self._waiting.append(token)
        new = self._read()
        text = self._held + new
        if self._stop and (cut := first_of(self._stop, text)) is not None:
            self.stopped, self._waiting, self._held = True, [], ""
            return text[:cut]
        if not new or new.endswith(UNFINISHED) or self._is_byte(token):
            return ""
        # The next tokens are read behind these only: a token's text may depend on the one before it.
        self._context, self._waiting = self._waiting, []
        self._before = self._tokenizer.decode(self._context)
        keep = beginning_of(self._stop, text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """The rest of the text when no token follows."""
        if self.stopped:
            return ""
        rest = self._held + text_behind(self._tokenizer, self._context, self._waiting)
        self._waiting, self._held = [], ""
        return rest

    def _read(self) -> str:
        """The text of the waiting tokens, as it is now."""
        whole = self._tokenizer.decode([*self._context, *self._waiting])
        # Else bytes that wait make those before them, which they follow without a gap, unreadable for now.
        return whole[len(self._before) :] if whole.startswith(self._before) else ""

    def _is_byte(self, token: int) -> bool:
        return _BYTE.fullmatch(self._tokenizer.backend.id_to_token(token) or "") is not None


def text_behind(tokenizer: Tokenizer, before: Sequence[int], tokens: Sequence[int]) -> str:
    """The text of tokens where they stand: a token's text may depend on the one before it."""
    start, whole = tokenizer.decode(before), tokenizer.decode([*before, *tokens])
    return whole[len(start) :] if whole.startswith(start) else tokenizer.decode(tokens)


def first_of(stop: Sequence[str], text: str) -> int | None:
    """Where the first stop string in the text begins; None: it holds none."""
    places = [place for place in (text.find(one) for one in stop) if place >= 0]
    return min(places, default=None)


def beginning_of(stop: Sequence[str], text: str) -> int:
    """How many characters at the end of the text are the beginning of a stop string."""
    longest = max((len(one) for one in stop), default=1) - 1
    lengths = range(min(longest, len(text)), 0, -1)
    return next((n for n in lengths if any(one.startswith(text[len(text) - n :]) for one in stop)), 0)
