"""Mark what differs between two texts, word by word."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from markupsafe import Markup, escape

from lexmill.report.svg import clean

_WORD = re.compile(r"\s+|\w+|[^\w\s]")


def marked(text: str, other: str) -> Markup:
    """Return the text as HTML with `<mark>` around what the other one lacks; white space is never marked by itself."""
    ours, theirs = (_WORD.findall(clean(one)) for one in (text, other))
    parts = []
    for name, start, end, _, _ in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        part = "".join(ours[start:end])
        if name == "equal" or not part.strip():
            parts.append(escape(part))
        else:
            parts.append(Markup("<mark>{}</mark>").format(part))
    return Markup("").join(parts)
