"""Which presets are compared, and what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lexmill.base.errors import UserError
from lexmill.commands.compare import subjects
from tests.commands.compare.conftest import PRESETS, preset, write_presets
from tests.support.small_project import params_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace that nothing was run in, with the small presets."""
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(params_of(8)), encoding="utf-8")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
    write_presets(tmp_path)
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    (root / "conf" / "model" / f"{name}.yaml").write_text(text, encoding="utf-8")


def test_without_names_every_language_model_named_tiny_is_compared(root: Path) -> None:
    write(root, "built_on_tiny", "defaults:\n- lstm_tiny\n- _self_\nshape: {d_model: 24}\n")
    write(root, "other_tiny", "kind: translator\n")
    write(root, "masked_tiny", "defaults:\n- lstm_tiny\n- _self_\nrecipe: {method: hybrid}\n")
    found = subjects.load([], None, root)
    assert [one.preset for one in found] == ["built_on_tiny", "gpt_tiny", "lstm_tiny"]
    assert found[0].entry["shape"]["d_model"] == 24
    assert found[1].entry == PRESETS["gpt_tiny"]


def test_a_model_stands_alone_in_its_params(root: Path) -> None:
    (found,) = subjects.load(["lstm_tiny"], None, root)
    data = found.data(7)
    assert (list(data["models"]), data["training_seed"], data["data_seed"]) == (["lstm_tiny"], 7, 1)
    assert list(data["inputs"]) == ["lstm_tiny"]
    assert found.reads == [
        "conf/initialization/gpt2.yaml",
        "artifacts/tokens/rows-letters",
        "artifacts/tokenizers/letters",
        "artifacts/corpora/rows",
    ]


def test_every_rate_of_an_optimizer_is_scaled(root: Path) -> None:
    entry = preset("gpt", n_head=2)
    entry["recipe"]["optimizer"] = {"name": "muon", "lr": 0.02, "adamw_lr": 0.003}
    write(root, "muon", yaml.safe_dump(entry))
    (found,) = subjects.load(["muon"], None, root)
    assert found.with_rate(0.5).entry["recipe"]["optimizer"] == {"name": "muon", "lr": 0.01, "adamw_lr": 0.0015}
    assert found.rate == 0.02


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["gtp_tiny"], "there is no preset 'gtp_tiny' in conf/model/, did you mean 'gpt_tiny'?"),
        (["other"], "the preset other is no language model"),
        (
            ["gpt_tiny", "lstm_long"],
            "the presets differ in shape.context: 16 for gpt_tiny, 32 for lstm_long; compare those that share it",
        ),
        (
            ["gpt_tiny", "lstm_bytes", "lstm_tiny"],
            "the presets differ in data.tokenizer: letters for gpt_tiny and lstm_tiny, bytes for lstm_bytes;"
            " --data MODEL gives all the same",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_sentence(root: Path, names: list[str], message: str) -> None:
    write(root, "other", "kind: translator\n")
    entry = preset("lstm")
    entry["data"] = entry["data"] | {"tokenizer": "bytes"}
    write(root, "lstm_bytes", yaml.safe_dump(entry))
    for name in ("params.yaml", "conf/config.yaml"):
        data = yaml.safe_load((root / name).read_text(encoding="utf-8"))
        data["tokenizers"]["bytes"] = {"corpus": "rows", "kind": "byte"}
        (root / name).write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    with pytest.raises(UserError) as raised:
        subjects.load(names, None, root)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_data_of_a_model_replace_what_the_presets_name(root: Path) -> None:
    entry = preset("lstm")
    entry["data"] = {"corpus": "elsewhere", "train": "elsewhere", "tokenizer": "unknown"}
    write(root, "far_tiny", yaml.safe_dump(entry))
    found = subjects.load(["far_tiny", "gpt_tiny"], "toy", root)
    data = {"corpus": "rows", "train": "rows", "tokenizer": "letters", "mask_documents": False, "carry_state": False}
    assert [one.entry["data"] for one in found] == [data, data]
    with pytest.raises(UserError, match="did you mean 'toy'"):
        subjects.load([], "tyo", root)
