"""A package is a function of its inputs."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lexmill import models
from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.corpora.fetching import pins
from lexmill.params import Params
from lexmill.params.corpora import Mixture, PackageSource
from lexmill.registry import package
from lexmill.registry.card import card

from .conftest import make


def _write(params: Params, root: Path, name: str = "gpt") -> Path:
    return package.write(params, name, root)


def test_the_same_inputs_are_the_same_bytes_wherever_they_lie(params: Params, tmp_path: Path) -> None:
    folders = []
    for place in ("here", "there"):
        for name in ("gpt", "tickets", "en_de"):
            make(params, tmp_path / place, name)
            folders.append(_write(params, tmp_path / place, name))
    hashes = [storage.sha256_folder(folder) for folder in folders]
    assert hashes[:3] == hashes[3:]
    for folder in folders:
        assert package.verify(folder) == package.read(folder)
        for path in folder.rglob("*"):
            assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes()


def test_what_a_package_says(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "en_de")
    description = package.read(_write(params, tmp_path, "en_de"))
    assert (description["kind"], description["name"], description["rows"]) == ("translator", "en_de", "rows.jsonl")
    assert description["example"] == {"input": ["Good day"], "output": ["Guten Tag"]}
    assert description["metrics"]["test"]["bleu"] == 20.5
    assert description["params"]["model"]["recipe"]["length"] == "10 steps"
    assert description["params"]["tokenizer"]["kind"] == "byte"
    assert description["test_corpus"]["counts"]["test"]["records"] == 60
    assert {path.name for path in (tmp_path / layout.package("en_de")).iterdir()} == {
        "model",
        "rows.jsonl",
        "card.md",
        "package.json",
    }


def test_a_source_that_moves_is_named_as_it_was_pinned(params: Params, tmp_path: Path) -> None:
    source = PackageSource("package", "pypi", "plays", "latest", None, ("*.txt",))
    corpora = {**params.corpora, "plays": dataclasses.replace(params.corpora["plays"], source=source)}
    moving = dataclasses.replace(params, corpora=corpora)
    entry = {"pin": {"version": "1.4", "sha256": "a" * 64}, "of": pins.identity(source)}
    pins.write({"corpora": {"plays": entry}, "checkpoints": {}}, tmp_path)
    make(params, tmp_path, "gpt")
    folder = _write(moving, tmp_path)
    pinned = package.read(folder)["params"]["corpus"]["source"]
    assert (pinned["version"], pinned["sha256"]) == ("1.4", "a" * 64)
    assert "from plays 1.4" in (folder / "card.md").read_text()


def test_the_card_shows_the_figures_beside_the_baselines_and_the_licences(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    make(params, tmp_path, "tickets")
    lines = (_write(params, tmp_path) / "card.md").read_text().split("\n")
    assert "| metric | this model | byte trigram | unigram | " in lines
    assert "| bits per byte | 2.5 [2.4, 2.6] | 2.9 | 4.7 | " in lines
    text = (_write(params, tmp_path, "tickets") / "card.md").read_text()
    assert "- Its licence: ours | all" in text
    assert "`tiny_bert`, licence: MIT" in text
    assert "longer than 16 tokens are cut" in text


def test_further_test_sets_are_in_metrics_and_card(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    path = tmp_path / layout.metrics("evaluate", "gpt")
    further = {"wiki": {"bits_per_byte": 3.25, "bits_per_byte_low": 3.1, "bits_per_byte_high": 3.4}}
    storage.write_json(path, {**storage.read_json(path), "tests": further})
    folder = _write(params, tmp_path)
    assert package.read(folder)["metrics"]["tests"] == further
    assert "On the further test set `wiki`: bits per byte 3.25 [3.1, 3.4]" in (folder / "card.md").read_text()


def test_only_baselines_of_the_same_test_set_and_tokens_are_packaged(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    evaluated = tmp_path / layout.metrics("evaluate", "gpt")
    baseline = tmp_path / layout.metrics("baseline", "language_model-plays-bytes")
    metrics = {"bits_per_byte": 4.7, "perplexity": 30.0}

    def packaged(**theirs: str) -> dict[str, Any]:
        ours = {"test": "a", "tokenizer": "t"}
        storage.write_json(evaluated, {"test": {"bits_per_byte": 2.5, "perplexity": 9.0}, "measured_on": ours})
        storage.write_json(baseline, {"unigram": metrics, "measured_on": theirs})
        found: dict[str, Any] = package.read(_write(params, tmp_path))["metrics"]
        assert found["measured_on"] == ours
        return found

    same = packaged(test="a", tokenizer="t")
    assert same["baselines"] == {"unigram": metrics}
    assert "not_compared" not in same
    assert packaged(test="a", tokenizer="u")["baselines"] == {"unigram": {"bits_per_byte": 4.7}}
    other = packaged(test="b", tokenizer="t")
    assert (other["baselines"], other["not_compared"]) == ({}, ["unigram"])


def test_the_card_names_each_corpus_of_a_mixture_and_its_licence(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    gpt = params.models["gpt"]
    mixed = dataclasses.replace(
        params,
        corpora={**params.corpora, "poems": dataclasses.replace(params.corpora["plays"], licence="CC0")},
        mixtures={"both": Mixture(tokenizer="bytes", members={"plays": 3.0, "poems": 1.0})},
        models={"gpt": dataclasses.replace(gpt, data=dataclasses.replace(gpt.data, train="both"))},
    )
    members = {
        name: {"train_tokens": 100, "corpus_fingerprint": f"of {name}", "manifest_sha256": "x", "weight": 1.0}
        for name in ("plays", "poems")
    }
    storage.write_json(tmp_path / layout.tokens("both", "bytes") / "manifest.json", {"members": members})
    text = (_write(mixed, tmp_path) / "card.md").read_text()
    assert package.read(tmp_path / layout.package("gpt"))["train_corpora"] == {
        name: {"tokens": 100, "sha256": f"of {name}"} for name in ("plays", "poems")
    }
    assert "- 75 % of its training data is corpus `plays`, licence: " in text
    assert "- 25 % of its training data is corpus `poems`, licence: CC0" in text


@pytest.mark.parametrize(
    ("family", "limit"), [("gpt", "has no effect on what it writes"), ("lstm", "Its state carries on without end")]
)
def test_the_card_says_how_far_back_a_model_reads(params: Params, tmp_path: Path, family: str, limit: str) -> None:
    make(params, tmp_path, "gpt")
    description = json.loads((_write(params, tmp_path) / "package.json").read_text())
    description["params"]["model"] |= {"family": family, "shape": dict(models.family(family).tiny)}
    assert limit in card(description)


def test_other_weights_params_figures_or_rows_are_another_fingerprint(params: Params, tmp_path: Path) -> None:
    seen = set()
    for seed, quality, loss in ((0, 0.5, 1.5), (1, 0.5, 1.5), (0, 0.6, 1.5), (0, 0.5, 1.4)):
        make(params, tmp_path, "gpt", quality, seed)
        storage.write_json(tmp_path / layout.metrics("train", "gpt"), {"train_loss": loss})
        seen.add(package.read(_write(params, tmp_path))["fingerprint"])
    assert len(seen) == 4


@pytest.mark.parametrize(
    "lost",
    [
        layout.model("gpt"),
        layout.predictions("gpt"),
        layout.metrics("evaluate", "gpt"),
        layout.metrics("train", "gpt"),
        layout.metrics("baseline", "language_model-plays-bytes"),
        layout.corpus("plays"),
        layout.samples("gpt"),
    ],
    ids=str,
)
def test_what_an_earlier_stage_left_out_is_named_and_no_package_is_left(
    lost: Path, params: Params, tmp_path: Path
) -> None:
    make(params, tmp_path, "gpt")
    path = tmp_path / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UserError, match=str(lost)):
        _write(params, tmp_path)
    assert not list(tmp_path.glob("artifacts/packages/*"))


def test_a_name_that_params_do_not_have_gets_the_nearest(params: Params, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"models\.en_d is not in params\.yaml, did you mean 'en_de'"):
        _write(params, tmp_path, "en_d")


def test_a_package_that_was_changed_by_hand_is_refused(params: Params, tmp_path: Path) -> None:
    make(params, tmp_path, "gpt")
    folder = _write(params, tmp_path)
    (folder / "rows.jsonl").write_text("")
    with pytest.raises(UserError, match="changed after it was made"):
        package.verify(folder)


@pytest.mark.parametrize("text", ["{", "[]", '{"kind": "cat"}', '{"kind": "classifier"}'])
def test_a_folder_that_is_no_package_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no package here"):
        package.read(tmp_path)
    (tmp_path / "package.json").write_text(text)
    with pytest.raises(UserError, match="not a package's description"):
        package.read(tmp_path)
