"""Shared services started for real on loopback: PostgreSQL, an S3 store, MLflow and Prefect behind passwords.

    with postgres(folder) as database, bucket() as store:
        with mlflow_server(folder, database, store) as mlflow: ...

Each takes a free port and its own random passwords, keeps its files in a folder of its own, and ends with the block, or
with the process that started it. They are started as infra/ starts them: the same SQL, options and variables.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from lexmill.commands.servers import HOST, Server, free_port, serving
from tests.services.missing import program
from tests.support.waiting import wait_for

INFRA = Path(__file__).parents[2] / "infra"
START_SECONDS = 300.0


def password() -> str:
    """A new random password."""
    return secrets.token_urlsafe(24)


def status(url: str, login: tuple[str, str] | None = None, headers: Mapping[str, str] | None = None) -> int:
    """The HTTP status of a GET, with a user's name and password if given."""
    request = urllib.request.Request(url, headers={**(_basic(login) if login else {}), **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def _basic(login: tuple[str, str]) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(":".join(login).encode()).decode()}


# ---------------------------------------------------------------- PostgreSQL


@dataclass(frozen=True)
class Postgres:
    """A cluster with the databases of infra/postgres/databases.sql."""

    port: int
    log: Path
    passwords: dict[str, str] = field(default_factory=lambda: {name: password() for name in ("admin", *OWNERS)})

    def ask(self, statement: str, database: str = "postgres", user: str = "admin") -> list[tuple[object, ...]]:
        """The rows that a statement gives."""
        with self._cursor(database, user) as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def change(self, statement: str, database: str = "postgres", user: str = "admin") -> None:
        """Run a statement that gives none."""
        with self._cursor(database, user) as cursor:
            cursor.execute(statement)

    @contextmanager
    def _cursor(self, database: str, user: str) -> Iterator[Any]:
        import psycopg2

        connection = psycopg2.connect(
            host=HOST, port=self.port, dbname=database, user=user, password=self.passwords[user]
        )
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                yield cursor
        finally:
            connection.close()

    def dump(self, database: str) -> str:
        """Everything in a database, as SQL."""
        command = [_tool("pg_dump"), "--host", HOST, "--port", str(self.port), "--username", "admin", database]
        environment = {**os.environ, "PGPASSWORD": self.passwords["admin"]}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


OWNERS = ("mlflow", "prefect")


def _tool(name: str) -> str:
    found = program(name)
    assert found, f"{name} is not installed"
    return found


def _as_postgres(command: list[str]) -> list[str]:
    """The command under an own user where we are root (PostgreSQL refuses root), ended with us in any case."""
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    return ["setpriv", *user, "--pdeathsig=INT", *command]


@contextmanager
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL cluster in a temporary folder, every connection by password."""
    # Not below pytest's folders, which only root may enter.
    folder = Path(tempfile.mkdtemp(prefix="lexmill-postgres-"))
    made = Postgres(free_port(), folder / "log")
    secret = folder / "admin-password"
    secret.write_text(made.passwords["admin"])
    process = None
    try:
        if os.geteuid() == 0:
            for path in (folder, secret):
                shutil.chown(path, "postgres", "postgres")
        data = str(folder / "data")
        command = [_tool("initdb"), "--pgdata", data, "--username=admin", f"--pwfile={secret}", "--no-sync"]
        command += ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C"]
        subprocess.run(_as_postgres(command), cwd=folder, check=True, capture_output=True, text=True)
        secret.unlink()
        settings = {"listen_addresses": HOST, "port": made.port, "unix_socket_directories": folder, "fsync": "off"}
        options = [text for key, value in settings.items() for text in ("-c", f"{key}={value}")]
        with open(made.log, "wb") as log:
            process = subprocess.Popen(
                _as_postgres([_tool("postgres"), "-D", data, *options]), cwd=folder, stdout=log, stderr=log
            )
        _until_ready(made, process)
        _make_databases(made)
        yield made
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # a fast shutdown: it ends its clients' connections
            process.wait(timeout=60)
        shutil.rmtree(folder)


def _until_ready(made: Postgres, process: subprocess.Popen[bytes]) -> None:
    command = [_tool("pg_isready"), "--quiet", "--host", HOST, "--port", str(made.port)]
    deadline = time.monotonic() + START_SECONDS
    while subprocess.run(command, check=False).returncode:
        assert process.poll() is None, made.log.read_text()
        assert time.monotonic() < deadline, made.log.read_text()
        time.sleep(0.1)


def _make_databases(made: Postgres) -> None:
    script = INFRA / "postgres" / "databases.sql"
    command = [_tool("psql"), "--no-psqlrc", "--quiet", "--host", HOST, "--port", str(made.port)]
    command += ["--username", "admin", "--dbname", "postgres", "--file", str(script)]
    environment = {
        **os.environ,
        "PGPASSWORD": made.passwords["admin"],
        **{f"{owner.upper()}_DB_PASSWORD": made.passwords[owner] for owner in OWNERS},
    }
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- S3


@dataclass(frozen=True)
class Bucket:
    """An S3 store on loopback and one bucket in it."""

    endpoint: str
    name: str = "lexmill"
    key: str = field(default_factory=lambda: "AKIA" + secrets.token_hex(8).upper())
    secret: str = field(default_factory=password)

    def environment(self) -> dict[str, str]:
        """What a client needs to reach it."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self) -> Any:
        """A boto3 client."""
        import boto3

        with mock.patch.dict(os.environ, self.environment()):
            return boto3.client("s3", endpoint_url=self.endpoint)

    def objects(self) -> dict[str, bytes]:
        """All that lies in the bucket."""
        client = self.client()
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {key: client.get_object(Bucket=self.name, Key=key)["Body"].read() for key in keys}


@contextmanager
def bucket() -> Iterator[Bucket]:
    """An S3 store in this process (moto), with an empty bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each file
    server = ThreadedMotoServer(HOST, free_port(), verbose=False)
    server.start()
    try:
        made = Bucket("http://{}:{}".format(*server.get_host_and_port()))
        made.client().create_bucket(Bucket=made.name)
        yield made
    finally:
        server.stop()


# ---------------------------------------------------------------- MLflow and Prefect


@dataclass(frozen=True)
class Service:
    """A server behind a password: where it answers, and who may ask."""

    server: Server
    login: tuple[str, str]
    secrets: tuple[str, ...]

    @property
    def url(self) -> str:
        return self.server.url

    def add_user(self, name: str, password: str) -> None:
        """Let somebody in (MLflow)."""
        body = json.dumps({"username": name, "password": password}).encode()
        request = urllib.request.Request(f"{self.url}/api/2.0/mlflow/users/create", body, _basic(self.login))
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as reply:
            assert reply.status == 200


@contextmanager
def mlflow_server(root: Path, database: Postgres, store: Bucket) -> Iterator[Service]:
    """MLflow on PostgreSQL, files through it to S3, every call by a user; `login` is the administrator's."""
    port = free_port()
    login, key = ("admin", password()), password()
    config = root / "mlflow-auth.ini"
    text = (INFRA / "mlflow" / "auth.ini").read_text()
    config.write_text(text.replace("@postgres:5432/", f"@{HOST}:{database.port}/"))
    environment = {
        **store.environment(),
        "MLFLOW_S3_ENDPOINT_URL": store.endpoint,
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_PASSWORD": login[1],
        "MLFLOW_FLASK_SERVER_SECRET_KEY": key,
        "MLFLOW_BACKEND_STORE_URI": f"postgresql+psycopg2://mlflow@{HOST}:{database.port}/mlflow",
        "MLFLOW_ARTIFACTS_DESTINATION": f"s3://{store.name}/mlflow",
        "MLFLOW_SERVER_ALLOWED_HOSTS": f"{HOST}:{port}",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "PGPASSWORD": database.passwords["mlflow"],
    }
    command = ("mlflow", "server", "--app-name", "basic-auth", "--host", HOST, "--port", str(port), "--workers", "1")
    with serving("mlflow", command, port, health="/health", environment=environment, root=root) as server:
        server.wait(START_SECONDS)
        yield Service(server, login, (login[1], key, store.secret, database.passwords["mlflow"]))


def prefect_database(database: Postgres) -> dict[str, str]:
    """How Prefect finds its database."""
    return {
        "PREFECT_SERVER_DATABASE_DRIVER": "postgresql+asyncpg",
        "PREFECT_SERVER_DATABASE_HOST": HOST,
        "PREFECT_SERVER_DATABASE_PORT": str(database.port),
        "PREFECT_SERVER_DATABASE_USER": "prefect",
        "PREFECT_SERVER_DATABASE_NAME": "prefect",
        "PREFECT_SERVER_DATABASE_PASSWORD": database.passwords["prefect"],
    }


@contextmanager
def prefect_server(root: Path, database: Postgres) -> Iterator[Service]:
    """Prefect on PostgreSQL; every call of its API by an authentication string."""
    port = free_port()
    login = ("team", password())
    environment = {
        "PREFECT_HOME": str(root / "prefect"),
        "PREFECT_SERVER_API_AUTH_STRING": ":".join(login),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        **prefect_database(database),
        "PREFECT_UI_API_URL": f"http://{HOST}:{port}/api",
    }
    command = ("prefect", "server", "start", "--host", HOST, "--port", str(port))
    with serving("prefect", command, port, health="/api/health", environment=environment, root=root) as server:
        server.wait(START_SECONDS)
        yield Service(server, login, (login[1], database.passwords["prefect"]))


@contextmanager
def prefect_worker(root: Path, pool: str, environment: Mapping[str, str]) -> Iterator[Server]:
    """A worker of a process pool, which it makes, in the folder `root`."""
    port = free_port()
    settings = {"WEBSERVER_HOST": HOST, "WEBSERVER_PORT": str(port), "QUERY_SECONDS": "1"}  # for 10
    environment = {**environment, **{f"PREFECT_WORKER_{name}": value for name, value in settings.items()}}
    command = ("prefect", "worker", "start", "--pool", pool, "--type", "process", "--with-healthcheck")
    with serving("worker", command, port, health="/health", environment=environment, root=root) as server:
        server.wait(START_SECONDS)
        name, _, word = environment.get("PREFECT_API_AUTH_STRING", "").partition(":")
        made = f"{environment['PREFECT_API_URL']}/work_pools/{pool}"  # a little later than the worker is in health
        wait_for(lambda: status(made, (name, word) if name else None) == 200, "the worker makes no pool")
        yield server
