"""A little text, and a tokenizer of each kind trained on it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.training import train

KINDS = ("bpe", "wordpiece", "unigram", "byte", "character", "word")  # blanks, which normalises, has its own tests

TEXTS = [
    "Where are you going, little one?\nI don't know yet, said the little one;\n\n  but I am going.",
    "The river ran past the mill, and the mill ran on the river. It's 1609 -- or 1610?",
    "Größe, café, naïve: Wörter mit Umlauten. «Où?» ¿Qué? Ελληνικά και русский текст.",
    "She sang    and sang \t and the mill-wheel turned\r\nround & round (42 times) # ## ### end_of_line",
    "I was going to the river to look for the little one that was going to the mill.",
] * 3


def size(kind: str) -> int:
    return {"byte": 0, "character": 0, "word": 60}.get(kind, 330)


@cache
def trained(kind: str, lowercase: bool = False) -> Tokenizer:
    backend = train(kind, lambda: TEXTS, vocab_size=size(kind), min_frequency=2, lowercase=lowercase)  # type: ignore[arg-type]
    return Tokenizer(backend, "0" * 64)


def saved(kind: str, folder: Path, lowercase: bool = False) -> Path:
    from lexmill.tokenizers.saving import save

    folder.mkdir(parents=True)
    save(trained(kind, lowercase).backend, folder)
    return folder
