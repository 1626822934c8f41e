"""What models of whole labelled texts learn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lexmill.base.budgets import MAX_CONTEXT
from lexmill.base.strict import spec


@dataclass(frozen=True)
class LabelledTexts:
    """Labelled texts, and how long ones are read."""

    corpus: str = spec("the labelled corpus")
    tokenizer: str = spec("its tokenizer")
    max_tokens: int = spec("what the network reads at once", 128, unit="tokens", low=4, high=MAX_CONTEXT)
    long_texts: Literal["cut", "windows"] = spec(
        "longer texts: cut, or read in windows that overlap, whose outputs are averaged", "cut"
    )
    stride: int = spec("between the begins of two windows; 0: half of one", 0, unit="tokens", low=0, high=MAX_CONTEXT)

    @property
    def windows(self) -> int | None:
        """The stride of windows; None: longer texts are cut."""
        return None if self.long_texts == "cut" else self.stride

    def errors(self) -> list[str]:
        room = self.max_tokens - 2  # between begin and end token
        if self.long_texts == "cut":
            return ["stride: long texts are cut; for windows set long_texts: windows"] if self.stride else []
        if self.stride > room:
            return [f"stride: a window has room for {room} tokens; above that, tokens between windows are not read"]
        return []


def long_text_words(data: Mapping[str, Any]) -> str:
    """Return what happens to long texts, for the model card, from an entry's `data` as plain data."""
    longer = f"Texts longer than {data['max_tokens']} tokens are"
    windows = data.get("long_texts", "cut") == "windows"
    return f"{longer} read in windows, whose outputs are averaged." if windows else f"{longer} cut."
