"""Mails: subject and body as people see them, nothing of the other headers, whatever the encoding."""

from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path

import pytest

from lexmill.base.strict import build
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers import mail
from lexmill.corpora.preparing.readers.mail import text_of
from lexmill.params.readers import MailReader

LABELS = {"spam-*": "spam", "*-ham-*": "ham"}


def test_only_subject_and_body_are_read() -> None:
    raw = b"From: spammer@example.org\nSubject: Win\n now\nX-Spam: yes\nDate: today\n\nDear friend,\r\nread this.\n"
    assert text_of(raw) == "Win now\n\nDear friend,\nread this."


def test_encoded_subjects_and_bodies_are_decoded() -> None:
    raw = b"Subject: =?iso-8859-1?Q?Caf=E9?= =?utf-8?B?4oKs?=\nContent-Type: text/plain; charset=iso-8859-1\n"
    raw += b"Content-Transfer-Encoding: quoted-printable\n\nna=EFve=\n ends\n"
    assert text_of(raw) == "Café€\n\nnaïve ends"
    assert text_of(b"Subject: x\nContent-Type: text/plain; charset=no-such\n\n\x93a\x94") == "x\n\n\u201ca\u201d"


def test_the_plain_part_goes_before_html_and_attachments_are_left_out() -> None:
    made = EmailMessage()
    made["Subject"] = "Both"
    made.set_content("plain words")
    made.add_alternative("<p>rich words</p>", subtype="html")
    made.add_attachment("secret", filename="notes.txt")
    assert text_of(made.as_bytes()) == "Both\n\nplain words"


def test_of_html_alone_its_visible_text_is_read() -> None:
    raw = b"Subject: Page\nContent-Type: text/html\n\n<html><head><title>t</title><style>b{}</style></head>"
    raw += b"<body>Buy&nbsp;<b>now</b><script>alert(1)</script>!<br>50% &lt; 60%</body></html>"
    assert text_of(raw) == "Page\n\nBuy now ! 50% < 60%"


@pytest.mark.parametrize("raw", [b"", b"\xff\xfe\x00", b"no headers at all", b"Subject: =?bad?Q?=\n\nbody"])
def test_no_bytes_stop_the_reading(raw: bytes) -> None:
    assert isinstance(text_of(raw), str)


def test_the_label_is_that_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_bytes(b"Subject: a\n\nb")
    reader, errors, advanced = MailReader("mail", LABELS), Errors(), list[int]()
    found = [
        record.label
        for folder in ("spam-2", "hard-ham-1")
        for record in mail.read(
            reader, folder, f"data/{folder}/1.txt", tmp_path / "1.txt", errors=errors, advance=advanced.append
        )
    ]
    assert (found, advanced, bool(errors)) == (["spam", "ham"], [13, 13], False)
    assert list(mail.read(reader, "x", "data/else/1.txt", tmp_path / "1.txt", errors=errors, advance=len)) == []
    assert bool(errors)


def test_a_labelled_corpus_needs_labels_and_a_plain_one_has_none() -> None:
    errors = list[str]()
    reader = build(MailReader, {"format": "mail", "labels": LABELS}, errors)
    assert isinstance(reader, MailReader)
    assert (reader.unfit("labelled"), errors) == ([], [])
    assert reader.unfit("text") == ["labels: a text corpus has no labels; leave them out"]
    assert MailReader("mail").unfit("labelled")[0].startswith("labels: mails of a labelled corpus need it")
    for kind in ("parallel", "conversation", "tagged", "questions"):
        assert MailReader("mail").unfit(kind) == [f"format: 'mail' cannot give a {kind} corpus"]
