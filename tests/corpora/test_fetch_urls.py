"""Files behind addresses: resumed, retried, checked; and the download cache under them."""

from __future__ import annotations

import base64
import hashlib
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lexmill.base.errors import RetryableError, UserError
from lexmill.base.strict import build
from lexmill.corpora.fetching import connection, downloads
from lexmill.params.corpora import UrlSource
from tests.support.fetching import WRONG, bring, nothing_left, registries
from tests.support.package_index import Error, PackageIndex, zip_bytes

BODY = random.Random(1).randbytes(300_000)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    with registries(tmp_path, monkeypatch) as running:
        (running.folder / "body.txt").write_bytes(BODY)
        yield running


def source(index: PackageIndex, *names: str, sha256: str = "", members: tuple[str, ...] = ()) -> UrlSource:
    hashes = [sha256 or hashlib.sha256((index.folder / name).read_bytes()).hexdigest() for name in names]
    urls = tuple(f"{index.address}/files/{name}" for name in names)
    return UrlSource(kind="url", urls=urls, sha256=tuple(hashes), members=members)


def ranges(index: PackageIndex) -> list[str | None]:
    return [headers.get("Range") for _, headers in index.requests]


def test_a_file_comes_as_it_is(index: PackageIndex, tmp_path: Path) -> None:
    assert bring(source(index, "body.txt"), tmp_path) == {"body.txt": BODY}


def test_a_broken_connection_goes_on_where_it_broke(index: PackageIndex, tmp_path: Path) -> None:
    # More breaks than retries: each brings something, so each starts the count anew.
    index.plan("/files/body.txt", *[Error(cut_after=50_000)] * 5)
    assert bring(source(index, "body.txt"), tmp_path) == {"body.txt": BODY}
    assert ranges(index) == [None, *[f"bytes={n}-" for n in range(50_000, 300_000, 50_000)]]


def test_the_next_fetch_goes_on_where_the_last_one_gave_up(index: PackageIndex, tmp_path: Path) -> None:
    index.plan("/files/body.txt", Error(cut_after=120_000), *[Error(503)] * 3)
    with pytest.raises(RetryableError, match=r"address http://127\.0\.0\.1:\d+/files/body\.txt: .*HTTP 503"):
        bring(source(index, "body.txt"), tmp_path)
    assert not (tmp_path / "target").exists()
    index.requests.clear()
    assert bring(source(index, "body.txt"), tmp_path) == {"body.txt": BODY}
    assert ranges(index) == ["bytes=120000-"]
    assert nothing_left(tmp_path / "cache" / "lexmill")


@pytest.mark.parametrize(
    "partial",
    [b"another file's first half", BODY, BODY + b"more", BODY[:1000]],
    ids=["another", "whole", "longer", "begun"],
)
@pytest.mark.parametrize("ignore_range", [True, False])
def test_whatever_a_partial_file_holds_the_right_bytes_come(
    index: PackageIndex, tmp_path: Path, partial: bytes, ignore_range: bool
) -> None:
    wanted = source(index, "body.txt")
    folder = tmp_path / "cache" / "lexmill" / "downloads"
    folder.mkdir(parents=True)
    (folder / f"{wanted.sha256[0]}.part").write_bytes(partial)
    index.plan("/files/body.txt", Error(ignore_range=ignore_range))
    assert bring(wanted, tmp_path) == {"body.txt": BODY}


def test_other_bytes_are_refused_with_both_hashes(index: PackageIndex, tmp_path: Path) -> None:
    actual = hashlib.sha256(BODY).hexdigest()
    with pytest.raises(UserError, match=f"{actual}.*{WRONG}"):
        bring(source(index, "body.txt", sha256=WRONG), tmp_path)
    assert nothing_left(tmp_path)


def test_retry_after_is_heeded(index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(connection.time, "sleep", pauses.append)
    monkeypatch.setattr(connection, "FIRST_PAUSE", 1.0)
    index.plan("/files/body.txt", Error(429, retry_after="7"), Error(503), Error(503, retry_after="9999"))
    assert bring(source(index, "body.txt"), tmp_path) == {"body.txt": BODY}
    assert pauses[0] == 7
    assert 2 <= pauses[1] <= 2.2
    assert pauses[2] == connection.LONGEST_PAUSE


def test_a_missing_file_is_the_users_to_mend(index: PackageIndex, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="HTTP 404"):
        bring(UrlSource("url", (f"{index.address}/files/no",), (WRONG,)), tmp_path)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("url", ["ftp://host/x", "/etc/passwd", "file:///etc/passwd", "http://", "http://[bad/x"])
def test_what_is_no_address_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(UserError, match="address"):
        bring(UrlSource("url", (url,), (WRONG,)), tmp_path)


def test_a_secret_of_the_environment_is_used_and_written_nowhere(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MILL_PASSWORD", "hush/hush")
    monkeypatch.setenv("MILL_SIGNATURE", "hush&hush")
    plain = source(index, "body.txt")
    url = plain.urls[0].replace("http://", "http://me:${MILL_PASSWORD}@") + "?sig=$MILL_SIGNATURE"
    assert bring(UrlSource("url", (url,), plain.sha256), tmp_path) == {"body.txt": BODY}
    assert index.queries[-1] == "sig=hush%26hush"
    _, headers = index.requests[-1]
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"me:hush/hush").decode()
    with pytest.raises(UserError) as caught:
        bring(UrlSource("url", (url,), (WRONG,)), tmp_path)
    index.plan("/files/gone.txt", Error(404))
    with pytest.raises(UserError) as gone:
        bring(UrlSource("url", (url.replace("body", "gone"),), ("1" * 64,)), tmp_path)
    shown = "".join((str(caught.value), str(gone.value), *capfd.readouterr()))
    assert "hush" not in shown
    written = [path for path in tmp_path.rglob("*") if path.is_file() and b"hush" in path.read_bytes()]
    assert written == []


def test_a_secret_in_an_address_is_refused_before_anything_stores_it() -> None:
    errors: list[str] = []
    urls = ["https://me:hush@host/a.txt", "https://host/a.txt?sig=hush", "https://host/a.txt?sig=$SIG"]
    assert build(UrlSource, {"kind": "url", "urls": urls, "sha256": [WRONG] * 3}, errors) is None
    assert [error.partition(",")[0] for error in errors] == [
        "urls[0]: https://host/a.txt holds a login",
        "urls[1]: https://host/a.txt holds the secret parameter 'sig'",
    ]
    assert "hush" not in "".join(errors)


def test_a_login_in_an_address_is_used_but_never_reported(index: PackageIndex, tmp_path: Path) -> None:
    wanted = source(index, "body.txt")
    secret = wanted.urls[0].replace("http://", "http://me:hush@") + "?token=hush"
    assert bring(UrlSource("url", (secret,), wanted.sha256), tmp_path) == {"body.txt": BODY}
    assert index.requests[-1][1]["Authorization"].startswith("Basic ")
    with pytest.raises(UserError) as caught:
        bring(UrlSource("url", (secret,), (WRONG,)), tmp_path)
    assert "hush" not in str(caught.value)


def test_files_of_one_name_and_members_of_several_archives_are_kept_apart(index: PackageIndex, tmp_path: Path) -> None:
    (index.folder / "a.zip").write_bytes(zip_bytes({"x.txt": b"a", "y.md": b"y"}))
    (index.folder / "b.zip").write_bytes(zip_bytes({"x.txt": b"b"}))
    found = bring(source(index, "a.zip", "b.zip", members=("*.txt",)), tmp_path)
    assert found == {"0/x.txt": b"a", "1/x.txt": b"b"}
    assert set(bring(source(index, "body.txt", "body.txt"), tmp_path)) == {"0/body.txt", "1/body.txt"}
    with pytest.raises(UserError, match=r"b\.zip: no member matches"):
        bring(source(index, "a.zip", "b.zip", members=("*.txt", "*.md")), tmp_path)


def test_two_fetches_of_one_file_at_once_both_have_it(index: PackageIndex, tmp_path: Path) -> None:
    wanted, results = source(index, "body.txt"), []

    def one(i: int) -> None:
        workspace = tmp_path / f"w{i}"
        workspace.mkdir()
        results.append(bring(wanted, workspace))

    threads = [threading.Thread(target=one, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [{"body.txt": BODY}] * 4
    assert len(index.requests) == 1


def test_a_full_disk_leaves_nothing_and_says_so(index: PackageIndex, tmp_path: Path) -> None:
    """A limit on the size of written files stands for the disk's end."""
    wanted = source(index, "body.txt")
    code = f"""
import resource
from pathlib import Path
from lexmill.corpora.fetching.fetch import fetch
from lexmill.params.corpora import UrlSource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
fetch(UrlSource("url", {wanted.urls!r}, {wanted.sha256!r}), ".", "target")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("lexmill.base.errors.RetryableError: address http://127.0.0.1")
    assert f"the disk is full (writing {tmp_path}" in last
    assert nothing_left(tmp_path)


def test_a_partial_file_that_another_fetch_has_just_put_in_place_is_opened_anew(tmp_path: Path) -> None:
    """Between the lock and the look at the name."""
    part = tmp_path / "part"
    with open(part, "ab", buffering=0) as stream:
        assert downloads._has_name(stream, part)
        part.rename(tmp_path / "whole")
        assert not downloads._has_name(stream, part)
        part.write_bytes(b"another")
        assert not downloads._has_name(stream, part)
