"""The table of translators: its presets, and one made by the command on tokenised pairs of another workspace."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from benchmarks.preset_table import ROOT
from benchmarks.translators import TABLE

SMALL = {
    "length": "4 steps",
    "validate_every": "2 steps",
    "batch": "256",
    "schedule.warmup": "1 steps",
    "keep": "last",
}


def their_params(folder: Path) -> Path:
    """The params.yaml of another workspace, with tokenised files."""
    corpus = yaml.safe_load((ROOT / "conf" / "corpus" / "tokenised_pairs.yaml").read_text(encoding="utf-8"))
    for split, count in (("train", 40), ("valid", 5), ("test", 6)):
        for side in ("en", "de"):
            lines = (f"{side} {split}@@ {i % 7} ," for i in range(count))
            (folder / f"{split}.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus["source"]["paths"] = [str(folder / path) for path in corpus["source"]["paths"]]
    file = folder / "params.yaml"
    file.write_text(yaml.safe_dump({"corpora": {"captions": corpus}}), encoding="utf-8")
    return file


def test_it_has_every_tiny_translator() -> None:
    files = (ROOT / "conf" / "model").glob("*_tiny.yaml")
    found = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")).get("kind") for path in files}
    assert set(TABLE.presets) == {name for name, kind in found.items() if kind == "translator"}


def test_one_command_makes_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", str(tmp_path / "execution.yaml"))
    (tmp_path / "execution.yaml").write_text("threads: 1\n", encoding="utf-8")
    name = "transformer_multi30k"
    recipe = [f"models.{name}.recipe.{key}={value}" for key, value in SMALL.items()]
    wanted = [name, "--corpus", str(their_params(tmp_path)), "--folder", str(tmp_path / "made")]
    TABLE.main([*wanted, "--set", f"models.{name}.data.tokenizer=joint_blanks", *recipe])
    head, _, line = capsys.readouterr().out.splitlines()
    assert head == "| preset | family | BLEU | chrF | parameters | seconds |"
    cells = line.strip("| ").split(" | ")
    words = len({"en", "de", "train@@", ",", *map(str, range(7))})
    assert cells[:2] == [name, "transformer"]
    assert int(cells[4].replace(",", "")) == 2_568_192 - (9712 - 5 - words) * 128


def test_a_setting_of_any_model_is_one_of_each_and_a_later_one_counts(tmp_path: Path) -> None:
    settings = ["models.*.recipe.length='700 steps'", "models.transformer_tiny.recipe.length='900 steps'"]
    data = TABLE.params(["conv_seq2seq_tiny", "transformer_tiny"], settings, their_params(tmp_path))
    found = {name: model["recipe"]["length"] for name, model in data["models"].items()}
    assert found == {"conv_seq2seq_tiny": "700 steps", "transformer_tiny": "900 steps"}


def test_each_value_of_a_key_is_a_model_of_its_own(tmp_path: Path) -> None:
    data = TABLE.params(["rnn_seq2seq_tiny"], [], their_params(tmp_path), "shape.attention=additive,scaled_dot")
    found = {name: model["shape"]["attention"] for name, model in data["models"].items()}
    assert found == {"rnn_seq2seq_tiny_additive": "additive", "rnn_seq2seq_tiny_scaled_dot": "scaled_dot"}
