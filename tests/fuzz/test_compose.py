"""conf/ and choices with anything in them: `lexmill compose` writes params.yaml, or every error is a sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lexmill import params
from lexmill.config.compose import compose, write_params, write_stages
from tests.fuzz.budget import fuzzed
from tests.fuzz.nasty import VALUES, mutated, within_budget

ROOT = Path(__file__).resolve().parents[2]
FILES = (
    "config.yaml",
    "model/decoder_ngrams.yaml",
    "corpus/shakespeare.yaml",
    "optimizer/muon.yaml",
    "experiment/demo.yaml",
)
KEYS = (
    *("experiment", "data_seed", "models.gpt.shape.n_layer", "models.gpt.recipe.length", "corpora.shakespeare.source"),
    *("model@models.gpt", "+model@models.second", "~models.lstm", "tokenizer@tokenizers.x", "optimizer", "models", ""),
    *(
        "+a",
        "++a.b",
        "hydra.run.dir",
        "~data_seed",
        "corpora.*",
        "models.gpt.evaluate.prompts",
        "mixtures",
        "+mixtures.m",
    ),
)


@pytest.fixture
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.getbasetemp() / "composed"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(ROOT / "conf", root / "conf")
    for name in ("dvc.yaml", "sources.lock.yaml"):
        if (ROOT / name).is_file():
            shutil.copyfile(ROOT / name, root / name)
    return root


def _of_files() -> st.SearchStrategy[tuple[str, str]]:
    def with_text(name: str) -> st.SearchStrategy[tuple[str, str]]:
        valid = (ROOT / "conf" / name).read_text(encoding="utf-8").replace("# @package _global_\n", "")
        return st.tuples(st.just(name), mutated(valid))

    return st.sampled_from(FILES).flatmap(with_text)


@fuzzed(16)
@given(changed=_of_files())
def test_a_file_of_conf(changed: tuple[str, str], project: Path) -> None:
    path = project / "conf" / changed[0]
    whole = path.read_bytes()
    head = "# @package _global_\n" if b"@package _global_" in whole else ""
    path.write_text(head + changed[1], encoding="utf-8", newline="")
    try:
        within_budget(lambda: compose((), project))
    finally:
        path.write_bytes(whole)


_overrides = st.lists(
    st.one_of(
        st.builds(lambda key, value: f"{key}={value}", st.sampled_from(KEYS), st.sampled_from(VALUES)),
        st.builds(lambda key, value: f"{key}={value}", st.sampled_from(KEYS), st.text(max_size=10)),
        st.text(max_size=20),
    ),
    max_size=3,
)


@fuzzed(16)
@given(overrides=_overrides)
def test_choices(overrides: list[str], project: Path) -> None:
    def write() -> None:
        path = write_params(overrides, project)
        params.load(path)
        write_stages((), project)

    within_budget(write)


def doubling(first: str, pair: str, lines: int) -> list[str]:
    """Lines of which each holds the one before twice."""
    return [f"a0: {first}", *(f"a{i}: {pair.replace('@', f'${{a{i - 1}}}')}" for i in range(1, lines))]


GROWN = "its interpolations (${...}) make more than 10,000 values or 4 MB; write out what is needed"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (doubling("x", "@@", 60), GROWN),
        (doubling("x", "@@", 30)[::-1], GROWN),
        (doubling("x", "['@', '@']", 40), GROWN),
        (doubling("{x: 1}", "{b: '@', c: '@'}", 40)[::-1], GROWN),
        ([f"a0: {'x' * 100_000}", f"a1: {'${a0}' * 1000}"], GROWN),
        ([f"a0: {'${oc.env:MILL_LONG}' * 1000}"], GROWN),
        (["a0: ${.a1}", "a1: ${.a0}${.a0}"], "Recursive interpolation detected"),
        ([f"a{i}: ${{a{i + 1}}}" for i in range(3000)], "it is nested too deeply"),
    ],
    ids=["strings", "reversed", "lists", "mappings", "wide", "environment", "cycle", "deep"],
)
def test_interpolations_that_grow_are_refused(
    lines: list[str], cause: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILL_LONG", "x" * 100_000)
    config = project / "conf" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8") + "\n".join(lines) + "\n", encoding="utf-8")
    error = within_budget(lambda: compose((), project))
    assert error is not None
    assert cause in error
