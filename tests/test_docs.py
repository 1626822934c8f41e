"""What the pages say can be typed: commands with their options, links, examples of params.yaml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from lexmill import cli, params
from lexmill.base.strict import build
from lexmill.compute.execution import Execution
from lexmill.params.corpora import Corpus, Mixture, Tokenizer, Translation
from lexmill.params.models import Checkpoint, Model

ROOT = Path(__file__).parent.parent
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", ROOT / "infra/README.md", *sorted((ROOT / "docs").glob("*.md"))]
}
EXAMPLES = {
    "corpora": Corpus,
    "models": Model,
    "tokenizers": Tokenizer,
    "mixtures": Mixture,
    "translations": Translation,
    "checkpoints": Checkpoint,
}
ADDED = {  # what docs/extending.md builds, and where the project has it for tests/extending
    "pipeline/lexmill/models/indrnn": "tests/models/indrnn",
    "pipeline/lexmill/kinds/length_bucket": "tests/extending/length_bucket",
    "conf/model": "tests/extending/conf/model",
}
VERBS = set(
    re.findall(r'verb="(\w+)"', (ROOT / "tests/extending/length_bucket/__init__.py").read_text(encoding="utf-8"))
)


def typed(text: str) -> list[str]:
    """Commands as a page shows them: lines of fenced blocks and code spans; a comment is no part of them."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    return [re.split(r"\s#\s", line)[0] for line in [*"\n".join(fenced).split("\n"), *spans]]


def errors(command: str) -> list[str]:
    """What is wrong with the `lexmill` call in a line, if there is one."""
    call = re.search(r"(?:^|&& )(?:\S+/)?lexmill ([a-z].*)", command)
    if call is None:
        return []
    group: Any = typer.main.get_command(cli.app)
    words = call[1].split()
    while hasattr(group, "commands") and words:
        name = words.pop(0)
        if name in VERBS:
            return []
        if name not in group.commands:
            return [f"no command {name!r} in {command!r}"]
        group = group.commands[name]
    known = {option for one in group.params for option in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    return [f"no option {word!r} in {command!r}" for word in words if word.startswith("--") and word not in known]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_their_options_are_there(page: str) -> None:
    assert [error for command in typed(PAGES[page]) for error in errors(command)] == []


def test_wrong_commands_are_seen() -> None:
    shown = "`lexmill trian` and `lexmill run --wyh`\n\n```\nlexmill init lm x.txt --label y   # why\n```\n"
    assert len([error for command in typed(shown) for error in errors(command)]) == 3


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGES[page]):
        assert (folder / target).exists(), target


def test_examples_of_params_have_no_error() -> None:
    checked = 0
    for page, text in PAGES.items():
        for block in re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            if not block.startswith(tuple(EXAMPLES)):
                continue
            for group, entries in yaml.safe_load(block).items():
                for name, entry in entries.items():
                    found: list[str] = []
                    build(EXAMPLES[group], entry, found, f"{page}: {group}.{name}")
                    assert found == []
                    checked += 1
    assert checked >= 3


def test_settings_named_on_the_pages_are_there() -> None:
    """`evaluation.batch_tokens`, `recipe.keep: ...`: a dotted key on a page is one of params.yaml."""
    described = {name for cls in (params.Params, Execution) for name in _keys(cls)}
    heads = ("evaluation", "promotion", "reader", "deduplicate", "splits", "filters", "recipe", "shape", "data")
    for page, text in PAGES.items():
        for head, key in re.findall(r"`(\w+)\.(\w+)[:`]", text):
            if head in heads and key != "py":
                assert key in described, f"{page}: {head}.{key}"


def _keys(cls: type) -> set[str]:
    from lexmill.commands.describe import describe

    lines = describe(execution=cls is Execution).split("\n")
    return {part for line in lines for part in re.split(r"[ ,(]", line)[0].split(".")}


def test_the_page_on_extending_shows_the_files_that_its_test_adds() -> None:
    """Whole, and all of them: after a change of one, copy it to the page."""
    page = PAGES["docs/extending.md"]
    shown = dict(re.findall(r"^`([\w/]+\.[\w.]+)`[^`\n]*:.*?^```\w+\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    for place, folder in ADDED.items():
        for path in (ROOT / folder).iterdir():
            if path.is_file():
                assert shown.pop(f"{place}/{path.name}") == path.read_text(encoding="utf-8"), path
    assert shown == {}
