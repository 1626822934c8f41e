"""`lexmill answer`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from lexmill.base.errors import UserError
from lexmill.kinds.verbs import ModelName, Use, one_field

AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON object a line: the answer, its place in the context, its score.")
]


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def answer(
        question: Annotated[str | None, typer.Argument(help="The question; default: the lines of stdin.")] = None,
        context: Annotated[str | None, typer.Argument(help="The text that answers it.")] = None,
        *,
        context_file: Annotated[Path | None, typer.Option("--context-file", help="A file of that text.")] = None,
        squad: Annotated[Path | None, typer.Option("--squad", help="Questions in SQuAD's format.")] = None,
        model: ModelName = None,
        as_json: AsJson = False,
    ) -> None:
        """Answer questions from a text with the champion of an answerer; an empty line: the text has no answer.

        Without a question each line of stdin is one: {"question": "...", "context": "..."}. Of a file in SQuAD's format
        all answers are one JSON object, {id: answer}, as its official script reads them.
        """
        if squad is not None:
            if (question, context, context_file) != (None, None, None) or as_json:
                raise UserError("--squad has its own questions and contexts, and its own output; leave out the rest")
            names, texts = _of_squad(squad)
            found = use.model("answerer", model).predict(texts)
            answers = {name: one["answer"] for name, one in zip(names, found, strict=True)}
            use.show([json.dumps(answers, ensure_ascii=False)])
            return
        texts = list(_given(question, context, context_file, use))
        found = use.model("answerer", model).predict(texts)
        if as_json:
            use.show(json.dumps(one, ensure_ascii=False) for one in found)
        else:
            use.show(one_field(one["answer"]) for one in found)


def _given(question: str | None, context: str | None, file: Path | None, use: Use) -> Iterable[str]:
    """Return the inputs: the one question, else the lines of stdin."""
    if question is None:
        if file is not None:
            raise UserError("--context-file: which question? give it before the option")
        return use.texts(None)
    if (context is None) == (file is None):
        raise UserError("a question needs one text: as a second argument, or as a file with --context-file")
    return [as_input(question, _read(file) if file is not None else str(context))]


def as_input(question: str, context: str) -> str:
    """Return the input of the predictor."""
    return json.dumps({"question": question, "context": context}, ensure_ascii=False)


def _read(file: Path) -> str:
    from lexmill.corpora.preparing.text_files import whole_text

    return whole_text(file, "utf-8", instead="give a part of it")


def _of_squad(file: Path) -> tuple[list[str], list[str]]:
    """Return the ids of a file's questions, and each as an input of the predictor."""
    from lexmill.corpora.preparing.errors import Errors
    from lexmill.corpora.preparing.readers import squad
    from lexmill.corpora.preparing.text_files import TextFile, no_advance

    names, texts, errors = [], [], Errors()
    for place, _, context, question in squad.questions(TextFile(file, "utf-8"), no_advance, errors):
        name, text = question.get("id"), question.get("question")
        if not isinstance(name, str) or not isinstance(text, str):
            errors.add(UserError(f"{place}: a question needs an 'id' and a 'question', both texts", file))
        elif context is not None:
            names.append(name)
            texts.append(as_input(text, context))
    errors.raise_all()
    if len(set(names)) < len(names):
        raise UserError("an id occurs twice; each question needs its own", file)
    return names, texts
