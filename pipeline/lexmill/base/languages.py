"""Languages by their BCP 47 tags, from whatever people call them.

    zho, chi, cmn, zh_CN, chinese  ->  zh, zh, zh, zh-CN, zh

A language of ISO 639-3 that a macrolanguage stands for in practice becomes that (`cmn`: zh), as in CLDR; others keep
their code (`yue`). Codes, names and scripts are those of IANA's registry, which `langcodes` holds.
Cost: 0.05 s for the first code, 0.15 s for the first name.
"""

from __future__ import annotations

import difflib
import re
from functools import cache

from lexmill.base.errors import UserError
from lexmill.base.shown import value_text

_LONGEST = 60  # characters of a tag or a name


def standard(code: str) -> str:
    """Return the BCP 47 tag of a language.

    Args:
        code: a tag, a code of ISO 639, a locale or an English name, in upper or lower case.

    Raises:
        UserError: it is none of these; the message names the nearest language.
    """
    tag = find(code)
    if tag is None:
        nearest = _nearest(code.strip()[:_LONGEST])
        then = f"did you mean {shown(nearest)}?" if nearest else "write one such as en, de or zh-Hans"
        raise UserError(f"{value_text(code)} is no language's code or name; {then}")
    return tag


def find(code: str) -> str | None:
    """Return the BCP 47 tag of a language, or None for a text that is neither a code nor a name."""
    import langcodes

    text = code.strip()
    if not text or len(text) > _LONGEST:
        return None
    if langcodes.tag_is_valid(text):
        return langcodes.standardize_tag(text, macro=True)
    return _names().get(text.casefold())


def pair(text: str) -> tuple[str, str]:
    """Return the source and the target language of a text such as `en-de`, `en-zh-CN`, `deu:eng`, `en,pt-BR`.

    A hyphen also joins a language and its country. Where two readings are left, the one counts in which languages are
    in lower and countries in upper case: `en-pt-BR` is en and pt-BR.

    Raises:
        UserError: a language is unknown, there are not two, or two readings are left.
    """
    parts = re.split("[,:]", text)
    if len(parts) == 2:
        return standard(parts[0]), standard(parts[1])
    shape = "give two languages, source and target, as en,zh-CN"
    cuts = [(text[: cut.start()], text[cut.end() :]) for cut in re.finditer("-" if "-" in text else "_", text)]
    if len(parts) > 2 or not cuts or len(text) > 2 * _LONGEST:
        raise UserError(f"{value_text(text)}: {shape}")
    if re.fullmatch(r"[a-z]{2,3}[-_][A-Z]{2}", text) and (tag := find(text)):
        raise UserError(f"{value_text(text)} is one language, {tag}; {shape}")
    readings = cuts if len(cuts) == 1 else [cut for cut in cuts if all(map(find, cut))]
    usual = [cut for cut in readings if all(map(_usual_case, cut))]
    chosen = readings if len(readings) == 1 else usual
    if len(chosen) == 1:
        ((source, target),) = chosen
        return standard(source), standard(target)
    if readings:
        meanings = " or ".join(f"{source},{target}" for source, target in readings)
        raise UserError(f"{value_text(text)} has several readings; write {meanings}")
    raise UserError(f"{value_text(text)}: {shape}")


def shown(tag: str) -> str:
    """Return a tag with its language's English name for people: `Chinese (zh-Hans)`."""
    name = _described().get(tag.partition("-")[0].lower())
    return f"{name} ({tag})" if name else tag


def _usual_case(code: str) -> bool:
    """Whether a language is in lower and its country, if there is one, in upper case."""
    language, *others = re.split("[-_]", code)
    return language.islower() and all(other.isupper() for other in others if len(other) == 2)


@cache
def _described() -> dict[str, str]:
    """Return the first name of each language by its primary subtag, without what is in brackets."""
    from langcodes.registry_parser import parse_registry

    languages = [entry for entry in parse_registry() if entry["Type"] == "language"]
    return {entry["Subtag"]: entry["Description"][0].partition(" (")[0] for entry in languages}


@cache
def _names() -> dict[str, str]:
    """Return the tag of each name in small letters; of equal names the one in use, with the shortest code."""
    import langcodes
    from langcodes.registry_parser import parse_registry

    languages = [entry for entry in parse_registry() if entry["Type"] == "language"]
    found: dict[str, str] = {}
    for entry in sorted(languages, key=lambda entry: ("Deprecated" in entry, len(entry["Subtag"]))):
        for name in entry["Description"]:
            if ".." not in entry["Subtag"]:
                tag = langcodes.standardize_tag(entry["Subtag"], macro=True)
                found.setdefault(name.partition(" (")[0].casefold(), tag)
    return found


def _nearest(code: str) -> str | None:
    """Return the language that an unknown code may mean: a country's, or that of a similar name."""
    from langcodes.data_dicts import LIKELY_SUBTAGS

    if re.fullmatch("[A-Za-z]{2}", code):
        likely = LIKELY_SUBTAGS.get(f"und-{code.upper()}")
        return likely.partition("-")[0] if likely else None
    names = _names()
    word = code.casefold()
    one_word = (tag for name, tag in names.items() if len(tag) == 2 and len(word) > 3 and word in name.split())
    similar = difflib.get_close_matches(word, names, 1, cutoff=0.85)
    return next(one_word, names[similar[0]] if similar else None)
