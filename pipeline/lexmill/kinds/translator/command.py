"""`lexmill translate`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, cast

import typer

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.progress import say
from lexmill.base.strict import build
from lexmill.decoding.settings import BeamSearch, Sampling
from lexmill.kinds.translator import MinimumRisk
from lexmill.kinds.translator.predict import Predictor, Translation, rescored, together
from lexmill.kinds.verbs import ModelName, Precision, Texts, Use, one_field

BeamSize = Annotated[
    int | None, typer.Option("--beam-size", min=1, max=64, help="Hypotheses kept; 1 is greedy. Default: the model's.")
]
_LINES = 64  # translated at once: output waits for so many lines or for the end of the input


def add(app: typer.Typer, use: Use) -> None:
    """Add the verb."""

    @app.command()
    def translate(
        sentences: Texts = None,
        *,
        model: ModelName = None,
        others: Annotated[
            list[str] | None,
            typer.Option("--with", help="A translator to ensemble, of the same tokenizer; may be given again."),
        ] = None,
        beam_size: BeamSize = None,
        ranking: Annotated[
            str | None, typer.Option(help="gnmt, average or word_reward: how length counts. Default: the model's.")
        ] = None,
        length_penalty: Annotated[float | None, typer.Option(help="Its strength. Default: the model's.")] = None,
        min_length_ratio: Annotated[
            float | None, typer.Option(help="Fewest tokens for each of the source. Default: the model's.")
        ] = None,
        no_repeat_ngram: Annotated[
            int | None, typer.Option(help="N-grams of so many tokens never repeat; 0: they may. Default: the model's.")
        ] = None,
        coverage_penalty: Annotated[
            float | None, typer.Option(help="Weight of source tokens that attention left out. Default: the model's.")
        ] = None,
        to: Annotated[
            str | None, typer.Option(help="The language to write, for a model of several. Default: that of its corpus.")
        ] = None,
        prefix: Annotated[str, typer.Option(help="How each translation begins.")] = "",
        lexicon: Annotated[
            Path | None,
            typer.Option(metavar="FILE", help="Lines `phrase<TAB>its translation`, which lines with the phrase get."),
        ] = None,
        rescore: Annotated[
            str | None, typer.Option(metavar="NAME", help="A language model that orders the beam's translations anew.")
        ] = None,
        rescore_weight: Annotated[
            float, typer.Option(min=0, max=100, help="Of its log-probability beside the translator's score.")
        ] = 0.1,
        precision: Annotated[Precision, typer.Option(help="bfloat16: faster, if the processor has it.")] = "float32",
        n_best: Annotated[
            int | None,
            typer.Option(min=1, max=1000, help="So many translations a line with scores, a blank line after them."),
        ] = None,
        as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
        mbr: Annotated[
            int | None,
            typer.Option(help="Draw so many and take the one of the highest mean chrF against all; 0: none."),
        ] = None,
        sample: Annotated[bool, typer.Option("--sample", help="Draw each translation in place of a search.")] = False,
        temperature: Annotated[float | None, typer.Option(help="Of a draw; default: 1.")] = None,
        top_k: Annotated[int | None, typer.Option(help="Draw from the k likeliest tokens; 0: all.")] = None,
        top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest tokens that hold this mass.")] = None,
        seed: Annotated[int | None, typer.Option(help="The same seed gives the same draws.")] = None,
    ) -> None:
        """Translate sentences with the champion of a translator."""
        searching = {
            "beam_size": beam_size,
            "ranking": ranking,
            "length_penalty": length_penalty,
            "min_length_ratio": min_length_ratio,
            "no_repeat_ngram": no_repeat_ngram,
            "coverage_penalty": coverage_penalty,
        }
        drawing = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        params = {
            key: value for key, value in (searching | drawing | {"mbr": mbr, "to": to}).items() if value is not None
        }
        # Checked before the model is loaded; the longest translation is the model's to say.
        errors: list[str] = []
        build(
            BeamSearch, {"max_length_ratio": 1000, **{key: params[key] for key in searching if key in params}}, errors
        )
        build(Sampling, {key: params[key] for key in drawing if key in params}, errors)
        build(MinimumRisk, {} if mbr is None else {"candidates": mbr}, errors)
        if not (sample or mbr) and (given := [f"--{key.replace('_', '-')}" for key in drawing if key in params]):
            errors.append(f"{', '.join(given)}: of draws; add --sample or --mbr")
        if rescore and (sample or mbr):
            errors.append("--rescore: of a search; leave out --sample and --mbr")
        if errors:
            raise UserErrors(errors)
        if sample or mbr:
            params.setdefault("temperature", 1.0)
        pairs = () if lexicon is None else read_lexicon(lexicon)
        names = (model, *(others or ()))
        opened = together([cast(Predictor, use.model("translator", name, precision)) for name in names])
        score = None if rescore is None else use.sentence_scorer(use.model("language_model", rescore))
        found = translated(
            opened,
            use.texts(sentences),
            params,
            n_best=n_best,
            prefix=prefix,
            lexicon=pairs,
            order=None if score is None else lambda own: rescored(own, score, rescore_weight),
            as_json=as_json,
        )
        use.show(found)


def read_lexicon(path: Path) -> list[tuple[str, str]]:
    """Return the pairs of a file of lines `phrase<TAB>its translation`.

    Raises:
        UserError: it cannot be read.
        UserErrors: lines that are no such pair.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"no lexicon: {error}", path) from None
    pairs, errors = list[tuple[str, str]](), list[UserError]()
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        phrase, _, translation = (part.strip() for part in line.rstrip("\r").partition("\t"))
        if not (phrase and translation) or "\t" in translation:
            errors.append(UserError("not `phrase<TAB>its translation`", path, number))
        pairs.append((phrase, translation))
    if errors:
        raise UserErrors(errors)
    return pairs


def translated(
    model: Predictor,
    lines: Iterable[str],
    params: Mapping[str, Any] = MappingProxyType({}),
    *,
    n_best: int | None = None,
    prefix: str = "",
    lexicon: Sequence[tuple[str, str]] = (),
    order: Callable[[Sequence[list[Translation]]], list[list[Translation]]] | None = None,
    as_json: bool = False,
) -> Iterator[str]:
    """Yield the answer to each line, in order; lines are read as needed, empty ones stay empty.

    Lines that are too long for the model are named on standard error. Arguments as in `Predictor.translations`; `order`
    puts all that the beam holds in another order before the best are taken.
    """
    wanted = n_best or 1
    searched = wanted if order is None else max(wanted, int(model.chosen(params)["beam_size"]))
    waiting = iter(enumerate(lines, start=1))
    while batch := list(itertools.islice(waiting, _LINES)):
        found = model.translations([line for _, line in batch], params, n_best=searched, prefix=prefix, lexicon=lexicon)
        if order is not None:
            found = [own[:wanted] for own in order(found)]
        for (number, line), own in zip(batch, found, strict=True):
            if own[0].truncated:
                say(f"line {number}: longer than the model reads; only its beginning is translated")
            if as_json:
                those = [{"text": one.text, "score": one.score} for one in own]
                yield json.dumps({"source": line, "translations": those}, ensure_ascii=False)
            else:
                yield _shown(own, scores=n_best is not None)


def _shown(found: list[Translation], *, scores: bool) -> str:
    """The best text, or a line `text<TAB>score` for each and an empty one."""
    if scores:
        return "".join(f"{one_field(one.text)}\t{one.score:.6g}\n" for one in found)
    return " ".join(found[0].text.split("\n"))  # a line break inside a translation would shift every later line
