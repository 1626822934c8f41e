"""Finds e-mail addresses, card numbers and phone numbers in text, to count, mask or drop them.

Patterns of written forms, not proofs: a card number must have a card's length, first digit and check digit (Luhn,
ISO/IEC 7812-1); a phone number a country code, an area code in brackets or after a 0, or the form 555-123-4567. Names
and addresses are not found. Cost: linear in the text.
"""

from __future__ import annotations

import re
from collections import Counter

EMAIL, CARD, PHONE = "email", "card", "phone"
KINDS = (EMAIL, CARD, PHONE)
"""In the order of the search: the sixteen digits of a card may also look like a phone number."""

_START, _END = r"(?<![\w.+-])", r"(?![\w-])"
_PATTERNS = {
    EMAIL: re.compile(
        r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9_%+-][A-Za-z0-9._%+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}"
        r"(?![A-Za-z0-9-])"
    ),
    CARD: re.compile(
        _START
        + r"(?:[2-6][0-9]{12,18}"
        + r"|[2-6][0-9]{3}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{3})?"  # Visa, Mastercard ...
        + r"|3[0-9]{3}([ -])[0-9]{6}\2[0-9]{5})"  # American Express
        + _END
    ),
    PHONE: re.compile(
        r"(?<![\w.+-])(?:"
        r"(?:\+|00)[1-9](?:[ ./-]?(?:\([0-9]{1,4}\)[ -]?)?[0-9]){7,14}"  # +49 30 1234567, +44 (0)20 7946 0958
        r"|\([0-9]{2,5}\)[ -]?[0-9]{3,4}[ -]?[0-9]{3,5}"  # (030) 1234567, (555) 123-4567
        r"|[0-9]{3}([-.])[0-9]{3}\1[0-9]{4}"  # 555-123-4567
        r"|0[0-9]{2,4}[-/ ][0-9]{5,9}"  # 0171 1234567
        r")" + _END
    ),
}


def first_kind(text: str) -> str | None:
    """Return the first of `KINDS` that occurs in the text."""
    return next((kind for kind in KINDS if any(_real(kind, hit[0]) for hit in _PATTERNS[kind].finditer(text))), None)


def masked(text: str, counts: Counter[str]) -> str:
    """Return the text with `<email>`, `<card>` and `<phone>` in place of what was found; count each by kind."""
    for kind in KINDS:

        def replaced(hit: re.Match[str], kind: str = kind) -> str:
            if not _real(kind, hit[0]):
                return hit[0]
            counts[kind] += 1
            return f"<{kind}>"

        text = _PATTERNS[kind].sub(replaced, text)
    return text


def _real(kind: str, found: str) -> bool:
    return kind != CARD or _luhn([int(digit) for digit in found if digit.isdigit()])


def _luhn(digits: list[int]) -> bool:
    """Whether the last digit is the check digit: every second digit from the right doubled, its digits added."""
    doubled = (digit if i % 2 == 0 else sum(divmod(2 * digit, 10)) for i, digit in enumerate(reversed(digits)))
    return sum(doubled) % 10 == 0
