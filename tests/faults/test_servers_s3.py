"""An S3 store that fails: a push says so in time, and the next push brings every output whole."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lexmill.base.errors import EXIT_RETRY, EXIT_USER, LexmillError
from lexmill.runner.sharing import push_outputs
from tests.services import started

from .proxy import Proxy

MOST_SECONDS = 60.0  # within 15 on a machine that does nothing else; four tests at once take their time
FAULTS = ("reset", "401", "403", "429", "500", "lose", "cut", "hang")
FILES = {name: name * 1000 for name in "abc"}


@pytest.fixture(scope="module")
def bucket() -> Iterator[started.Bucket]:
    with started.bucket() as made:
        yield made


@pytest.fixture
def proxy(bucket: started.Bucket) -> Iterator[Proxy]:
    with Proxy(("127.0.0.1", int(bucket.endpoint.rpartition(":")[2]))) as made:
        yield made


class Workspace:
    """A commit that names three files, and a remote that is reached through the proxy."""

    def __init__(self, root: Path, bucket: started.Bucket, proxy: Proxy) -> None:
        self.root = root
        self._run("git", "init", "-q")
        self._run("git", "config", "user.name", "test")
        self._run("git", "config", "user.email", "test@localhost")
        self.dvc("init", "-q")
        self.dvc("remote", "add", "-q", "--default", "team", f"s3://{bucket.name}/{root.name}")
        self.dvc("remote", "modify", "team", "endpointurl", proxy.url)
        command = f"{sys.executable} -c \"[open(n, 'w').write(n * 1000) for n in 'abc']\""
        (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"make": {"cmd": command, "outs": list(FILES)}}}))
        self.dvc("repro", "-q")
        self._run("git", "add", "-A")
        self._run("git", "commit", "-qm", "made")
        self.commit = self._run("git", "rev-parse", "HEAD").strip()

    def _run(self, *command: str) -> str:
        return subprocess.run(command, cwd=self.root, check=True, capture_output=True, text=True).stdout

    def dvc(self, *arguments: str) -> None:
        self._run(sys.executable, "-m", "dvc", *arguments)

    def push(self) -> bool:
        return push_outputs(self.root, [self.commit])


@pytest.fixture
def workspace(tmp_path: Path, bucket: started.Bucket, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    for name in ("DVC_SITE_CACHE_DIR", "DVC_GLOBAL_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name, value in bucket.environment().items():
        monkeypatch.setenv(name, value)
    root = tmp_path / tmp_path.name
    root.mkdir()
    return Workspace(root, bucket, proxy)


def refused_in_time(workspace: Workspace, fault: str) -> None:
    began = time.monotonic()
    with pytest.raises(LexmillError) as failed:
        workspace.push()
    assert time.monotonic() - began < MOST_SECONDS
    assert failed.value.exit_code == (EXIT_USER if fault in ("401", "403") else EXIT_RETRY), failed.value
    assert "\n" not in str(failed.value)


def pushed_whole(workspace: Workspace, bucket: started.Bucket) -> None:
    assert workspace.push()
    there = {key: data for key, data in bucket.objects().items() if key.startswith(f"{workspace.root.name}/")}
    assert sorted(there.values()) == sorted(text.encode() for text in FILES.values())
    for key, data in there.items():
        assert key.replace("/", "").endswith(hashlib.md5(data, usedforsecurity=False).hexdigest())


def test_a_store_that_fails_is_left_in_time_and_the_next_push_is_whole(
    workspace: Workspace, bucket: started.Bucket, proxy: Proxy
) -> None:
    for fault in ("down", "403", "500", "hang"):
        proxy.fail(fault)
        refused_in_time(workspace, fault)
        assert proxy.injected or fault == "down"
    proxy.heal()
    pushed_whole(workspace, bucket)


@pytest.mark.torture
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fault", FAULTS)
def test_whenever_the_store_fails_the_next_push_is_whole(
    workspace: Workspace, bucket: started.Bucket, proxy: Proxy, fault: str
) -> None:
    """From the n-th request on it stays away, for every n of a push."""
    proxy.heal()
    pushed_whole(workspace, bucket)
    requests = proxy.seen
    assert requests >= len(FILES)
    for after in range(requests):
        for key in bucket.objects():
            bucket.client().delete_object(Bucket=bucket.name, Key=key)
        proxy.fail(fault, after=after)
        refused_in_time(workspace, fault)
        proxy.heal()
        pushed_whole(workspace, bucket)
