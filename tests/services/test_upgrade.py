"""Backup, restore and upgrade of the databases, with the commands of docs/deploy.md."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import started
from tests.services.missing import needs, program

pytestmark = [pytest.mark.services, needs("postgresql")]

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")


def shown(*starts: str) -> list[list[str]]:
    """The page's commands that start so, variables before them left out."""
    lines = [re.sub(r"^(\w+=\S+ )+", "", line) for line in PAGE.split("\n")]
    return [shlex.split(line) for line in lines if line.startswith(starts)]


def call(postgres: started.Postgres, command: list[str], folder: Path, *, code: int = 0, **environment: str) -> str:
    """Run a command of the page against this cluster; gives all it says."""
    at = [word.replace("127.0.0.1:5432", f"{started.HOST}:{postgres.port}") for word in command]
    first = program(at[0]) or str(Path(sys.executable).parent / at[0])
    user = "prefect" if "prefect" in at[-1] or at[0] == "prefect" else "mlflow"
    ours = {"PGPORT": str(postgres.port), "PGPASSWORD": postgres.passwords[user], "MLFLOW_DISABLE_TELEMETRY": "true"}
    done = subprocess.run(
        [sys.executable if at[0] == "python" else first, *at[1:]],
        cwd=folder,
        env={**os.environ, **ours, **environment},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_a_dump_brings_everything_back(
    postgres: started.Postgres, mlflow_server: started.Service, prefect_server: started.Service, tmp_path: Path
) -> None:
    mlflow_server.add_user("before-the-dump", started.password())
    dumps = shown("pg_dump ")
    assert [command[-1] for command in dumps] == ["mlflow", "mlflow_auth", "prefect"]
    for command in dumps:
        call(postgres, command, tmp_path)
    assert all((tmp_path / f"{command[-1]}.dump").stat().st_size > 1000 for command in dumps)
    name = "mlflow_auth"  # nobody is connected to the copy that takes its place
    postgres.change("CREATE DATABASE restored OWNER mlflow")
    restore = [word.replace("=mlflow", "=restored") for word in shown("pg_restore ")[0]]
    call(postgres, [*restore[:-1], f"{name}.dump"], tmp_path)
    users = "SELECT username FROM users ORDER BY 1"
    restored = postgres.ask(users, "restored", "mlflow")
    assert ("before-the-dump",) in restored
    assert restored == postgres.ask(users, name, "mlflow")


def test_the_schemas_are_upgraded(
    postgres: started.Postgres, mlflow_server: started.Service, prefect_server: started.Service, tmp_path: Path
) -> None:
    upgrades = shown("mlflow db upgrade", "python -m mlflow.server.auth db upgrade", "prefect server database upgrade")
    assert len(upgrades) == 3
    for command in upgrades:
        call(postgres, command, tmp_path, **started.prefect_database(postgres))
    # A server on an older schema does not start, and names the command.
    postgres.change("CREATE DATABASE older OWNER mlflow")
    older = f"postgresql+psycopg2://mlflow@{started.HOST}:{postgres.port}/older"
    call(postgres, ["mlflow", "db", "upgrade", older], tmp_path)
    postgres.change("UPDATE alembic_version SET version_num = '451aebb31d03'", "older", "mlflow")
    server = ["mlflow", "server", "--backend-store-uri", older, "--host", started.HOST, "--port", "0"]
    said = call(postgres, server, tmp_path, code=1)
    assert "mlflow db upgrade" in said
    assert postgres.passwords["mlflow"] not in said
