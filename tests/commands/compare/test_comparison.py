"""`lexmill compare` on real trainings of seconds: killed, resumed, repeated, and what it leaves."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import yaml

from tests.support.small_project import SmallProject
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

COMMAND = ("-m", "lexmill.cli", "compare", "--budget", "256 tokens", "--seeds", "1")


def trials(root: Path) -> dict[str, bytes]:
    """The files of ended trainings."""
    return {path.name: path.read_bytes() for path in (root / ".lexmill" / "comparisons").glob("*/trials/*.json")}


def test_a_comparison_survives_a_kill_and_trains_nothing_twice(small: SmallProject) -> None:
    root = small.root
    kept = {name: (root / name).read_bytes() for name in ("params.yaml", "dvc.lock")}
    with small.start(*COMMAND, "lstm_tiny") as begun:
        wait_for(lambda: trials(root), alive=begun)
        tree = psutil.Process(begun.pid).children(recursive=True)
        os.kill(begun.pid, signal.SIGKILL)
        begun.communicate()
    psutil.wait_procs(tree, timeout=60)
    before = trials(root)

    said = small.run(*COMMAND, "lstm_tiny", "gpt_tiny")
    after = trials(root)
    assert before.items() <= after.items()
    rates = [(one["model"], one["values"]["rate"]) for one in map(json.loads, after.values())]
    assert len(set(rates)) == len(rates)
    assert {(name, rate) for name in ("lstm_tiny", "gpt_tiny") for rate in (0.01, 0.02)} <= set(rates)

    found = json.loads((root / "metrics" / "comparison.json").read_text(encoding="utf-8"))
    by_name = {model["preset"]: model for model in found["models"]}
    assert {model["tokens"] for model in by_name.values()} == {256}  # 4 steps of 64
    for model in by_name.values():
        assert model["interval"][0] < model["bits_per_byte"] < model["interval"][1]
        assert model["training_flops"] == 256 * model["flops_per_token"]
        assert model["tokens_per_second"] > 0
    lengths = by_name["lstm_tiny"]["lengths"]
    assert {cost["cache_bytes"] for cost in lengths.values()} == {2 * 16 * 4}  # h and c, whatever the length
    assert by_name["gpt_tiny"]["lengths"]["256"] == {"reason": "its positions are learned for 16 tokens"}

    table = (root / "reports" / "comparison" / "table.md").read_text(encoding="utf-8")
    assert "| lstm_tiny |" in table
    assert table in said
    assert {path.name for path in (root / "reports" / "comparison").iterdir()} == {
        "table.md",
        "quality.svg",
        "cost.svg",
    }
    assert {name: (root / name).read_bytes() for name in kept} == kept
    assert not (root / "artifacts" / "models").exists()

    assert small.run(*COMMAND, "gpt_tiny", "lstm_tiny").count("seed 2") == 0  # all is there
    assert trials(root) == after


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gtp_tiny",), "there is no preset 'gtp_tiny' in conf/model/, did you mean 'gpt_tiny'?"),
        (("gpt_tiny", "lstm_long"), "the presets differ in shape.context"),
        (("gpt_tiny", "--budget", "1e6 steps"), "is no budget"),
        (("bytes_tiny",), "no stage makes artifacts/tokens/rows-bytes"),
    ],
)
def test_errors_are_one_sentence_before_anything_is_trained(
    small: SmallProject, arguments: tuple[str, ...], message: str
) -> None:
    entry = yaml.safe_load((small.root / "conf" / "model" / "gpt_tiny.yaml").read_text(encoding="utf-8"))
    entry["data"]["tokenizer"] = "bytes"
    (small.root / "conf" / "model" / "bytes_tiny.yaml").write_text(yaml.safe_dump(entry), encoding="utf-8")
    for name in ("params.yaml", "conf/config.yaml"):
        data = yaml.safe_load((small.root / name).read_text(encoding="utf-8"))
        data["tokenizers"]["bytes"] = {"corpus": "rows", "kind": "byte"}
        (small.root / name).write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    said = small.run("-m", "lexmill.cli", "compare", *arguments, code=2)
    assert message in said
    assert len(said.strip().split("\n")) == 1
    assert trials(small.root) == {}
