"""Where stages run, as it is written: notations, the most specific entry, and what cannot work, all at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base.errors import UserError, UserErrors
from lexmill.compute.execution import Execution, load_execution
from lexmill.compute.place import Place, check_others_started, place_of
from lexmill.compute.settings import Duration, Memory, StageSettings, entry_of


@pytest.mark.parametrize(
    ("written", "seconds", "shown"),
    [
        ("90 seconds", 90, "90 seconds"),
        ("30 minutes", 1800, "30 minutes"),
        ("1 hour", 3600, "1 hour"),
        ("1.5 days", 129600, "36 hours"),
        (0, 0, "0"),
    ],
)
def test_a_time_span(written: Any, seconds: float, shown: str) -> None:
    assert Duration.parse(written) == Duration(seconds)
    assert str(Duration(seconds)) == shown
    assert Duration.parse(str(Duration(seconds)) if seconds else 0) == Duration(seconds)


@pytest.mark.parametrize("wrong", [5, "8", "8h", "0 hours", "-1 hours", "8:00", True, None, "2 weeks"])
def test_no_time_span(wrong: Any) -> None:
    with pytest.raises(ValueError, match="is no time span; write a number and its unit"):
        Duration.parse(wrong)


@pytest.mark.parametrize(
    ("written", "mebibytes"), [("512 MiB", 512), ("1 GB", 954), ("1.5GiB", 1536), ("2 TB", 1907349), (0, 0)]
)
def test_an_amount_of_memory(written: Any, mebibytes: int) -> None:
    assert Memory.parse(written).mebibytes == mebibytes


@pytest.mark.parametrize("wrong", [32, "32", "32 gb", "0 GB", "all", False, None])
def test_no_amount_of_memory(wrong: Any) -> None:
    with pytest.raises(ValueError, match="is no amount of memory"):
        Memory.parse(wrong)


def test_the_most_specific_entry_counts_whole() -> None:
    stages = {
        "default": StageSettings(time=Duration(60)),
        "train": StageSettings(launcher="slurm", gpus=1),
        "train@gpt": StageSettings(cpus=2),
    }
    assert entry_of(stages, "train@gpt") == StageSettings(cpus=2)
    assert entry_of(stages, "train@lstm").launcher == "slurm"
    assert entry_of(stages, "sub/dvc.yaml:train@lstm").launcher == "slurm"
    assert entry_of(stages, "report").time == Duration(60)
    assert entry_of({}, "report") == StageSettings()


def test_gpus_are_those_that_the_accelerator_asks_for_unless_said() -> None:
    cuda = Execution(accelerator="cuda", devices=2, strategy="ddp", nodes=3)
    assert place_of("train@gpt", cuda) == Place("train@gpt", "local", 2, 0, 0, 0, nodes=3, processes=2)
    assert place_of("evaluate@gpt", cuda).gpus == 1
    assert place_of("prepare@books", cuda) == Place("prepare@books", "local", 0, 0, 0, 0, nodes=1, processes=1)
    assert place_of("train@gpt", Execution()).gpus == 0
    said = Execution(accelerator="cuda", stages={"train": StageSettings(gpus=0)})
    assert place_of("train@gpt", said).gpus == 0


def test_the_stage_code_runs_where_dvc_does() -> None:
    slurm = StageSettings(launcher="slurm", gpus=1)
    place = place_of("code", Execution(accelerator="cuda", stages={"default": slurm}))
    assert (place.launcher, place.gpus) == ("local", 0)
    (error,) = Execution(stages={"code": slurm}).errors()
    assert error == "stages.code: this stage takes a second and runs where DVC does; leave it out"


def test_several_machines_are_started_by_slurm_or_told_of_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    here = Execution(nodes=2, strategy="ddp")
    with pytest.raises(UserError, match="nodes: 2, but the training was started on this machine alone"):
        check_others_started(place_of("train@gpt", here))
    check_others_started(place_of("prepare@books", here))
    check_others_started(place_of("train@gpt", Execution()))
    slurm = Execution(nodes=2, strategy="ddp", stages={"train": StageSettings(launcher="slurm")})
    check_others_started(place_of("train@gpt", slurm))
    monkeypatch.setenv("MASTER_ADDR", "node-a")
    check_others_started(place_of("train@gpt", here))


def test_torchrun_as_the_default_is_for_trainings() -> None:
    settings = Execution(devices=2, strategy="ddp", stages={"default": StageSettings(launcher="torchrun")})
    assert place_of("train@mood", settings).launcher == "torchrun"
    assert place_of("prepare@books", settings).launcher == "local"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"stages": {"trian": {}}}, "stages.trian: there is no such stage, did you mean 'train'?"),
    ({"stages": {"train": {"launcher": "slrum"}}}, "stages.train.launcher: 'slrum' is none of: local, torchrun"),
    ({"stages": {"train": {"launcher": "slurm", "memory": "lots"}}}, "stages.train.memory: 'lots' is no amount"),
    ({"stages": {"prepare@a": {"launcher": "torchrun"}}}, "stages.prepare@a.launcher: torchrun starts the processes"),
    (
        {"nodes": 2, "strategy": "ddp", "stages": {"train": {"launcher": "kubernetes"}}},
        "stages.train.launcher: kubernetes runs a stage on one machine, but nodes is 2; choose slurm, or local and",
    ),
    (
        {"nodes": 2, "strategy": "ddp", "stages": {"train": {"launcher": "torchrun"}}},
        "stages.train.launcher: torchrun runs a stage on one machine, but nodes is 2; choose slurm, or local and",
    ),
    (
        {"nodes": 2, "strategy": "ddp", "stages": {"default": {"launcher": "torchrun"}}},
        "stages.default.launcher: torchrun runs a stage on one machine",
    ),
    *(
        (
            {"stages": {"train": {"launcher": launcher, "memory": "1 GB"}}},
            f"stages.train.memory: the launcher {launcher} holds no stage to it; leave it out, or choose slurm or",
        )
        for launcher in ("local", "torchrun", "prefect")
    ),
    (
        {"accelerator": "cuda", "devices": 4, "strategy": "ddp", "stages": {"train": {"gpus": 1}}},
        "stages.train.gpus: 1 for a training on 4 devices; give it as many",
    ),
    ({"stages": {"train": {"cpus": -1}}}, "stages.train.cpus: -1 is too small"),
    ({"stages": {"train": {"gpu": 1}}}, "stages.train.gpu: unknown key, did you mean 'gpus'?"),
    ({"slurm": {"requeue": 3}}, "slurm.requeue: unknown key, did you mean 'requeues'?"),
    ({"orphan_time": 0}, "orphan_time: 0 would end every job at once"),
    ({"lease_root": " "}, "lease_root: it is empty"),
]


@pytest.mark.parametrize(("settings", "sentence"), REFUSED)
def test_what_cannot_work_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], sentence: str
) -> None:
    path = tmp_path / "here.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    monkeypatch.setenv("LEXMILL_EXECUTION", str(path))
    with pytest.raises(UserErrors) as caught:
        load_execution(tmp_path)
    assert sentence in str(caught.value)
