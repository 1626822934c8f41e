"""Packages from registries on loopback: PyPI, npm, Debian. No package is run; every error names the source."""

from __future__ import annotations

import contextlib
import gzip
import os
import stat
import threading
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest

from lexmill.base.errors import RetryableError, UserError
from lexmill.corpora.fetching import connection
from lexmill.params.corpora import PackageSource
from tests.support.fetching import WRONG, bring, nothing_left, registries
from tests.support.package_index import Error, Made, PackageIndex, make_deb, make_npm, make_sdist, make_wheel

FILES = {"plays/one.txt": b"one", "plays/two.txt": b"two", "plays/sub/three.txt": b"3", "other.txt": b"o"}

Registry = Literal["pypi", "npm", "debian"]
Archive = Literal["sdist", "wheel", "tarball", "deb"]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    with registries(tmp_path, monkeypatch) as running:
        yield running


def package(
    made: Made, registry: Registry, archive: Archive, *members: str, name: str = "plays", sha256: str = ""
) -> PackageSource:
    return PackageSource(
        kind="package",
        registry=registry,
        name=name,
        version="1.0",
        sha256=sha256 or made.sha256,
        members=members or ("plays/*.txt",),
        archive=archive,
    )


WANTED = {"plays/one.txt": b"one", "plays/two.txt": b"two"}


def test_an_sdist_is_read_without_running_it(index: PackageIndex, tmp_path: Path) -> None:
    make_sdist(index.folder, "plays", "2.0", {"plays/one.txt": b"newer"})
    made = make_sdist(index.folder, "plays", "1.0", FILES)
    make_wheel(index.folder, "plays", "1.0", {"plays/one.txt": b"the wheel"})
    assert bring(package(made, "pypi", "sdist"), tmp_path) == WANTED


def test_a_wheel_for_another_python_and_platform_is_read_all_the_same(index: PackageIndex, tmp_path: Path) -> None:
    make_wheel(index.folder, "My-Plays", "1.0", FILES, tags="cp99-cp99-other_os")
    made = make_wheel(index.folder, "My-Plays", "1.0", {**FILES, "x": b"x"}, tags="cp99-cp99-win_arm64")
    assert bring(package(made, "pypi", "wheel", name="my_plays"), tmp_path) == WANTED


def test_an_npm_tarball_is_read(index: PackageIndex, tmp_path: Path) -> None:
    made = make_npm(index.folder, "@scope/plays", "1.0", FILES)
    assert bring(package(made, "npm", "tarball", name="@scope/plays"), tmp_path) == WANTED


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst"])
def test_a_debian_package_is_read(index: PackageIndex, tmp_path: Path, suffix: str) -> None:
    made = make_deb(index.folder, "plays", "1.0", FILES, suffix)
    assert bring(package(made, "debian", "deb"), tmp_path) == WANTED


def test_a_compressed_debian_index_is_read(index: PackageIndex, tmp_path: Path) -> None:
    made = make_deb(index.folder, "plays", "1.0", FILES)
    body = index.answer("/debian/Packages")
    assert body is not None
    (index.folder / "Packages.gz").write_bytes(gzip.compress(body[1]))
    index.plan("/debian/Packages", Error(status=404))
    assert bring(package(made, "debian", "deb"), tmp_path) == WANTED


def test_the_same_source_gives_the_same_bytes_and_a_second_fetch_needs_no_network(
    index: PackageIndex, tmp_path: Path
) -> None:
    source = package(make_sdist(index.folder, "plays", "1.0", FILES), "pypi", "sdist")
    first = bring(source, tmp_path)
    manifest = (tmp_path / "target" / "manifest.json").read_bytes()
    asked = len(index.requests)
    index.folder.joinpath("plays-1.0.tar.gz").unlink()
    assert bring(source, tmp_path) == first
    assert (tmp_path / "target" / "manifest.json").read_bytes() == manifest
    assert len(index.requests) == asked
    assert b"127.0.0.1" not in manifest
    assert str(tmp_path).encode() not in manifest


def test_a_damaged_cache_is_not_believed(index: PackageIndex, tmp_path: Path) -> None:
    made = make_sdist(index.folder, "plays", "1.0", FILES)
    bring(package(made, "pypi", "sdist"), tmp_path)
    (tmp_path / "cache" / "lexmill" / "downloads" / made.sha256).write_bytes(b"damaged")
    assert bring(package(made, "pypi", "sdist"), tmp_path) == WANTED


def test_a_home_that_cannot_be_written_does_no_harm(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a file, no folder"
    home.write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    made = make_sdist(index.folder, "plays", "1.0", FILES)
    assert bring(package(made, "pypi", "sdist"), tmp_path) == WANTED
    assert (tmp_path / ".lexmill" / "downloads" / made.sha256).is_file()


# ---------------------------------------------------------------- what goes wrong

KINDS = [("pypi", "sdist"), ("pypi", "wheel"), ("npm", "tarball"), ("debian", "deb")]
MAKERS = {"sdist": make_sdist, "wheel": make_wheel, "tarball": make_npm, "deb": make_deb}


@pytest.mark.parametrize("promise_hashes", [True, False])
@pytest.mark.parametrize(("registry", "archive"), KINDS)
def test_other_bytes_than_those_pinned_are_refused(
    index: PackageIndex, tmp_path: Path, registry: Registry, archive: Archive, promise_hashes: bool
) -> None:
    index.promise_hashes = promise_hashes
    made = MAKERS[archive](index.folder, "plays", "1.0", FILES)
    with pytest.raises(UserError, match=f"package plays 1.0 .*{made.sha256}.*{WRONG}|{WRONG}.*{made.sha256}"):
        bring(package(made, registry, archive, sha256=WRONG), tmp_path)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(("registry", "archive"), KINDS)
def test_a_missing_package_version_or_member_is_the_users_to_mend(
    index: PackageIndex, tmp_path: Path, registry: Registry, archive: Archive
) -> None:
    made = MAKERS[archive](index.folder, "plays", "2.0", FILES)
    with pytest.raises(UserError, match=r"plays 1\.0.*2\.0"):
        bring(package(made, registry, archive), tmp_path)
    with pytest.raises(UserError, match=r"absent 1\.0"):
        bring(package(made, registry, archive, name="absent"), tmp_path)
    made = MAKERS[archive](index.folder, "plays", "1.0", FILES)
    with pytest.raises(UserError, match=r"no member matches 'plays/won\.txt'.*plays/one\.txt"):
        bring(package(made, registry, archive, "plays/two.txt", "plays/won.txt"), tmp_path)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(("registry", "archive"), KINDS)
@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_server_that_fails_is_worth_another_try(
    index: PackageIndex, tmp_path: Path, registry: Registry, archive: Archive, status: int
) -> None:
    made = MAKERS[archive](index.folder, "plays", "1.0", FILES)
    pages = (
        "/simple/plays/",
        "/npm/plays",
        "/debian/Packages",
        f"/files/{made.path.name}",
        f"/debian/{made.path.name}",
    )
    for page in pages:
        index.plan(page, Error(status))
    assert bring(package(made, registry, archive), tmp_path) == WANTED  # it came at the second try
    (tmp_path / "cache" / "lexmill" / "downloads" / made.sha256).unlink()
    for page in pages:
        index.plan(page, *[Error(status)] * 4)
    before = {path: path.read_bytes() for path in (tmp_path / "target").rglob("*.txt")}
    with pytest.raises(RetryableError, match=f"package plays 1.0 .*HTTP {status}.*4 tries"):
        bring(package(made, registry, archive), tmp_path)
    # What stood there before stands there still.
    assert {path: path.read_bytes() for path in (tmp_path / "target").rglob("*.txt")} == before


@pytest.mark.parametrize(("registry", "archive"), KINDS)
def test_no_network_is_worth_another_try(
    index: PackageIndex, tmp_path: Path, registry: Registry, archive: Archive
) -> None:
    made = MAKERS[archive](index.folder, "plays", "1.0", FILES)
    index.__exit__()
    with pytest.raises(RetryableError, match=r"plays 1\.0 .*no connection to 127\.0\.0\.1"):
        bring(package(made, registry, archive), tmp_path)
    assert nothing_left(tmp_path)
    index.__init__(index.folder)  # type: ignore[misc]
    index.__enter__()


@pytest.mark.parametrize(("status", "advice"), [(401, "login"), (403, "login"), (404, "correct the name")])
def test_a_refused_file_is_the_users_to_mend(index: PackageIndex, tmp_path: Path, status: int, advice: str) -> None:
    made = make_sdist(index.folder, "plays", "1.0", FILES)
    index.plan(f"/files/{made.path.name}", Error(status))
    with pytest.raises(UserError, match=f"HTTP {status}: .*{advice}"):
        bring(package(made, "pypi", "sdist"), tmp_path)
    assert nothing_left(tmp_path)


def test_a_refused_index_page_says_so(index: PackageIndex, tmp_path: Path) -> None:
    made = make_sdist(index.folder, "plays", "1.0", FILES)
    index.plan("/simple/plays/", Error(403))
    with pytest.raises(UserError, match=r"Client Error\(403\)"):
        bring(package(made, "pypi", "sdist"), tmp_path)


def test_errors_of_the_params_are_reported_before_any_request(index: PackageIndex, tmp_path: Path) -> None:
    made = make_sdist(index.folder, "plays", "1.0", FILES)
    for source, message in [
        (package(made, "npm", "sdist"), "npm has no sdist; give tarball"),
        (package(made, "pypi", "sdist", sha256="f00d"), "not a sha256"),
    ]:
        with pytest.raises(UserError, match=message):
            bring(source, tmp_path)
    assert index.requests == []


def test_a_second_index_helps_where_the_first_is_down_or_lacks_the_package(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_sdist(index.folder, "plays", "1.0", FILES)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"file://{tmp_path}/not-there {index.address}/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "not there either"))
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.address}/nothing")
    assert bring(package(made, "pypi", "sdist"), tmp_path) == WANTED
    (tmp_path / "cache" / "lexmill" / "downloads" / made.sha256).unlink()
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")  # nothing listens on port 1
    assert bring(package(made, "pypi", "sdist"), tmp_path) == WANTED


def test_find_links_and_file_indexes_are_read(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_sdist(tmp_path / "wheel house", "plays", "1.0", FILES)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", (tmp_path / "wheel house").as_uri())
    assert bring(package(made, "pypi", "sdist"), tmp_path) == WANTED
    assert index.requests == []
    with pytest.raises(UserError, match=f"{WRONG}"):
        bring(package(made, "pypi", "sdist", sha256=WRONG), tmp_path)


def test_apt_gives_a_package_where_no_mirror_is_set(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_deb(tmp_path / "apt", "plays", "1.0", FILES)
    monkeypatch.delenv("LEXMILL_DEBIAN_MIRROR")
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    _program(programs / "apt-get", f'for last; do :; done; [ "$last" = plays=1.0 ] && cp {made.path} .')
    assert bring(package(made, "debian", "deb"), tmp_path) == WANTED
    _program(programs / "apt-get", "echo 'E: Unable to locate package absent' >&2; exit 100")
    with pytest.raises(UserError, match=r"absent 1\.0 .*Unable to locate package.*apt-get update"):
        bring(package(made, "debian", "deb", name="absent", sha256=WRONG), tmp_path)
    _program(programs / "apt-get", "echo \"E: Failed to fetch x  Could not resolve 'mirror'\" >&2; exit 100")
    with pytest.raises(RetryableError, match="Could not resolve"):
        bring(package(made, "debian", "deb", sha256=WRONG), tmp_path)
    assert not list((tmp_path / "cache").rglob(".apt-*"))


def _program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture(params=["plain", "gzip"])
def endless(request: pytest.FixtureRequest) -> Iterator[tuple[str, list[int]]]:
    """The address of a server whose answers have no end, and how many bytes each sent before it was left."""
    sent: list[int] = []

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            packer = zlib.compressobj(wbits=31) if request.param == "gzip" else None
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            if packer is not None:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            sent.append(0)
            piece = b" " * (1 << 20)
            with contextlib.suppress(OSError):  # the other side has left
                while True:
                    sent[-1] += self.wfile.write(piece if packer is None else packer.compress(piece))

        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", sent
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "kind",
    [
        ("pypi", "sdist", "PIP_INDEX_URL"),
        ("npm", "tarball", "npm_config_registry"),
        ("debian", "deb", "LEXMILL_DEBIAN_MIRROR"),
    ],
)
def test_a_registry_that_never_ends_is_given_up(
    kind: tuple[str, str, str],
    endless: tuple[str, list[int]],
    index: PackageIndex,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (registry, archive, variable), (address, sent) = kind, endless
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 8 << 20)
    monkeypatch.setenv(variable, address)
    source = package(Made(tmp_path, WRONG), registry, archive)
    with pytest.raises(UserError, match=r"http://127\.0\.0\.1:\d+/\S+ sends more than 8 MiB, which no index has"):
        bring(source, tmp_path)
    assert len(sent) == 1
    assert sent[0] < 64 << 20
    assert nothing_left(tmp_path)
