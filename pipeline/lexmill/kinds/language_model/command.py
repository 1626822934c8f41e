"""`lexmill generate`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from lexmill.base.errors import UserError
from lexmill.decoding.settings import Sampling, built
from lexmill.kinds.verbs import ModelName, Precision, Texts, Use, one_line


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def generate(
        prompts: Texts = None,
        *,
        model: ModelName = None,
        max_tokens: Annotated[int | None, typer.Option(help="Longest continuation, in tokens.")] = None,
        temperature: Annotated[float | None, typer.Option(help="0: always the likeliest token.")] = None,
        top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens; 0: all.")] = None,
        top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest tokens that hold this mass.")] = None,
        min_p: Annotated[
            float | None, typer.Option(help="Leave out what has less than this of the likeliest's.")
        ] = None,
        repetition_penalty: Annotated[
            float | None, typer.Option(help="Above 1: tokens that the text holds become less likely.")
        ] = None,
        stop: Annotated[list[str] | None, typer.Option(help="End before this text; may be given again.")] = None,
        seed: Annotated[int | None, typer.Option(help="The same seed gives the same text.")] = None,
        stream: Annotated[
            bool | None, typer.Option(help="Show one text as it is written; the default at a terminal.")
        ] = None,
        precision: Annotated[
            Precision, typer.Option(help="bfloat16: faster for many texts, if the processor has it.")
        ] = "float32",
    ) -> None:
        """Continue prompts with the champion of a language model."""
        given = {
            "max_tokens": max_tokens,
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "min_p": min_p,
            "repetition_penalty": repetition_penalty,
            "stop": stop or None,
            "seed": seed,
        }
        settings = {key: value for key, value in given.items() if value is not None}
        built(Sampling, settings)  # before the model is loaded
        texts = list(use.texts(prompts))
        if stream and len(texts) != 1:
            raise UserError(f"--stream shows one text as it is written, but there are {len(texts)} prompts; give one")
        predictor = use.model("language_model", model, precision)
        if stream or (stream is None and prompts and len(texts) == 1 and sys.stdout.isatty()):
            pieces = predictor.stream(texts[0], settings)
            begun = texts[0] if prompts else one_line(texts[0])
            use.show_growing([begun], pieces if prompts else map(one_line, pieces))
            return
        whole = (prompt + text for prompt, text in zip(texts, predictor.predict(texts, settings), strict=True))
        # For lines of stdin, each answer is one line, even if it holds line breaks.
        use.show(whole if prompts else map(one_line, whole))
