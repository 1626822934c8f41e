"""`lexmill reward`."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from lexmill.kinds.verbs import ModelName, Use, one_field


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def reward(
        prompt: Annotated[str, typer.Argument(help="The message that is answered.")],
        answers: Annotated[list[str], typer.Argument(metavar="ANSWER...", help="Answers to it.")],
        *,
        model: ModelName = None,
        system: Annotated[str | None, typer.Option(help="A message of the system before.")] = None,
    ) -> None:
        """Rate answers to a message with the champion of a reward model: the reward, a tab, the answer; best first."""
        before = [{"role": "system", "content": system}] if system else []
        before.append({"role": "user", "content": prompt})
        texts = [json.dumps([*before, {"role": "assistant", "content": answer}]) for answer in answers]
        found = zip(use.model("reward_model", model).predict(texts), answers, strict=True)
        use.show(f"{value:.4f}\t{one_field(answer)}" for value, answer in sorted(found, key=lambda pair: -pair[0]))
