"""Plain data into dataclasses: every error at once, each with its key and what to do."""

from dataclasses import dataclass
from typing import Literal

import pytest

from lexmill.base.strict import build, spec


@dataclass(frozen=True)
class Circle:
    shape: Literal["circle"]
    radius: float = spec("its radius", unit="m", above=0)


@dataclass(frozen=True)
class Square:
    shape: Literal["square"]
    side: float = spec("its side", 1.0, low=0)


@dataclass(frozen=True)
class Drawing:
    title: str = spec("its name")
    scale: float = spec("paper over nature", 1.0, above=0, high=10)
    copies: int = spec("how many", 1, low=1)
    bold: bool = spec("thick lines", False)
    pieces: tuple[Circle | Square, ...] = spec("what is drawn", ())
    by_name: dict[str, Circle] = spec("named circles", factory=dict)

    def errors(self) -> list[str]:
        return ["copies: bold drawings come alone"] if self.bold and self.copies > 1 else []


@dataclass(frozen=True)
class Word:
    text: str

    @classmethod
    def parse(cls, value: object) -> "Word":
        return cls(str(value))


@dataclass(frozen=True)
class Odd:
    title: str = spec("its name", "a")
    copies: int = spec("how many", 1, low=1)
    scale: float = spec("its size", 1.0)
    shift: float = spec("to the right", 0.0)
    weights: dict[str, float] = spec("by name", factory=dict)
    piece: Circle | Square | None = spec("a piece", None)
    when: Word = spec("a notation", Word("now"))


def errors_of(data: object) -> list[str]:
    errors: list[str] = []
    built = build(Drawing, data, errors)
    assert (built is None) == bool(errors)
    return errors


def test_builds_with_defaults_and_unions() -> None:
    errors: list[str] = []
    drawing = build(
        Drawing,
        {"title": "a", "pieces": [{"shape": "circle", "radius": 2}, {"shape": "square"}]},
        errors,
    )
    assert errors == []
    assert drawing == Drawing("a", pieces=(Circle("circle", 2.0), Square("square", 1.0)))


@pytest.mark.parametrize("text", ["1e-5", "1.0e-5", 1e-5])
def test_a_number_that_yaml_reads_as_text_is_a_number(text: object) -> None:
    errors: list[str] = []
    drawing = build(Drawing, {"title": "a", "scale": text}, errors)
    assert drawing is not None
    assert drawing.scale == 1e-5


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"title": "a", "scael": 2}, "scael: unknown key, did you mean 'scale'?"),
        ({"title": "a", "zzz": 2}, "zzz: unknown key; known: bold, by_name, copies, pieces, scale, title"),
        ({}, "title: missing: its name"),
        ({"title": 3}, "title: expected text, got 3"),
        ({"title": "a", "copies": True}, "copies: expected a whole number, got True"),
        ({"title": False}, "title: expected text, got False; put the word of the file in quotes to make it text"),
        ({"title": "a", "copies": 1.0}, "copies: expected a whole number, got 1.0"),
        ({"title": "a", "bold": "yes"}, "bold: expected true or false, got 'yes'"),
        ({"title": "a", "scale": 0}, "scale: 0.0 is too small; it must be above 0"),
        ({"title": "a", "scale": 11}, "scale: 11.0 is too large; at most 10"),
        ({"title": "a", "scale": "inf"}, "scale: expected a finite number, got 'inf'"),
        ({"title": "a", "scale": "one"}, "scale: expected a number, got 'one'"),
        ({"title": "a", "copies": 0}, "copies: 0 is too small; at least 1"),
        ({"title": "a", "pieces": {"shape": "circle"}}, "pieces: expected a list, got {'shape': 'circle'}"),
        ({"title": "a", "pieces": [{"shape": "cirle"}]}, "pieces[0].shape: 'cirle' is unknown, did you mean 'circle'?"),
        ({"title": "a", "pieces": [{"radius": 1}]}, "pieces[0]: 'shape' is missing; one of: circle, square"),
        ({"title": "a", "by_name": {"b": {"shape": "circle"}}}, "by_name.b.radius: missing: its radius"),
        ({"title": "a", "bold": True, "copies": 2}, "copies: bold drawings come alone"),
        ([1], "the file: expected a mapping, got [1]"),
        (None, "the file is empty"),
    ],
)
def test_each_error_names_its_key(data: object, error: str) -> None:
    assert errors_of(data) == [error]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({"copies": 2**53 + 1}, "copies: 9007199254740993 is too large; at most 9,007,199,254,740,992"),
        ({"copies": [10**5000]}, "copies: expected a whole number, got [a whole number of 5,001 digits]"),
        ({"scale": [10**5000][0]}, "scale: expected a finite number, got a whole number of 5,001 digits"),
        ({"shift": -1e16}, "shift: -1e+16 is too small; at least -1,000,000,000,000,000"),
        ({"weights": {"a": 1e16}}, "weights: 1e+16 is too large; at most 1,000,000,000,000,000"),
        ({"title": "a\0b"}, "title: 'a\\x00b' holds a null character; take it out"),
        ({"title": "\ud800"}, "title: '\\ud800' is not Unicode text: a lone surrogate"),
        ({"weights": {"\0": 1}}, "weights: the name '\\x00' holds a null character; take it out"),
        ({"piece": {"shape": ["circle"]}}, "piece.shape: ['circle'] is unknown, did you mean 'circle'?"),
        ({"piece": {"shape": {}}}, "piece.shape: {} is unknown; known: circle, square"),
        ({"when": ["a"]}, "when: expected a short text or a number, got ['a']"),
        ({"when": "x" * 1000}, f"when: expected a short text or a number, got '{'x' * 56}..."),
        ({"x" * 1000: 1}, f"'{'x' * 56}...: unknown key; known: copies, piece, scale, shift, title, weights, when"),
    ],
    ids=range(13),
)
def test_what_no_field_bounds_is_bounded_by_its_type(data: dict[str, object], error: str) -> None:
    errors: list[str] = []
    assert build(Odd, data, errors) is None
    assert errors == [error]


def test_an_alias_that_stands_for_much_costs_nothing() -> None:
    laughs: object = "x"
    for _ in range(200):
        laughs = [laughs] * 200
    for data in ({"title": laughs}, {"copies": laughs}, {"piece": {"shape": laughs}}, {"by_name": {"a": laughs}}):
        assert all(len(error) < 300 for error in errors_of(data))


def test_all_errors_come_at_once() -> None:
    found = errors_of({"scale": -1, "copies": "two", "pieces": [{"shape": "circle", "radius": 0}], "colour": 1})
    assert [error.split(":")[0] for error in found] == ["colour", "title", "scale", "copies", "pieces[0].radius"]
