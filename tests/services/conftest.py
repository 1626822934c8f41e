"""Real shared services, once for the session: PostgreSQL, an S3 store, MLflow and Prefect, each behind a password."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.services import started


@pytest.fixture(scope="session")
def postgres() -> Iterator[started.Postgres]:
    with started.postgres() as made:
        yield made


@pytest.fixture(scope="session")
def bucket() -> Iterator[started.Bucket]:
    with started.bucket() as made:
        yield made


@pytest.fixture(scope="session")
def mlflow_server(
    tmp_path_factory: pytest.TempPathFactory, postgres: started.Postgres, bucket: started.Bucket
) -> Iterator[started.Service]:
    with started.mlflow_server(tmp_path_factory.mktemp("mlflow"), postgres, bucket) as made:
        yield made


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory, postgres: started.Postgres) -> Iterator[started.Service]:
    with started.prefect_server(tmp_path_factory.mktemp("prefect"), postgres) as made:
        yield made


@dataclass(frozen=True)
class Services:
    """All of them."""

    postgres: started.Postgres
    bucket: started.Bucket
    mlflow: started.Service
    prefect: started.Service


@pytest.fixture(scope="session")
def services(
    postgres: started.Postgres,
    bucket: started.Bucket,
    mlflow_server: started.Service,
    prefect_server: started.Service,
) -> Services:
    return Services(postgres, bucket, mlflow_server, prefect_server)
