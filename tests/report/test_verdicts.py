from __future__ import annotations

from lexmill.kinds import find
from lexmill.report.results import Row
from lexmill.report.verdicts import Verdict, of_metrics, of_model, of_row, summary


def row(value: float, baselines: dict[str, float], higher: bool = True, **more: object) -> Row:
    values: dict[str, object] = {"low": None, "high": None, "metric": "accuracy", **more}
    return Row(
        model="m", kind="classifier", corpus="c", value=value, higher_is_better=higher, baselines=baselines, **values
    )  # type: ignore[arg-type]


def test_a_row_is_judged_by_its_baselines_and_its_interval() -> None:
    assert of_row(row(0.9, {})).state == "unknown"
    assert of_row(row(0.9, {"a": 0.8, "b": 0.7})) == Verdict("clear", "beats both baselines")
    assert of_row(row(0.9, {"a": 0.8}, low=0.85, high=0.95)) == Verdict("clear", "beats its baseline")
    assert of_row(row(0.9, {"a": 0.8}, low=0.75, high=0.95)).state == "within"
    assert of_row(row(0.9, {"a": 0.95, "b": 0.7, "c": 0.1})) == Verdict("some", "beats 2 of 3 baselines, not a")
    assert of_row(row(0.5, {"copy_source": 0.5, "b": 0.7})) == Verdict("none", "does not beat copy source or b")


def test_where_lower_is_better() -> None:
    assert of_row(row(2.0, {"a": 2.1}, higher=False)).state == "clear"
    assert of_row(row(2.0, {"a": 1.9, "b": 3.0}, higher=False)).words == "beats 1 of 2 baselines, not a"
    assert of_row(row(2.0, {"a": 2.1, "b": 9.0}, higher=False, low=1.8, high=2.2)).state == "within"


def test_a_model_is_as_good_as_its_worst_figure() -> None:
    good, bad = row(0.9, {"a": 0.8}), row(0.3, {"a": 0.4}, metric="macro_f1")
    assert of_model([good, good]) == Verdict("clear", "beats its baseline")
    assert of_model([good, bad]) == Verdict("none", "on macro-F1 does not beat a")
    assert of_model([good, row(0.9, {})]).state == "clear"
    assert of_model([]).words == "not evaluated yet"


def test_nothing_is_claimed_beside_baselines_that_are_not_compared() -> None:
    apart = row(0.9, {"a": 0.8}, not_compared=("b", "c"))
    words = "is not compared with b and c, measured on another test set or tokenizer"
    assert of_row(apart) == of_model([apart]) == Verdict("unknown", words)
    assert of_model([apart, row(0.3, {"a": 0.4}, metric="macro_f1")]).words == "does not beat a"
    assert of_model([row(0.9, {}), apart]).words == words


def test_each_state_has_a_sign_of_its_own() -> None:
    marks = {Verdict(state, "").mark for state in ("clear", "within", "some", "none", "unknown")}
    assert len(marks) == 5


def test_the_sentence_over_all_models() -> None:
    clear, none, unknown = Verdict("clear", "wins"), Verdict("none", "loses"), Verdict("unknown", "waits")
    assert summary({}) == "This project has no model."
    assert summary({"a": unknown}) == "No model was compared with a baseline yet."
    assert summary({"a": clear}) == "The model beats every baseline."
    assert summary({"a": clear, "b": clear}) == "All 2 models beat every baseline."
    assert summary({"a": clear, "b": none, "c": unknown}) == "1 of 3 models beats every baseline; b loses; c waits."
    many = {"a": clear, "b": none, "c": none, "d": unknown}
    assert summary(many) == "1 of 4 models beats every baseline; 2 do not; 1 not measured."


def test_the_headline_claims_no_more_than_the_cards() -> None:
    clear, close = Verdict("clear", "wins"), of_row(row(0.9, {"a": 0.8}, low=0.75, high=0.95))
    words = "is ahead of every baseline, but the best one lies within its interval"
    assert summary({"a": close}) == f"The model {words}."
    assert summary({"a": Verdict("none", "does not beat b")}) == "The model does not beat b."
    assert summary({"a": clear, "b": close}) == f"1 of 2 models beats every baseline; b {words}."
    many = {"a": clear, "b": close, "c": close, "d": Verdict("none", "loses")}
    assert summary(many) == "1 of 4 models beats every baseline; 2 within the interval; 1 do not."


def test_what_a_first_version_does_not_beat() -> None:
    def said(accuracy: float, f1: float, **baselines: dict[str, float]) -> str:
        test = {"accuracy": accuracy, "accuracy_low": accuracy - 0.02, "accuracy_high": accuracy + 0.02, "macro_f1": f1}
        return of_metrics(find("classifier"), test, baselines)

    majority = {"accuracy": 0.5, "macro_f1": 0.3}
    assert said(0.8, 0.8, majority=majority) == ""
    assert said(0.8, 0.8) == ""
    assert said(0.4, 0.4, majority=majority) == "on accuracy it does not beat majority"
    assert said(0.8, 0.2, majority=majority) == "on macro-F1 it does not beat majority"
    close = "on accuracy it is ahead of every baseline, but the best one lies within its interval"
    assert said(0.51, 0.4, majority=majority) == close
    assert of_metrics(find("language_model"), {"perplexity": 9.0}, {"unigram": {"perplexity": 2.0}}) == ""
