"""The table of all taggers: its presets, their params on another workspace's corpus, and one made by the command."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.preset_table import ROOT
from benchmarks.taggers import TABLE
from lexmill import params
from lexmill.kinds.tagger import Tagger
from tests.kinds.tagger.made_project import conll


def their_params(folder: Path, scheme: str = "iob2") -> Path:
    """The params.yaml of another workspace, with files of a made language."""
    corpus = yaml.safe_load((ROOT / "conf" / "corpus" / "conll_files.yaml").read_text(encoding="utf-8"))
    for name, count, seed in (("train", 60, 0), ("dev", 10, 1), ("test", 20, 2)):
        (folder / f"{name}.conll").write_text(conll(count, seed), encoding="utf-8")
    corpus["source"]["paths"] = [str(folder / f"{name}.conll") for name in ("train", "dev", "test")]
    corpus["reader"]["scheme"] = scheme
    corpus["deduplicate"]["exact"] = False
    corpus["splits"]["keep_together"] = False
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"corpora": {"names": corpus}}), encoding="utf-8")
    return file


def test_it_has_every_preset_of_the_kind() -> None:
    files = (ROOT / "conf" / "model").glob("*.yaml")
    found = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")).get("kind") for path in files}
    assert set(TABLE.presets) == {name for name, kind in found.items() if kind == "tagger"}


def test_all_presets_read_the_corpus_of_another_workspace(tmp_path: Path) -> None:
    for scheme, learned in (("iob2", {"tagger_elman_crf", "tagger_birnn_crf"}), ("none", set())):
        checked = params.parse(TABLE.params(TABLE.presets, [], their_params(tmp_path, scheme)))
        taggers = {name: model for name, model in checked.models.items() if isinstance(model, Tagger)}
        assert set(taggers) == set(TABLE.presets)
        assert {model.data.corpus for model in taggers.values()} == {"names"}
        assert {name for name, model in taggers.items() if model.data.bioes} == learned


def test_one_command_makes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "made"
    wanted = ["tagger_hmm", "tagger_perceptron", "--corpus", str(their_params(tmp_path)), "--folder", str(folder)]
    TABLE.main([*wanted, "--set", "tokenizers.entities_bpe.vocab_size=300", "evaluation.bootstrap_samples=100"])
    first = capsys.readouterr().out
    head, _, *lines = first.splitlines()
    assert head == "| preset | family | F1 of entities | accuracy | whole sentences | parameters | seconds |"
    cells = [line.split(" | ") for line in lines]
    assert [line[:2] for line in cells] == [["| tagger_hmm", "word_features"], ["| tagger_perceptron", "word_features"]]
    assert all(float(line[2].split()[0]) > 0.9 for line in cells)
    TABLE.main(wanted)
    assert capsys.readouterr().out == first
