"""The best span beside a slow twin that tries all; independence of the batch; thresholds; predictor and command."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from lexmill import models, tokenizers
from lexmill.base.errors import UserError
from lexmill.kinds.answerer import baselines, command
from lexmill.kinds.answerer.predict import Predictor, Span, _Search, spans
from lexmill.kinds.answerer.threshold import best
from lexmill.kinds.answerer.windows import Sizes, Window, encode, windows
from lexmill.kinds.verbs import Use
from lexmill.tokenizers import Tokenizer
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save

SIZES = Sizes(max_tokens=24, stride=5, max_question=6, max_answer=4)
CONFIG: dict[str, Any] = {
    "kind": "answerer",
    "family": "bert",
    "shape": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 32,
        "type_vocab_size": 2,
    },
    "vocab_size": 261,
    "spans": True,
    "threshold": None,
    **vars(SIZES),
}
PAIRS = [
    ("Who?", "Ada, in the mill.  "),
    ("A long question?", "é🙂 and\n\tmore words than one window of twenty-four holds"),
    ("", "x"),
    ("Where?", ""),
    ("What?", "   "),
]


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    made = tmp_path_factory.mktemp("bytes")
    save(assemble("byte", byte_model(), lowercase=False), made)
    return tokenizers.load(made)


@pytest.fixture(scope="module")
def module() -> Any:
    torch.manual_seed(3)
    made = models.build(CONFIG)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return made.eval()


@torch.no_grad()
def twin(module: Any, tokenizer: Tokenizer, question: str, context: str) -> tuple[float, str, float]:
    """The score of no answer, the best span's text and score, over all spans of all windows, one text at a time."""
    (one,) = encode(tokenizer, [(question, context)], SIZES.max_question)
    none, best_text, best_score = math.inf, "", -math.inf
    for window in windows(tokenizer, [one], SIZES):
        ids = torch.tensor([window.ids])
        kinds = torch.tensor([[int(i >= window.begin) for i in range(len(window.ids))]])
        logits = module(ids, torch.ones_like(ids, dtype=torch.bool), kinds)[0].double()
        none = min(none, float(logits[0, 0] + logits[0, 1]))
        for first, last in itertools.product(range(window.count), repeat=2):
            if not first <= last < first + SIZES.max_answer:
                continue
            begin, end = one.spans[window.first + first], one.spans[window.first + last]
            if context[begin[0] : begin[1]].isspace() or context[end[0] : end[1]].isspace():
                continue
            score = float(logits[window.begin + first, 0] + logits[window.begin + last, 1])
            if score > best_score:
                best_text, best_score = context[begin[0] : end[1]], score
    return none, best_text, best_score


def test_the_span_is_the_best_of_all_and_is_cut_from_the_text_as_given(module: Any, of_bytes: Tokenizer) -> None:
    found = spans(module, of_bytes, PAIRS, SIZES, 10_000)
    for (question, context), one in zip(PAIRS, found, strict=True):
        none, text, score = twin(module, of_bytes, question, context)
        assert one.text == text
        if text:
            assert context[one.start : one.end] == one.text
            assert one.margin == pytest.approx(none - score, abs=1e-4)
    assert [one.text == "" for one in found] == [False, False, False, True, True]
    assert math.isinf(found[3].margin)


def test_answers_do_not_depend_on_the_batch(module: Any, of_bytes: Tokenizer) -> None:
    together = spans(module, of_bytes, PAIRS, SIZES, 10_000)
    for pair, one in zip(PAIRS, together, strict=True):
        (alone,) = spans(module, of_bytes, [pair], SIZES, 1)
        assert (alone.text, alone.start, alone.end) == (one.text, one.start, one.end)
        assert alone.score == pytest.approx(one.score, rel=1e-4)
    assert spans(module, of_bytes, [], SIZES, 10) == []


_LOGITS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=1, max_size=8)


@settings(deadline=None)
@given(_LOGITS, st.integers(1, 9), st.data())
def test_the_search_tries_every_span_and_its_probabilities_sum_to_one(
    logits: list[tuple[int, int]], most: int, data: st.DataObject
) -> None:
    count = len(logits)
    usable = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    search = _Search()
    whole = np.array([(1, 2), (0, 0), *logits, (9, 9)], dtype=np.float64)  # begin, end of the question, context, end
    search.add(Window(0, [0] * len(whole), 2, 0, count), whole, usable, Sizes(99, 9, 9, most))
    allowed = {
        (i, j): logits[i][0] + logits[j][1]
        for i, j in itertools.product(range(count), repeat=2)
        if i <= j < i + most and usable[i] and usable[j]
    }
    context = "c" * count
    found = search.best(np.array([(i, i + 1) for i in range(count)]), context)
    total = math.exp(3) + sum(math.exp(score) for score in allowed.values())
    assert found.none == pytest.approx(math.exp(3) / total)
    if not allowed:
        assert found.text == ""
        return
    highest = max(allowed.values())
    assert allowed[found.start, found.end - 1] == highest
    assert len(found.text) == min(j - i + 1 for (i, j), score in allowed.items() if score == highest)
    assert found.score == pytest.approx(math.exp(highest) / total)
    assert found.margin == 3 - highest


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-3, 3) | st.just(math.inf), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 1.0])
        ),
        min_size=1,
        max_size=7,
    )
)
def test_no_other_threshold_is_better(items: list[tuple[float, float, float]]) -> None:
    # Where there is no span, answering is silent.
    margins, answering, silent = zip(*((m, no if math.isinf(m) else yes, no) for m, yes, no in items), strict=True)

    def at(threshold: float | None) -> float:
        return sum(
            no if threshold is not None and margin > threshold else yes
            for margin, yes, no in zip(margins, answering, silent, strict=True)
        )

    found, value = best(margins, answering, silent)
    assert value == pytest.approx(at(found) / len(items))
    assert found is None or math.isfinite(found)
    tries = [None, *(i / 2 for i in range(-11, 12))]
    assert at(found) == max(map(at, tries))
    if at(None) == at(found):
        assert found is None  # of equal ones that with most answers


def test_above_the_threshold_there_is_no_answer() -> None:
    one = Span("mill", 3, 7, score=0.25, none=0.5, margin=math.log(2))
    assert one.given(None) is one
    assert one.given(0.7) is one
    silent = one.given(0.6)
    assert silent.shown() == {"answer": "", "start": 0, "end": 0, "score": 0.5}


def test_the_predictor_reads_questions_as_json(module: Any, of_bytes: Tokenizer) -> None:
    predictor = Predictor("answers", CONFIG, module, of_bytes)
    texts = [command.as_input(*pair) for pair in PAIRS]
    expected = [one.shown() for one in spans(module, of_bytes, PAIRS, SIZES, 8192)]
    assert predictor.predict(texts) == expected
    cautious = Predictor("answers", CONFIG | {"threshold": -100.0}, module, of_bytes)
    assert [one["answer"] for one in cautious.predict(texts)] == [""] * len(PAIRS)
    for wrong in ("Who?", "[]", '{"question": "a"}', '{"question": "a", "context": 3}', "[" * 9999):
        with pytest.raises(UserError, match="is not a question with its context in JSON"):
            predictor.predict([wrong])


class _First:
    """Answers with the first word of the context."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def model(self, kind: str, name: str | None) -> _First:
        assert (kind, name) == ("answerer", "mine")
        return self

    def texts(self, given: Any) -> Iterable[str]:
        assert given is None
        return self.lines

    def predict(self, texts: list[str]) -> list[dict[str, Any]]:
        return [{"answer": json.loads(text)["context"].partition(" ")[0], "score": 1.0} for text in texts]

    def show(self, lines: Iterable[str]) -> None:
        print("\n".join(lines))


def said(*arguments: str, lines: Iterable[str] = ()) -> str:
    app = typer.Typer()
    command.add(app, cast(Use, _First(*lines)))
    result = CliRunner().invoke(app, [*arguments, "--model", "mine"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_takes_arguments_a_file_or_lines_in_order(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("Grün\tist es")
    assert said("Who?", "Ada did") == "Ada\n"
    assert said("Who?", "--context-file", str(tmp_path / "text.txt")) == "Grün\\tist\n"
    lines = [command.as_input("?", f"{word} x") for word in ("b", "", "a")]
    assert said(lines=lines) == "b\n\na\n"
    assert [json.loads(line)["answer"] for line in said("--json", lines=lines).splitlines()] == ["b", "", "a"]
    for wrong, match in (
        (["Who?"], "needs one text"),
        (["Who?", "text", "--context-file", "a"], "needs one text"),
        (["--context-file", "a"], "which question"),
        (["Who?", "--squad", "a"], "leave out the rest"),
    ):
        with pytest.raises(UserError, match=match):
            said(*wrong)


def test_the_command_writes_the_predictions_of_squad(tmp_path: Path) -> None:
    asked = [{"id": "q2", "question": "Who?"}, {"id": "q:1", "question": "Why?", "answers": []}]
    data = {"data": [{"paragraphs": [{"context": "Ada did", "qas": asked}, {"context": "", "qas": []}]}]}
    file = tmp_path / "dev.json"
    file.write_text(json.dumps(data))
    assert json.loads(said("--squad", str(file))) == {"q2": "Ada", "q:1": "Ada"}
    asked[1]["id"] = "q2"
    file.write_text(json.dumps(data))
    with pytest.raises(UserError, match="an id occurs twice"):
        said("--squad", str(file))
    file.write_text(json.dumps({"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "b"}]}]}]}))
    with pytest.raises(
        UserError, match=r"data\[0\].paragraphs\[0\].qas\[0\]: a question needs an 'id' and a 'question'"
    ):
        said("--squad", str(file))


def test_baselines_by_hand() -> None:
    text = "Mills grind corn. Who built it? Ada built the old mill! Ten men\nwork"
    assert baselines.sentences(text) == [
        "Mills grind corn.",
        "Who built it?",
        "Ada built the old mill!",
        "Ten men",
        "work",
    ]
    assert baselines.sentences("水车。很旧") == ["水车。", "很旧"]
    assert baselines.sentences(" ") == [" "]
    answer = baselines.similar_sentence([text])
    assert answer({"context": text, "question": "Was the old mill built?"}) == "Ada built the old mill!"
    assert answer({"context": text, "question": "zzz"}) == "Mills grind corn."  # of equal ones the first
    assert baselines.similar_sentence([])({"context": "...", "question": "?"}) == "..."
