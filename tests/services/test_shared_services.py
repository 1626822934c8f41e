"""A team's services for real: two models through a Prefect worker, PostgreSQL, MLflow with users, files on S3."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest

from tests.e2e.conftest import Project, new_project
from tests.services import started
from tests.services.conftest import Services
from tests.services.missing import needs
from tests.support.package_index import PackageIndex

# A night takes two minutes on a quiet machine.
pytestmark = [pytest.mark.services, pytest.mark.timeout(1800), needs("postgresql")]

MODELS = ("gpt", "sentiment")
FEWER = ["~models.lstm", "~models.en_de", "~corpora.home_assistant", "~tokenizers.home_assistant_bpe"]


@dataclass(frozen=True)
class Team:
    """The services, a member's workspace, and what of it must stay secret."""

    services: Services
    project: Project
    member: tuple[str, str]

    def secrets(self) -> set[str]:
        mlflow, prefect = self.services.mlflow, self.services.prefect
        passwords = self.services.postgres.passwords.values()
        return {*passwords, *mlflow.secrets, *prefect.secrets, self.services.bucket.secret, self.member[1]}


@pytest.fixture(scope="module")
def team(
    tmp_path_factory: pytest.TempPathFactory, services: Services, package_index: tuple[PackageIndex, list[str]]
) -> Team:
    """A member's workspace after one night: the deployment of prefect.yaml, run by a worker."""
    index, overrides = package_index
    overrides = [*(one for one in overrides if "home_assistant" not in one), *FEWER]
    member = ("nightly", started.password())
    bucket, mlflow, prefect = services.bucket, services.mlflow, services.prefect
    environment = {
        **index.environment(),
        **bucket.environment(),
        "PREFECT_API_URL": f"{prefect.url}/api",
        "PREFECT_API_AUTH_STRING": ":".join(prefect.login),
        "MLFLOW_TRACKING_USERNAME": member[0],
        "MLFLOW_TRACKING_PASSWORD": member[1],
    }
    project = new_project(tmp_path_factory.mktemp("team"), environment, overrides)
    use_tracking(project, mlflow.url)
    mlflow.add_user(*member)
    project.run("-m", "dvc", "remote", "add", "--default", "team", f"s3://{bucket.name}/dvc")
    project.run("-m", "dvc", "remote", "modify", "team", "endpointurl", bucket.endpoint)
    project.git("commit", "--quiet", "--all", "--message", "the team's store")
    with started.prefect_worker(project.root, "lexmill", project.environment) as worker:
        project.run("-m", "prefect", "--no-prompt", "deploy", "--name", "process")
        done = project.run("-m", "prefect", "deployment", "run", "lexmill/process", "--watch")
        assert "Completed" in done.stdout, f"{done.stdout}\n{worker.log.read_text()}"
    project.run("-m", "dvc", "push")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "what the night brought")
    return Team(services, project, member)


def use_tracking(project: Project, url: str) -> None:
    """The execution settings of the member's machine: one thread, the team's tracking server."""
    execution = Path(project.environment["LEXMILL_EXECUTION"])
    execution.write_text(f"{execution.read_text()}tracking_uri: {url}\n")


def test_the_run_is_in_every_service(team: Team) -> None:
    run = "SELECT state_type::text FROM flow_run WHERE auto_scheduled IS FALSE"
    assert team.services.postgres.ask(run, "prefect", "prefect") == [("COMPLETED",)]
    models = team.services.postgres.ask("SELECT name, alias FROM registered_model_aliases", "mlflow", "mlflow")
    assert set(models) == {(name, "champion") for name in MODELS}
    places = team.services.postgres.ask(
        "SELECT DISTINCT split_part(artifact_uri, ':', 1) FROM runs", "mlflow", "mlflow"
    )
    assert places == [("mlflow-artifacts",)]  # through the server: members hold no key of its store
    folders = {key.split("/")[0] for key in team.services.bucket.objects()}
    assert folders == {"dvc", "mlflow"}


def test_a_second_clone_has_nothing_to_do(team: Team, tmp_path: Path) -> None:
    root = tmp_path / "second clone"
    team.project.git("clone", "--quiet", str(team.project.root), str(root))
    second = Project(root, {name: value for name, value in team.project.environment.items() if name != "HOME"})
    use_tracking(second, team.services.mlflow.url)
    assert not (root / "artifacts").exists()
    second.run("-m", "dvc", "pull")
    assert json.loads(second.run("-m", "dvc", "status", "--json").stdout) == {}
    said = second.run("-m", "dvc", "repro")
    assert "up to date" in said.stdout + said.stderr
    assert "Running stage" not in said.stdout
    # By another member, who may only read what the night made.
    reader = ("ada", started.password())
    team.services.mlflow.add_user(*reader)
    login = {"MLFLOW_TRACKING_USERNAME": reader[0], "MLFLOW_TRACKING_PASSWORD": reader[1]}
    published = second.run("-m", "lexmill.cli", "publish", **login)
    for name in MODELS:
        assert f"{name}: already version 1 (champion)" in published.stdout + published.stderr
    assert second.git("status", "--porcelain") == ""


def test_who_has_no_password_is_refused(team: Team) -> None:
    asks = (
        f"{team.services.mlflow.url}/api/2.0/mlflow/experiments/search?max_results=1",
        f"{team.services.prefect.url}/api/admin/version",
    )
    for url, login in zip(asks, (team.member, team.services.prefect.login), strict=True):
        codes = [started.status(url), started.status(url, (login[0], "wrong")), started.status(url, login)]
        assert codes == [401, 401, 200]
    # What tells whether it lives, and the API's description, stay open (Prefect's way): nothing of the team's is there.
    open_to_all = ("/api/health", "/api/ready", "/docs")
    assert [started.status(team.services.prefect.url + path) for path in open_to_all] == [200, 200, 200]
    # Artifacts go the same way; a page of another name (DNS rebinding) is refused though the password is right.
    assert started.status(f"{team.services.mlflow.url}/api/2.0/mlflow-artifacts/artifacts") == 401
    assert started.status(asks[0], team.member, {"Host": "elsewhere.example"}) == 403
    # A probe of Kubernetes comes by the pod's own address.
    assert started.status(f"{team.services.mlflow.url}/health", headers={"Host": "10.0.0.7:5000"}) == 200
    with pytest.raises(psycopg2.OperationalError, match="no password supplied"):
        psycopg2.connect(
            host=started.HOST, port=team.services.postgres.port, dbname="mlflow", user="mlflow", password=""
        )
    with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
        team.services.postgres.ask("SELECT 1", "mlflow", "prefect")


def test_a_forgotten_password_is_reported_in_a_sentence(team: Team) -> None:
    without = {"MLFLOW_TRACKING_USERNAME": "", "MLFLOW_TRACKING_PASSWORD": ""}
    said = team.project.run("-m", "lexmill.cli", "publish", code=2, **without)
    assert "MLFLOW_TRACKING_PASSWORD" in said.stderr
    assert "Traceback" not in said.stderr
    # With `--approve` the server is asked for, though nothing changed.
    said = team.project.run("-m", "flows", "run", "--approve", code=2, PREFECT_API_AUTH_STRING="team:wrong")
    assert "refuses us (HTTP 401); set PREFECT_API_AUTH_STRING" in said.stderr
    assert "Traceback" not in said.stderr


def test_no_secret_is_written_anywhere(team: Team) -> None:
    """Not into the workspace (cache, git, logs, spools included), a server's log, a database or the bucket."""
    folders = [
        team.project.root,
        team.services.mlflow.server.log.parents[2],
        team.services.prefect.server.log.parents[2],
    ]
    texts = {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}
    texts |= {Path("s3", key): body for key, body in team.services.bucket.objects().items()}
    texts |= {Path(name): team.services.postgres.dump(name).encode() for name in ("mlflow", "mlflow_auth", "prefect")}
    texts[team.services.postgres.log] = team.services.postgres.log.read_bytes()
    history = ["git", "log", "--patch", "--all", "--text"]  # the objects themselves are compressed
    texts[Path("git")] = subprocess.run(history, cwd=team.project.root, check=True, capture_output=True).stdout
    assert len(texts) > 300

    def where(word: str) -> set[str]:
        return {path.name for path, text in texts.items() if word.encode() in text}

    assert "mlflow_auth" in where(team.member[0])  # the search finds what is there
    assert {name for secret in team.secrets() for name in where(secret)} == set()
