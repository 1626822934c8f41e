"""The comparison's table, its two pictures and its section of the page, from made results."""

from __future__ import annotations

import copy
import itertools
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.report import comparison
from lexmill.report.comparison_charts import standalone
from tests.report.project import Project


def model(preset: str, bits: float | None, lengths: dict[str, Any], **more: Any) -> dict[str, Any]:
    done = bits is not None
    return {
        "preset": preset,
        "parameters": 1234567,
        "training_flops": 2.5e12 if done else None,
        "bits_per_byte": bits,
        "interval": [bits - 0.05, bits + 0.05] if bits is not None else None,
        "spread": 0.0123 if done else None,
        "by_seed": {"1": bits - 0.01, "2": bits + 0.01} if bits is not None else {},
        "rate": 0.02,
        "rate_at_edge": False,
        "tokens_per_second": 4321.9 if done else None,
        "failed": [],
        "lengths": lengths,
        **more,
    }


def cost(seconds: float, rate: float, size: int) -> dict[str, float]:
    return {"seconds_per_token": seconds, "generation_tokens_per_second": rate, "cache_bytes": size}


LONG = {"reason": "its positions are learned for 128 tokens"}
COMPARISON: dict[str, Any] = {
    "budget": "1000000 tokens",
    "corpus": "shakespeare",
    "tokenizer": "shakespeare_bpe",
    "context": 128,
    "seeds": [1, 2],
    "factor": 2.0,
    "machine": {"device": "cpu", "name": "a <processor>", "threads": 1, "torch": "2.9"},
    "models": [
        model("gpt_tiny", 2.4, {"256": LONG, "1024": LONG}, rate_at_edge=True),
        model("lstm_tiny", 2.3, {"256": cost(1e-4, 900.0, 3072), "1024": cost(1e-4, 901.0, 3072)}),
        model("llama_tiny", 2.2, {"256": cost(1e-4, 800.0, 786432), "1024": cost(4e-4, 200.0, 3145728)}),
        model("bad_tiny", None, {"256": cost(1e-3, 9.0, 0), "1024": cost(1e-3, 9.0, 0)}, failed=["it diverged"]),
    ],
}


def test_the_table_has_the_best_model_first_and_says_what_is_missing() -> None:
    text = comparison.markdown(comparison.show(COMPARISON))
    lines = text.split("\n")
    assert lines[0] == (
        "Budget: 1000000 tokens. Corpus shakespeare, tokenizer shakespeare_bpe, context 128 tokens; 2 seeds at the best"
        " of three to six rates, a factor of 2 apart. Measured on a <processor>, 1 thread, torch 2.9."
    )
    assert lines[2:4] == [
        "| model | bits per byte | seed spread | parameters | training FLOPs | training tokens/s | tokens/s at 256"
        " | tokens/s at 1k | cache at 256 | cache at 1k |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    assert lines[4:8] == [
        "| llama_tiny | 2.200 [2.150, 2.250] | ±0.012 | 1,234,567 | 2.50e+12 | 4,322 | 800 | 200 | 786.4 kB | 3.1 MB |",
        "| lstm_tiny | 2.300 [2.250, 2.350] | ±0.012 | 1,234,567 | 2.50e+12 | 4,322 | 900 | 901 | 3.1 kB | 3.1 kB |",
        "| gpt_tiny | 2.400 [2.350, 2.450] | ±0.012 | 1,234,567 | 2.50e+12 | 4,322 | – | – | – | – |",
        "| bad_tiny | – | – | 1,234,567 | – | – | 9 | 9 | 0.0 kB | 0.0 kB |",
    ]
    assert lines[9:] == [
        "* gpt_tiny: the best rate, 0.02, is at the edge of its grid",
        "* gpt_tiny: 256, 1k tokens are not possible: its positions are learned for 128 tokens",
        "* bad_tiny: a training failed: it diverged",
        "",
    ]


def places(picture: Any, kind: str) -> list[list[tuple[float, float]]]:
    """The corners of each polyline of a kind."""
    found = [one for one in ET.fromstring(standalone(picture)).iter() if kind in one.get("class", "")]
    return [[tuple(map(float, pair.split(","))) for pair in one.get("points", "").split()] for one in found]  # type: ignore[misc]


def test_on_logarithmic_axes_a_power_is_a_slope() -> None:
    """Of the llama a token costs four times as much at four times the length: its step has twice the LSTM's slope."""
    shown = comparison.show(COMPARISON)
    order = sorted(one["preset"] for one in COMPARISON["models"])
    slopes = {}
    for name in ("llama_tiny", "lstm_tiny"):
        step, _token, _cache = places(shown.cost, f"series series-{order.index(name)}")
        (x1, y1), (x2, y2) = step
        slopes[name] = (y2 - y1) / (x2 - x1)
    assert slopes["llama_tiny"] == pytest.approx(2 * slopes["lstm_tiny"], rel=0.02)
    lstm = places(shown.cost, f"series series-{order.index('lstm_tiny')}")
    assert lstm[2][0][1] == lstm[2][1][1]  # constant memory


def test_the_pictures_are_files_of_their_own() -> None:
    shown = comparison.show(COMPARISON)
    assert shown.quality is not None
    assert shown.cost is not None
    for picture in (shown.quality, shown.cost):
        text = standalone(picture)
        root = ET.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "<style>" in text
        assert not re.search(r"(href|src|url\()", text)
        assert "nan" not in text.lower()
    named = [
        one.text for one in ET.fromstring(standalone(shown.quality)).iter() if "end" in one.get("class", "").split()
    ]
    assert sorted(filter(None, named)) == ["gpt_tiny 2.400", "llama_tiny 2.200", "lstm_tiny 2.300"]


def test_with_equal_flops_it_is_against_parameters() -> None:
    assert "against parameters: llama_tiny 2.200" in str(comparison.show(COMPARISON).quality)
    other = copy.deepcopy(COMPARISON)
    other["models"][0]["training_flops"] = 5e12
    assert "against training FLOPs: llama_tiny 2.200" in str(comparison.show(other).quality)


@pytest.mark.parametrize("picture", ["quality", "cost"])
def test_every_name_of_many_is_within_the_picture_and_has_a_style_of_its_own(picture: str) -> None:
    many = copy.deepcopy(COMPARISON)
    costs = {"256": cost(1e-4, 900.0, 3072), "1024": cost(1e-4, 901.0, 3072)}
    many["models"] = [model(f"m{number:02}_tiny", 2.2 + 0.001 * number, costs) for number in range(40)]
    drawn = ET.fromstring(standalone(getattr(comparison.show(many), picture)))
    ends = [one for one in drawn.iter() if one.get("class", "").startswith("end ")]
    assert len({one.get("class") for one in ends}) == len(ends) == 40
    places = sorted(float(one.get("y", "nan")) for one in ends)
    assert 24 <= places[0] < places[-1] <= float(drawn.get("height", "nan"))
    assert min(after - before for before, after in itertools.pairwise(places)) >= 15


def test_without_a_point_there_is_no_picture() -> None:
    nothing = copy.deepcopy(COMPARISON)
    nothing["models"] = [model("gpt_tiny", None, {"256": LONG}), model("a_tiny", None, {"256": LONG})]
    shown = comparison.show(nothing)
    assert (shown.quality, shown.cost) == (None, None)


def test_the_page_shows_a_comparison_where_there_is_one(demo: Project) -> None:
    assert "Families on equal terms" not in demo.page
    demo.json(layout.COMPARISON, COMPARISON)  # sorts keys, so that 1024 stands before 256
    page = demo.page
    assert '<h2 id="comparison">Families on equal terms</h2>' in page
    assert "a &lt;processor&gt;" in page
    assert page.index("tokens/s at 256") < page.index("tokens/s at 1k")
    assert page.count('class="chart comparison') == 2
    assert demo.page == page


def test_a_broken_comparison_is_named(demo: Project) -> None:
    demo.json(layout.COMPARISON, {"models": [{"preset": "gpt_tiny"}]})
    with pytest.raises(UserError, match=r"metrics/comparison\.json"):
        _ = demo.page
