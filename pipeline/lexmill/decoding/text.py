"""Decode tokens one by one: which text is final, and whether it has reached a stop string.

A token may end in the middle of a character, and a stop string may span tokens or begin inside one. So text is returned
only when no later token can change it: whole characters, and no end that may become a stop string. The joined pieces
are the text of all tokens decoded at once, up to the first stop string.
Cost: decoding the last few tokens once a token; O(1) memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from lexmill.tokenizers import Tokenizer

UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # decoded from bytes that are not, or not yet, a character
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")  # a byte in a vocabulary with byte fallback


class GrowingText:
    """The text after a prompt, fed token by token.

    Attributes:
        stopped: whether a stop string was reached, which ends the text.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str] = ()) -> None:
        """`prompt`: the tokens before the text; their text is left out."""
        self.stopped = False
        self._tokenizer, self._stop = tokenizer, stop
        self._context, self._before = list(prompt), tokenizer.decode(prompt)  # final, and its text alone
        self._waiting: list[int] = []  # not final yet
        self._held = ""  # final, but perhaps the beginning of a stop string

    def add(self, token: int) -> str:
        """Add one token; return the text that becomes final, often none."""
        self._waiting.append(token)
        new = self._read()
        text = self._held + new
        if self._stop and (cut := first_of(self._stop, text)) is not None:
            self.stopped, self._waiting, self._held = True, [], ""
            return text[:cut]
        is_byte = _BYTE.fullmatch(self._tokenizer.backend.id_to_token(token) or "")
        if not new or new.endswith(UNFINISHED) or is_byte:
            return ""
        # The next tokens are decoded after these only: a token's text may depend on the one before it.
        self._context, self._waiting = self._waiting, []
        self._before = self._tokenizer.decode(self._context)
        keep = beginning_of(self._stop, text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Return the rest of the text after the last token."""
        if self.stopped:
            return ""
        rest = self._held + text_behind(self._tokenizer, self._context, self._waiting)
        self._waiting, self._held = [], ""
        return rest

    def _read(self) -> str:
        """The present text of the waiting tokens."""
        whole = self._tokenizer.decode([*self._context, *self._waiting])
        # Waiting bytes can make the bytes right before them undecodable for now.
        return whole[len(self._before) :] if whole.startswith(self._before) else ""


def text_behind(tokenizer: Tokenizer, before: Sequence[int], tokens: Sequence[int]) -> str:
    """The text of tokens after others: a token's text may depend on the one before it."""
    start, whole = tokenizer.decode(before), tokenizer.decode([*before, *tokens])
    return whole[len(start) :] if whole.startswith(start) else tokenizer.decode(tokens)


def first_of(stop: Sequence[str], text: str) -> int | None:
    """The index of the first stop string in the text; None without one."""
    places = [place for place in (text.find(one) for one in stop) if place >= 0]
    return min(places, default=None)


def beginning_of(stop: Sequence[str], text: str) -> int:
    """How many characters at the end of the text are the beginning of a stop string."""
    longest = max((len(one) for one in stop), default=1) - 1
    lengths = range(min(longest, len(text)), 0, -1)
    return next((n for n in lengths if any(one.startswith(text[len(text) - n :]) for one in stop)), 0)
