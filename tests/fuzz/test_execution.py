"""conf/execution/*.yaml with anything in it: it loads, or every error is a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given

from lexmill.compute.execution import load_execution
from lexmill.compute.place import place_of
from lexmill.tracking.store import check_address, sqlite_path
from tests.fuzz.budget import fuzzed
from tests.fuzz.nasty import mutated, within_budget

VALID = """\
accelerator: cpu
devices: 1
nodes: 1
strategy: single
tensor_parallel: 1
threads: 2
micro_batch: 8192
activation_checkpointing: false
checkpoint_root: .lexmill/checkpoints
checkpoint_seconds: 60
checkpoint_every_steps: 0
sample_every: 250
system_metrics_seconds: 10.0
tracking_uri: sqlite:///mlflow.db
publish: true
data: {workers: processes, count: 0, address: '', from_bytes: 50000000}
stages:
  default: {launcher: local}
  train: {launcher: slurm, gpus: 1, cpus: 8, memory: 32 GB, time: 8 hours}
  train@gpt: {launcher: local, gpus: 0}
slurm: {partition: gpu, account: '', options: [--qos=low], requeues: 20}
kubernetes: {namespace: '', context: '', template: infra/kubernetes/stage-job.yaml}
work_pool: lexmill-stages
poll_seconds: 5.0
orphan_time: 2 minutes
lease_root: /tmp/lexmill-leases
"""


@fuzzed(200)
@given(text=mutated(VALID))
def test_settings(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "conf" / "execution" / "local.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")

    def load() -> None:
        settings = load_execution(folder)
        check_address(settings.tracking_uri)
        sqlite_path(settings.tracking_uri)
        for stage in ("train@gpt", "evaluate@gpt", "prepare@x"):
            place = place_of(stage, settings)
            assert place.seconds < 2**31
            assert place.memory < 2**53
        assert settings.world > 0

    within_budget(load)
