"""`data` of the execution settings: errors are reported before a stage runs; small corpora stay in the stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lexmill.base.strict import build
from lexmill.compute.execution import Execution
from lexmill.compute.workers import settings
from lexmill.compute.workers.choosing import executor_for
from lexmill.compute.workers.executor import Here
from lexmill.compute.workers.processes import Processes


def errors_of(**data: Any) -> list[str]:
    errors: list[str] = []
    build(Execution, {"data": data}, errors)
    return errors


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:8786", "head:8786", "tls://a.example:1", "tcp://[::1]:8786"])
def test_addresses(address: str) -> None:
    assert errors_of(workers="dask", address=address) == []
    data = settings.DataWorkers(workers="dask", address=address)
    assert address.endswith(f"{data.host}:{data.port}") or address.endswith(f"[{data.host}]:{data.port}")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"workers": "spark"}, "data.workers: 'spark' is none of: local, processes, prefect, dask, ray"),
        ({"address": "a:1"}, "data.address: processes has no cluster; set workers to dask or ray, or take it out"),
        ({"workers": "ray", "address": "head"}, "data.address: 'head' is not of the form host:port"),
        ({"workers": "dask", "count": -1}, "data.count: -1 is too small"),
        ({"worker": "dask"}, "data.worker: unknown key, did you mean 'workers'?"),
    ],
)
def test_what_cannot_work(data: dict[str, Any], said: str) -> None:
    (error,) = errors_of(**data)
    assert said in error


def test_a_missing_part_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    assert errors_of(workers="ray") == ["data.workers: ray needs prefect_ray: pip install -e '.[cluster]'"]


def test_who_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(text: str, size: int) -> Any:
        (tmp_path / "here.yaml").write_text(text)
        monkeypatch.setenv("LEXMILL_EXECUTION", str(tmp_path / "here.yaml"))
        with executor_for("made", size) as executor:
            return executor

    assert isinstance(chosen("{}", 49_999_999), Here)
    assert isinstance(chosen("data: {workers: local, from_bytes: 0}", 10**12), Here)
    assert isinstance(chosen("threads: 1", 10**12), Here)
    pool = chosen("threads: 3", 10**9)
    assert isinstance(pool, Processes)
    assert (pool.count, pool.piece_bytes) == (3, 8 << 20)
    assert chosen("data: {count: 2, from_bytes: 0}", 1000).piece_bytes == 62
