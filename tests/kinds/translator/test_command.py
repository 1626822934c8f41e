"""`lexmill translate` with a tiny translator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
import typer
from typer.testing import CliRunner

from lexmill.base.errors import UserError, UserErrors
from lexmill.decoding.ensemble import Ensemble
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator.command import add
from lexmill.kinds.translator.minimum_risk import expected_chrf
from lexmill.kinds.translator.predict import Predictor, translate
from lexmill.kinds.verbs import Use
from tests.decoding.naive import tiny
from tests.kinds.translator.test_predict import Letters


class Terminal:
    """The models and the terminal of a test."""

    def model(self, kind: str, name: str | None, precision: str = "float32") -> Predictor:
        config = {"kind": "translator", "evaluate": {"beam": {"beam_size": 3, "length_penalty": 0.6}}}
        letters = Letters()
        if name == "words":
            letters.fingerprint = name
        module = tiny(6 if name == "six" else 5).to(getattr(torch, precision))
        return Predictor(name or "tiny", config, module, cast(Any, letters))

    def sentence_scorer(self, model: Predictor) -> Callable[[Sequence[str]], list[float]]:
        assert model.name == "gpt"
        return lambda texts: [-100.0 * len(text) for text in texts]

    def texts(self, given: Sequence[str] | None) -> Iterable[str]:
        return given or ()

    def show(self, lines: Iterable[str]) -> None:
        for line in lines:
            print(line)


def run(*arguments: str) -> str:
    app = typer.Typer()
    add(app, cast(Use, Terminal()))
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_n_best_have_scores_and_a_blank_line_after_them() -> None:
    best = run("abc", "", "fed").split("\n")
    assert len(best) == 4
    assert best[1] == best[3] == ""
    blocks = run("abc", "", "fed", "--n-best", "3").split("\n\n")
    rows = [[line.split("\t") for line in block.split("\n")] for block in blocks[:3]]
    assert [len(block) for block in rows] == [3, 1, 3]
    assert [block[0][0] for block in rows] == best[:3]
    assert [block[0][1] for block in rows][1] == "0"
    for block in rows:
        scores = [float(value) for _, value in block]
        assert scores == sorted(scores, reverse=True)
    as_json = [json.loads(line) for line in run("abc", "", "fed", "--n-best", "3", "--json").splitlines()]
    assert [one["source"] for one in as_json] == ["abc", "", "fed"]
    assert [[t["text"] for t in one["translations"]] for one in as_json] == [[r[0] for r in block] for block in rows]


def test_draws_are_reproducible_and_options_of_draws_need_them() -> None:
    draws = [run("abc", "fedcba", "--sample", "--temperature", "2", "--seed", seed) for seed in "112"]
    assert draws[0] == draws[1] != draws[2]
    assert run("abcd", "--sample", "--top-k", "1") == run("abcd", "--beam-size", "1")
    with pytest.raises(UserErrors, match="--top-k, --seed: of draws; add --sample or --mbr"):
        run("abc", "--top-k", "2", "--seed", "1")


def test_settings_of_the_search_reach_it() -> None:
    assert run("abc", "--prefix", "ff").startswith("ff")
    assert len(run("abcdef", "--min-length-ratio", "2").strip()) >= 12
    written = run("abcdef", "--no-repeat-ngram", "1", "--length-penalty", "9", "--ranking", "word_reward").strip()
    assert len(set(written)) == len(written) > 1
    with pytest.raises(UserErrors, match=r"(?s)ranking.*top_p"):
        run("abc", "--ranking", "median", "--sample", "--top-p", "0")


def test_a_line_that_is_too_long_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer()
    add(app, cast(Use, Terminal()))
    result = CliRunner().invoke(app, ["abc", "", "a" * 40])
    assert "line 3: longer than the model reads; only its beginning is translated" in result.stderr
    assert "line 1" not in result.stderr
    assert len(result.stdout.splitlines()) == 3


def test_minimum_risk_takes_a_draw_that_agrees_with_the_others() -> None:
    options = ("--temperature", "2", "--seed", "3")
    draws = [
        json.loads(line) for line in run("abc", "", "fed", "--sample", "--n-best", "9", "--json", *options).splitlines()
    ]
    chosen = run("abc", "", "fed", "--mbr", "9", *options).split("\n")
    for own, text in zip(draws, chosen[:3], strict=True):
        assert text == next(iter(expected_chrf([one["text"] for one in own["translations"]])))
    assert chosen[1] == ""
    several = run("abc", "--mbr", "9", "--n-best", "2", *options).strip().split("\n")
    assert several[0].split("\t")[0] == chosen[0]
    assert 100 >= float(several[0].split("\t")[1]) >= float(several[1].split("\t")[1]) >= 0
    with pytest.raises(UserErrors, match="candidates: 257 is too large"):
        run("abc", "--mbr", "257")


def test_an_ensemble_is_the_mean_of_its_members() -> None:
    lines = ("abc", "fedd", "--n-best", "3")
    mean = translate(Ensemble([tiny(5), tiny(6)]), Letters(), lines[:2], BeamSearch(3, 0.6), 100, n_best=3)
    expected = [[f"{one.text}\t{one.score:.6g}" for one in own] for own in mean]
    blocks = run(*lines, "--with", "six").removesuffix("\n\n").split("\n\n")
    assert [block.split("\n") for block in blocks] == expected
    assert run(*lines, "--with", "tiny") == run(*lines)  # twice the same model
    assert run(*lines, "--with", "six") != run(*lines)
    with pytest.raises(UserError, match="'words' has another tokenizer than 'tiny'"):
        run("abc", "--with", "words")


def test_a_lexicon_is_kept_to_in_the_lines_that_have_its_phrases(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.tsv"
    path.write_text("abc\tddd\nfed\tea\nfe\tbbbb\n")
    plain, kept = (run("abc", "", "fed", *more).split("\n") for more in ((), ("--lexicon", str(path))))
    assert "ddd" not in plain[0]
    assert "ea" not in plain[2]
    assert "ddd" in kept[0]
    assert kept[1] == ""
    assert "ea" in kept[2]
    assert "bbbb" not in kept[2]
    rows = run("abc", "--n-best", "3", "--lexicon", str(path)).strip().split("\n")
    assert all("ddd" in row.split("\t")[0] for row in rows)
    with pytest.raises(UserError, match="a lexicon needs a search"):
        run("abc", "--sample", "--lexicon", str(path))


def test_each_wrong_line_of_a_lexicon_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lexicon.tsv"
    path.write_text("abc ddd\nfed\tea\n\nfe\ta\tb\n")
    with pytest.raises(UserErrors) as error:
        run("abc", "--lexicon", str(path))
    expected = [f"{path}:{number}: not `phrase<TAB>its translation`" for number in (1, 3, 4)]
    assert error.value.errors == expected
    with pytest.raises(UserError, match="no lexicon"):
        run("abc", "--lexicon", str(tmp_path / "none"))


def test_a_phrase_that_cannot_be_spelt_is_refused() -> None:
    class Lossy(Letters):
        def decode(self, ids: list[int]) -> str:
            return super().decode(ids).replace("d", "?")

    with pytest.raises(UserError, match="the model's tokenizer cannot spell the phrase 'ad'"):
        translate(tiny(5), cast(Any, Lossy()), ["ab"], BeamSearch(2), 100, lexicon=[("ab", "ad")])


def test_bfloat16_translates_nearly_the_same() -> None:
    rows = [run("abc", "fedcba", "--n-best", "1", "--precision", one).split() for one in ("float32", "bfloat16")]
    assert rows[0] != rows[1]
    assert [float(row[1]) for row in rows] == pytest.approx([float(rows[0][1])] * 2, abs=0.2)


def test_a_language_model_orders_the_beam_anew() -> None:
    """Here one that hates length: the shortest of the three that the beam holds is first."""
    lines = ("abc", "", "fed")
    best = [block.split("\n") for block in run(*lines, "--n-best", "3").split("\n\n")[:3]]
    plain, anew = (run(*lines, *more).split("\n") for more in ((), ("--rescore", "gpt")))
    assert plain != anew
    for block, first in zip(best, anew, strict=False):
        texts = [row.split("\t")[0] for row in block]
        assert len(first) == min(map(len, texts))
        assert first in texts
    (row,) = run("abc", "--rescore", "gpt", "--rescore-weight", "0.5", "--n-best", "1").split("\n")[:1]
    text, score = row.split("\t")
    own = {one.split("\t")[0]: float(one.split("\t")[1]) for one in best[0]}
    assert float(score) == pytest.approx(own[text] - 50 * len(text), rel=1e-5)
    assert run(*lines, "--rescore", "gpt", "--rescore-weight", "0").split("\n") == plain
    with pytest.raises(UserErrors, match="--rescore: of a search"):
        run("abc", "--sample", "--rescore", "gpt")
