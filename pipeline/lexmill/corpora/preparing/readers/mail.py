"""Mails, one a file (RFC 5322): subject and body, without the other headers, which say who sent a mail and when.

The body is the plain part of a mail; where there is none, the text of its HTML. Bytes that no encoding explains are
replaced: a mail is read as far as it can be, as mail programs do.
"""

from __future__ import annotations

import email
import email.policy
from collections.abc import Iterator
from email.header import decode_header
from email.message import Message
from fnmatch import fnmatchcase
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

from lexmill.base.budgets import MAX_DOCUMENT_BYTES
from lexmill.base.errors import UserError
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.record import Record
from lexmill.corpora.preparing.text_files import Advance
from lexmill.params.readers import MailReader

_UNSEEN = ("script", "style", "head", "title")


def read(reader: MailReader, name: str, path: str, file: Path, *, errors: Errors, advance: Advance) -> Iterator[Record]:
    """Yield the mail of a file; its label is that of the first glob that its folder's name matches."""
    size = file.stat().st_size
    if size > MAX_DOCUMENT_BYTES:
        errors.add(UserError(f"the mail is longer than {MAX_DOCUMENT_BYTES >> 20} MiB; leave the file out", file))
        return
    folder = PurePosixPath(path).parent.name
    label = next((label for glob, label in reader.labels.items() if fnmatchcase(folder, glob)), None)
    if reader.labels and label is None:
        errors.add(UserError(f"no glob of reader.labels matches its folder '{folder}'; add one, or leave it out", file))
        return
    advance(size)
    yield Record(name, None, text_of(file.read_bytes()), label=label)


def text_of(raw: bytes) -> str:
    """Return a mail's subject and body."""
    mail = email.message_from_bytes(raw, policy=email.policy.compat32)
    return f"{_subject(mail)}\n\n{_body(mail)}".strip()


def _subject(mail: Message) -> str:
    """Return the decoded subject on one line."""
    parts = []
    for part, charset in decode_header(str(mail.get("Subject", ""))):
        parts.append(part if isinstance(part, str) else _decoded(part, charset))
    return " ".join("".join(parts).split())


def _body(mail: Message) -> str:
    """Return the first plain part, else the text of the first HTML part, else nothing."""
    for wanted in ("text/plain", "text/html"):
        for part in mail.walk():
            if part.get_content_type() != wanted or part.get_filename():
                continue
            payload = part.get_payload(decode=True)
            if not isinstance(payload, bytes):
                continue
            text = _decoded(payload, part.get_content_charset())
            if (
                text := (_visible(text) if wanted == "text/html" else text)
                .replace("\r\n", "\n")
                .replace("\0", "")
                .strip()
            ):
                return text
    return ""


def _decoded(data: bytes, charset: str | None) -> str:
    """Return the text of bytes; of an unknown character set as the eight bits of Western Europe."""
    for name in (charset or "utf-8", "utf-8"):
        try:
            return data.decode(name)
        except (LookupError, ValueError):
            continue
    return data.decode("cp1252", errors="replace")


class _Visible(HTMLParser):
    """Collects the text that a reader of the page sees."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in _UNSEEN
        self.found.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self.hidden = max(0, self.hidden - (tag in _UNSEEN))
        self.found.append(" ")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.found.append(data)


def _visible(html: str) -> str:
    parser = _Visible()
    try:
        parser.feed(html)
    except (AssertionError, ValueError):  # a declaration that the parser does not know ends the page
        parser.found.append(" ")
    return " ".join("".join(parser.found).split())
