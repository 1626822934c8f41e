"""A team's services for real: the whole DAG through a Prefect worker, PostgreSQL, MLflow with users, files on S3."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import psycopg2
import pytest

from tests.e2e.conftest import Project, new_project
from tests.services import started
from tests.services.missing import needs
from tests.support.package_index import PackageIndex

pytestmark = [pytest.mark.services, needs("postgresql")]

MODELS = ("gpt", "lstm", "sentiment", "en_de")


@dataclass(frozen=True)
class Team:
    """The services, a member's workspace, and what of it must stay secret."""

    postgres: started.Postgres
    bucket: started.Bucket
    mlflow: started.Service
    prefect: started.Service
    project: Project
    member: tuple[str, str]

    def secrets(self) -> set[str]:
        return {
            *self.postgres.passwords.values(),
            *self.mlflow.secrets,
            *self.prefect.secrets,
            self.bucket.secret,
            self.member[1],
        }


@pytest.fixture(scope="module")
def team(
    tmp_path_factory: pytest.TempPathFactory,
    postgres: started.Postgres,
    bucket: started.Bucket,
    mlflow_server: started.Service,
    prefect_server: started.Service,
    package_index: tuple[PackageIndex, list[str]],
) -> Team:
    """A member's workspace that was run once, as a deployment, by a worker."""
    index, overrides = package_index
    member = ("nightly", started.password())
    services = {
        **bucket.environment(),
        "PREFECT_API_URL": f"{prefect_server.url}/api",
        "PREFECT_API_AUTH_STRING": ":".join(prefect_server.login),
        "MLFLOW_TRACKING_USERNAME": member[0],
        "MLFLOW_TRACKING_PASSWORD": member[1],
    }
    project = new_project(tmp_path_factory.mktemp("team"), {**index.environment(), **services}, overrides)
    use_tracking(project, mlflow_server.url)
    made = Team(postgres, bucket, mlflow_server, prefect_server, project, member)
    mlflow_server.add_user(*member)
    project.run("-m", "dvc", "remote", "add", "--default", "team", f"s3://{bucket.name}/dvc")
    project.run("-m", "dvc", "remote", "modify", "team", "endpointurl", bucket.endpoint)
    with started.prefect_worker(project.root, "lexmill", project.environment) as worker:
        deploy = ("deploy", "flows/pipeline.py:pipeline", "--name", "team", "--pool", "lexmill")
        project.run("-m", "prefect", "--no-prompt", *deploy)
        done = project.run("-m", "prefect", "deployment", "run", "lexmill/team", "--watch")
        assert "Completed" in done.stdout, f"{done.stdout}\n{worker.log.read_text()}"
    project.run("-m", "dvc", "push")
    project.git("add", "--all")
    project.git("commit", "--quiet", "--message", "run by the worker")
    return made


def use_tracking(project: Project, url: str) -> None:
    """The execution settings of the member's machine: one thread, the team's tracking server."""
    execution = Path(project.environment["LEXMILL_EXECUTION"])
    execution.write_text(f"{execution.read_text()}tracking_uri: {url}\n")


def test_the_run_is_in_every_service(team: Team) -> None:
    states = team.postgres.ask("SELECT state_type::text FROM flow_run", "prefect", "prefect")
    assert states == [("COMPLETED",)]
    models = team.postgres.ask("SELECT name, alias FROM registered_model_aliases", "mlflow", "mlflow")
    assert set(models) == {(name, "champion") for name in MODELS}
    places = team.postgres.ask("SELECT DISTINCT split_part(artifact_uri, ':', 1) FROM runs", "mlflow", "mlflow")
    assert places == [("mlflow-artifacts",)]  # through the server: members hold no key of its store
    folders = {key.split("/")[0] for key in team.bucket.objects()}
    assert folders == {"dvc", "mlflow"}


def test_a_second_clone_has_nothing_to_do(team: Team, tmp_path: Path) -> None:
    root = tmp_path / "second clone"
    team.project.git("clone", "--quiet", str(team.project.root), str(root))
    second = Project(root, {name: value for name, value in team.project.environment.items() if name != "HOME"})
    use_tracking(second, team.mlflow.url)
    assert not (root / "artifacts").exists()
    second.run("-m", "dvc", "pull")
    assert json.loads(second.run("-m", "dvc", "status", "--json").stdout) == {}
    said = second.run("-m", "dvc", "repro")
    assert "up to date" in said.stdout + said.stderr
    assert "Running stage" not in said.stdout
    published = second.run("-m", "lexmill.cli", "publish")
    for name in MODELS:
        assert f"{name}: already version 1 (champion)" in published.stdout + published.stderr
    assert second.git("status", "--porcelain") == ""


def test_who_has_no_password_is_refused(team: Team) -> None:
    asks = (
        f"{team.mlflow.url}/api/2.0/mlflow/experiments/search?max_results=1",
        f"{team.prefect.url}/api/admin/version",
    )
    for url, login in zip(asks, (team.member, team.prefect.login), strict=True):
        assert [started.status(url), started.status(url, (login[0], "wrong")), started.status(url, login)] == [
            401,
            401,
            200,
        ]
    # Artifacts go the same way; a page of another name (DNS rebinding) is refused though the password is right.
    assert started.status(f"{team.mlflow.url}/api/2.0/mlflow-artifacts/artifacts") == 401
    assert started.status(asks[0], team.member, {"Host": "elsewhere.example"}) == 403
    with pytest.raises(psycopg2.OperationalError, match="no password supplied"):
        psycopg2.connect(host=started.HOST, port=team.postgres.port, dbname="mlflow", user="mlflow", password="")
    with pytest.raises(psycopg2.OperationalError, match="permission denied for database"):
        team.postgres.ask("SELECT 1", "mlflow", "prefect")


def test_a_forgotten_password_is_told_in_a_sentence(team: Team) -> None:
    without = {"MLFLOW_TRACKING_USERNAME": "", "MLFLOW_TRACKING_PASSWORD": ""}
    said = team.project.run("-m", "lexmill.cli", "publish", code=2, **without)
    assert "MLFLOW_TRACKING_PASSWORD" in said.stderr
    assert "Traceback" not in said.stderr


def test_no_secret_is_written_anywhere(team: Team) -> None:
    """Not into the workspace (cache, git, logs, spools included), a server's log, a database or the bucket."""
    folders = [team.project.root, team.mlflow.server.log.parents[2], team.prefect.server.log.parents[2]]
    texts = {path: path.read_bytes() for folder in folders for path in folder.rglob("*") if path.is_file()}
    texts |= {Path("s3", key): body for key, body in team.bucket.objects().items()}
    texts |= {Path(name): team.postgres.dump(name).encode() for name in ("mlflow", "mlflow_auth", "prefect")}
    texts[team.postgres.log] = team.postgres.log.read_bytes()
    texts[Path("git")] = team.project.git("log", "--patch", "--all", "--text").encode()  # its objects are compressed
    assert len(texts) > 300

    def where(word: str) -> set[str]:
        return {path.name for path, text in texts.items() if word.encode() in text}

    assert "mlflow_auth" in where(team.member[0])  # the search finds what is there
    assert {name for secret in team.secrets() for name in where(secret)} == set()
