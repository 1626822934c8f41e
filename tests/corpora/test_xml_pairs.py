"""Translation memories and localisation files: which pairs they give, what is refused, and what that costs."""

import gzip
import tracemalloc

import pytest

from lexmill.base.strict import build
from lexmill.corpora.preparing import readers
from lexmill.corpora.preparing.errors import Errors
from lexmill.corpora.preparing.readers import xml_pairs
from lexmill.corpora.preparing.readers.xml_pairs import matching
from lexmill.corpora.preparing.source_files import SourceFiles
from lexmill.params.corpora import Corpus
from tests.corpora.made_sources import corpus_of, error_texts, make_source, read_all

DOCTYPE = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
TMX = DOCTYPE + '<tmx version="1.4"><header srclang="en"/><body>\n{}</body></tmx>\n'
XLIFF1 = '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">\n{}</xliff>'
FILE = '<file source-language="en" target-language="de"><body>\n{}</body></file>\n'
XLIFF2 = '<xliff version="2.0" srcLang="en" trgLang="de"><file id="f">\n{}</file></xliff>'


def unit(**variants):
    inner = "".join(
        f'<tuv xml:lang="{name.replace("_", "-")}"><seg>{text}</seg></tuv>' for name, text in variants.items()
    )
    return f"<tu>{inner}</tu>\n"


def trans_unit(source, target):
    return f"<trans-unit id='1'><source>{source}</source><target>{target}</target></trans-unit>\n"


def segment(source, target):
    return f"<unit id='1'><segment><source>{source}</source><target>{target}</target></segment></unit>\n"


def read(tmp_path, form, data):
    return read_all(corpus_of("parallel", {"format": form}), make_source(tmp_path, {f"a.{form}": data}))


def pairs(tmp_path, form, data):
    records, errors = read(tmp_path, form, data)
    assert not errors, error_texts(errors)
    assert all(record.group is None for record in records)
    return [(record.id, *record.sides) for record in records]


def error_of(tmp_path, form, data):
    (error,) = error_texts(read(tmp_path, form, data)[1])
    return error


# ---------------------------------------------------------------- TMX


def test_units_with_both_languages_are_pairs(tmp_path):
    units = [
        unit(en="one &amp; two", de="eins &#228;"),
        unit(en="only", fr="seul"),
        "<tu><prop type='x'>no</prop><note>no</note><tuv lang='DE'><prop>no</prop><seg>zwei\nZeilen</seg></tuv>\n",
        "<tuv lang='EN'><seg><![CDATA[<two>]]></seg></tuv></tu>" + unit(en_US="America", en_GB="Britain", de_AT="A"),
        unit(en_US="no", en="yes", de="ja") + "<tu><tuv><seg>no language</seg></tuv></tu>",
        unit(en="", de="nichts"),
    ]
    assert pairs(tmp_path, "tmx", TMX.format("".join(units))) == [
        ("a:4", "one & two", "eins ä"),
        ("a:6", "<two>", "zwei\nZeilen"),
        ("a:8", "America", "A"),
        ("a:9", "yes", "ja"),
        ("a:10", "", "nichts"),
    ]


def test_units_of_one_line_have_names_of_their_own(tmp_path):
    data = TMX.format((unit(en="a", de="b") + unit(en="c", de="d")).replace("\n", ""))
    assert [name for name, *_ in pairs(tmp_path, "tmx", data)] == ["a:4", "a:4.2"]


@pytest.mark.parametrize(
    ("inline", "text"),
    [
        ('a <bpt i="1">&lt;b></bpt>b<ept i="1">&lt;/b></ept> c', "a b c"),
        ("a<ph>{x<sub>more</sub>y}</ph>b<it pos='begin'>i</it>c<ut>u</ut>d", "abcd"),
        ("a <hi type='x'>b <ph>no</ph><hi>c</hi></hi> d", "a b c d"),
    ],
)
def test_inline_codes_of_tmx_are_left_out(tmp_path, inline, text):
    assert pairs(tmp_path, "tmx", TMX.format(unit(en=inline, de="x"))) == [("a:4", text, "x")]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_a_file_says_its_encoding(tmp_path, encoding):
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    data = TMX.format(unit(en="é", de="ä")).replace('"1.0"', f'"1.0" encoding="{name}"').encode(encoding)
    assert pairs(tmp_path, "tmx", data) == [("a:4", "é", "ä")]
    assert pairs(tmp_path / "z", "tmx", gzip.compress(data)) == [("a:4", "é", "ä")]


def test_a_file_in_other_languages_is_an_error_that_lists_them(tmp_path):
    error = error_of(tmp_path, "tmx", TMX.format(unit(en="a", fr="b") * 2 + unit(eng="a", pt_BR="b")))
    assert (
        "a.tmx: no unit is in en and de (the corpus's languages); the file has: en (2), fr (2), eng (1), pt-BR (1)"
        in error
    )


@pytest.mark.parametrize(
    ("wanted", "known", "found"),
    [
        ("en", ["de", "EN-us", "en-GB"], "EN-us"),
        ("en", ["en-GB", "EN"], "EN"),
        ("pt-BR", ["pt", "pt_br"], "pt_br"),
        ("en-US", ["en"], None),
        ("en", ["eng", "enm"], None),
    ],
)
def test_languages_match(wanted, known, found):
    assert matching(wanted, known) == found


# ---------------------------------------------------------------- XLIFF


def test_units_of_xliff_1_2(tmp_path):
    units = [
        trans_unit("a <g id='1'>b</g> <x id='2'/><ph id='3'>no</ph><mrk mtype='seg'>c</mrk>", "ä<bpt id='4'>no</bpt>"),
        "<trans-unit id='2'><source>no target</source><note>no</note></trans-unit>\n",
        trans_unit("empty", " ")
        + "<trans-unit id='3'><source>s</source><seg-source>no</seg-source><target>t</target>\n",
        "<alt-trans><source>no</source><target>no</target></alt-trans></trans-unit>\n",
    ]
    data = XLIFF1.format(FILE.format("".join(units)) + FILE.replace('"de"', '"fr"').format(trans_unit("no", "non")))
    assert pairs(tmp_path, "xliff", data) == [("a:3", "a b c", "ä"), ("a:6", "s", "t")]


def test_segments_of_xliff_2(tmp_path):
    units = [
        segment("a <pc id='1'>b</pc><ph id='2'/> <mrk id='m'>c</mrk>", "ä"),
        "<unit id='2'><notes><note>no</note></notes><ignorable><source> </source><target> </target></ignorable>\n",
        "<mtc:matches xmlns:mtc='m'><mtc:match><source>no</source><target>no</target></mtc:match></mtc:matches>",
        "<segment><source>s</source><target>t</target></segment><segment><source>only</source></segment></unit>",
    ]
    data = XLIFF2.format("".join(units))
    assert pairs(tmp_path, "xliff", data) == [("a:2", "a b c", "ä"), ("a:4", "s", "t")]
    swapped = data.replace('"en"', '"x"').replace('"de"', '"en"').replace('"x"', '"de"')
    error = error_of(tmp_path, "xliff", swapped)
    assert "no unit is in en and de (the corpus's languages); the file has: de to en (2)" in error


def test_xliff_without_languages_is_taken_for_the_corpuss(tmp_path):
    data = XLIFF1.format(FILE.replace('"de"', '"fr"').format("") + f"<file>{trans_unit('a', 'b')}</file>")
    assert pairs(tmp_path, "xliff", data) == [("a:4", "a", "b")]


# ---------------------------------------------------------------- what is refused

OUTSIDE = "<!DOCTYPE tmx [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><tmx>&x;</tmx>"
CUT_OFF = gzip.compress(TMX.format(unit(en="a", de="b") * 99).encode())[:-9]
BOMB = "<!DOCTYPE tmx [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;'>]>\n<tmx>&b;</tmx>"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (BOMB, "a.tmx:1: it declares an entity (a), which is not read"),
        (OUTSIDE, "a.tmx:1: it declares an entity (x)"),
        ("<!DOCTYPE tmx [\n<!ENTITY % p SYSTEM 'x.dtd'>%p;]><tmx/>", "a.tmx:2: it declares an entity (p)"),
        (TMX.format(unit(en="&nbsp;", de="x")), "a.tmx:4: the entity &nbsp; is not defined here"),
        ("<tmx>\n&nbsp;</tmx>", "a.tmx:2: not valid XML: undefined entity"),
        ("<tmx>\n<a></tmx>", "a.tmx:2: not valid XML: mismatched tag (column 6)"),
        ("<tmx>\n", "a.tmx:2: not valid XML: no element found"),
        ("", "a.tmx:1: not valid XML: no element found"),
        (b"<tmx>\n\xff</tmx>", "a.tmx:2: not valid XML: not well-formed"),
        ("<xliff/>", "a.tmx:1: the root element is <xliff>, not <tmx>; check reader.format"),
        ("<tmx>\n" + "<a>" * 101, "a.tmx:2: elements are nested deeper than 100"),
        ("<?xml version='1.0' encoding='shift_jis'?><tmx/>", "a.tmx:1: the encoding that it declares is not read"),
        ("<?xml version='1.0' encoding='nonsense'?><tmx/>", "a.tmx:1: the encoding that it declares is not read"),
        ("<tmx><!--" + "x" * (2 << 20), "a.tmx:1: a tag or comment is longer than 1 MiB"),
        ("<tmx>\n<a b='" + "x" * (2 << 20), "a.tmx:2: a tag or comment is longer than 1 MiB"),
        ("<tmx>" + "".join(f"<a{i}/>" for i in range(10_001)), "more than 10,000 names of elements and attributes"),
        (CUT_OFF, "the compressed file is cut off or damaged"),
    ],
)
def test_what_is_refused_is_named(tmp_path, data, said):
    assert said in error_of(tmp_path, "tmx", data)


def test_a_text_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(xml_pairs, "MAX_LINE_BYTES", 1 << 20)
    error = error_of(tmp_path, "tmx", TMX.format(unit(en="x" * (3 << 20), de="y")))
    assert "a.tmx:4: the text of a unit is longer than 1 Mi characters" in error
    many = "".join(f"<tuv xml:lang='{i}'><seg>{'x' * 1000}</seg></tuv>" for i in range(900)) * 2
    assert "the text of a unit is longer" in error_of(tmp_path, "tmx", TMX.format(f"<tu>{many}</tu>"))


@pytest.mark.parametrize("between", ["", "</tu><tu>"])
def test_a_file_in_a_thousand_languages_is_none(tmp_path, between):
    units = between.join(f"<tuv xml:lang='{i}'><seg>x</seg></tuv>" for i in range(1_001))
    error = error_of(tmp_path, "tmx", TMX.format(f"<tu>{units}</tu>"))
    assert "a.tmx:4: more than 1,000 languages; is this tmx?" in error


def test_pairs_of_a_large_file_are_read_one_after_another(tmp_path):
    data = TMX.format(unit(en="word " * 20, de="Wort " * 20) * 20_000).encode()
    folder = make_source(tmp_path, {"a.tmx": gzip.compress(data)})
    corpus, read_bytes = corpus_of("parallel", {"format": "tmx"}), []
    tracemalloc.start()
    try:
        found = readers.read(corpus, SourceFiles(folder), Errors(), read_bytes.append)
        assert sum(1 for _ in found) == 20_000
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert sum(read_bytes) == (folder / "a.tmx").stat().st_size


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"kind": "text"}, "reader.format: 'tmx' gives pairs, but kind is 'text'"),
        (
            {"kind": "text", "reader": {"format": "gettext"}},
            "reader.format: 'gettext' gives pairs, but kind is 'text'",
        ),
        ({"languages": ["en", "en"]}, "languages: tmx units are chosen by language; give two different ones"),
    ],
)
def test_they_give_pairs_of_two_languages(keys, said):
    errors = []
    entry = {"kind": "parallel", "source": {"kind": "file", "paths": ["x"]}, "reader": {"format": "tmx"}}
    build(Corpus, {**entry, "languages": ["en", "de"], **keys}, errors)
    assert errors == [said]
