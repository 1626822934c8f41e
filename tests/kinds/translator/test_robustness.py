"""Sources written otherwise: by hand, and what an evaluation makes of them."""

from __future__ import annotations

from lexmill.kinds.translator.robustness import upper_case, with_typos, without_end

LINE = "Open the {front_door} of <b>every</b> house at https://a.example/x now!"


def test_capitals_and_no_end_leave_placeholders_alone() -> None:
    assert upper_case(LINE) == "OPEN THE {front_door} OF <b>EVERY</b> HOUSE AT https://a.example/x NOW!"
    assert without_end("Is it on? ") == "Is it on"
    assert without_end("Done.\n") == "Done"
    assert without_end("?!") == "?!"
    assert without_end("{name}.") == "{name}"


def test_typos_change_a_fifth_of_the_long_words_a_little_and_no_placeholder() -> None:
    words = [f"word{'abcdefghij'[i % 10]}ness" for i in range(500)]
    typed = with_typos(" ".join(words), 1).split(" ")
    changed = [(one, other) for one, other in zip(words, typed, strict=True) if one != other]
    assert 50 < len(changed) < 150
    for one, other in changed:
        assert (one[0], one[-1]) == (other[0], other[-1])
        assert abs(len(one) - len(other)) <= 1
        assert sorted(other) == sorted(one) or set(other) == set(one) or len(other) == len(one) - 1
    for seed in range(20):
        typed = with_typos(LINE, seed)
        assert all(place in typed for place in ("{front_door}", "<b>", "</b>", "https://a.example/x"))
        assert with_typos(LINE, seed) == typed
    assert len({with_typos(LINE, seed) for seed in range(20)}) > 5
