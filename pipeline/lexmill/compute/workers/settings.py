"""The execution settings of the data stages: who works on the pieces of a corpus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from lexmill.base.strict import spec

_PARTS = {"prefect": "prefect", "dask": "prefect_dask", "ray": "prefect_ray"}
_ADDRESS = re.compile(r"(?:(?:tcp|tls|ray)://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True)
class DataWorkers:
    """`data` of a conf/execution/*.yaml; see docs/large-corpora.md."""

    workers: Literal["local", "processes", "prefect", "dask", "ray"] = spec(
        "who prepares and encodes a large corpus: the stage's own process, processes beside it, the same as mapped"
        " tasks of Prefect, or a Dask or Ray cluster through Prefect",
        "processes",
    )
    count: int = spec("how many at once; 0: as many as `threads`, or as the cluster has", 0, low=0, high=100_000)
    address: str = spec("the Dask scheduler or Ray head to use, host:port; empty: a cluster on this machine", "")
    from_bytes: int = spec(
        "the smallest corpus that is not simply worked on by the stage's own process", 50_000_000, unit="bytes", low=0
    )

    def errors(self) -> list[str]:
        found = []
        if self.address and self.workers not in ("dask", "ray"):
            found.append(f"address: {self.workers} has no cluster; set workers to dask or ray, or take it out")
        elif self.address and not _ADDRESS.fullmatch(self.address):
            found.append(f"address: '{self.address}' is not of the form host:port, such as tcp://10.0.0.1:8786")
        part = _PARTS.get(self.workers)
        if part and find_spec(part) is None:
            found.append(f"workers: {self.workers} needs {part}: pip install -e '.[cluster]'")
        return found

    @property
    def host(self) -> str:
        """The cluster's machine; empty for a cluster on this one."""
        found = _ADDRESS.fullmatch(self.address)
        return found["host"].strip("[]") if found else ""

    @property
    def port(self) -> int:
        found = _ADDRESS.fullmatch(self.address)
        return int(found["port"]) if found else 0
