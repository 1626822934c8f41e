"""Languages: any code that people use becomes one BCP 47 tag, or an error that names the nearest."""

from __future__ import annotations

import pytest
from langcodes.registry_parser import parse_registry

from lexmill.base.errors import UserError
from lexmill.base.languages import find, pair, shown, standard

TAGS = {
    "zh": ["zh", "zho", "chi", "cmn", "ZH", "Chinese", " zh "],
    "zh-CN": ["zh_CN", "zh-cn", "cmn-CN"],
    "zh-Hans": ["zh_hans", "zh-Hans"],
    "ja": ["jpn", "Japanese"],
    "de": ["ger", "deu", "DE", "german"],
    "en-US": ["en_US", "eng-us"],
    "yue": ["yue", "zh-yue", "Cantonese"],
    "el": ["gre", "ell"],
    "nb": ["nob", "Norwegian Bokmål"],
    "he": ["iw", "heb"],
}


@pytest.mark.parametrize(("code", "tag"), [(code, tag) for tag, codes in TAGS.items() for code in codes])
def test_codes_and_names_become_one_tag(code: str, tag: str) -> None:
    assert standard(code) == tag


def test_a_standard_tag_of_any_language_is_left_as_it_is() -> None:
    for entry in parse_registry():
        if entry["Type"] == "language" and ".." not in entry["Subtag"]:
            tag = standard(entry["Subtag"])
            assert standard(tag) == tag


@pytest.mark.parametrize(
    ("code", "nearest"),
    [
        ("jp", "did you mean Japanese (ja)?"),
        ("cz", "did you mean Czech (cs)?"),
        ("Germn", "did you mean German (de)?"),
        ("greek", "did you mean Modern Greek (el)?"),
        ("mandarin", "did you mean Chinese (zh)?"),
        ("xq", "write one such as en, de or zh-Hans"),
        ("", "write one such as en, de or zh-Hans"),
        ("x" * 100_000, "write one such as en, de or zh-Hans"),
    ],
)
def test_an_unknown_code_is_one_sentence_with_the_nearest_language(code: str, nearest: str) -> None:
    assert find(code) is None
    with pytest.raises(UserError) as raised:
        standard(code)
    assert raised.value.message.endswith(f"is no language's code or name; {nearest}")
    assert len(raised.value.message) < 160


@pytest.mark.parametrize(
    ("text", "languages"),
    [
        ("en-de", ("en", "de")),
        ("EN-DE", ("en", "de")),
        ("en_de", ("en", "de")),
        ("deu-eng", ("de", "en")),
        ("en:zh", ("en", "zh")),
        ("en, pt-BR", ("en", "pt-BR")),
        ("en-zh-CN", ("en", "zh-CN")),
        ("zh-CN-en", ("zh-CN", "en")),
        ("en-zh-Hans-CN", ("en", "zh-Hans-CN")),
        ("en_US-zh_CN", ("en-US", "zh-CN")),
        ("en-pt-BR", ("en", "pt-BR")),  # also en-PT and br, Breton
        ("English-German", ("en", "de")),
        ("no-en", ("no", "en")),
    ],
)
def test_pairs(text: str, languages: tuple[str, str]) -> None:
    assert pair(text) == languages


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("en", "'en': give two languages, source and target, as en,zh-CN"),
        ("en,de,fr", "'en,de,fr': give two languages, source and target, as en,zh-CN"),
        ("pt-BR", "'pt-BR' is one language, pt-BR; give two languages, source and target, as en,zh-CN"),
        ("en-pt-br", "'en-pt-br' has several readings; write en,pt-br or en-pt,br"),
        ("en-jp", "'jp' is no language's code or name; did you mean Japanese (ja)?"),
        ("jp,en", "'jp' is no language's code or name; did you mean Japanese (ja)?"),
        ("a-b-c", "'a-b-c': give two languages, source and target, as en,zh-CN"),
    ],
)
def test_wrong_pairs_are_one_sentence(text: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        pair(text)
    assert raised.value.message == message


def test_people_read_the_name_too() -> None:
    assert [shown(tag) for tag in ("de", "zh-Hans", "el", "x-mine")] == [
        "German (de)",
        "Chinese (zh-Hans)",
        "Modern Greek (el)",
        "x-mine",
    ]
