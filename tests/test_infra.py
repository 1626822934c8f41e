"""The files of infra/ fit the project and keep the rules of services: closed ports, passwords, limits, orderly ends."""

from __future__ import annotations

import fnmatch
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer.main
import yaml

from lexmill import cli
from lexmill.base.strict import build
from lexmill.compute.execution import Execution
from tests.support.infra_files import (
    INFRA,
    ROOT,
    SECRET,
    commands,
    compose,
    containers,
    environment_names,
    instructions,
    kubernetes_files,
    objects,
    pods,
    units,
    written_objects,
)

SERVICES = compose()["services"]
KUBERNETES = "1.34.0"
SAVE_SECONDS = 120  # what a training gets to write its checkpoint before it is killed


@pytest.fixture(scope="module")
def new_secrets() -> dict[str, str]:
    done = subprocess.run(["bash", INFRA / "new-secrets.sh"], check=True, capture_output=True, text=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def seconds(time: str) -> int:
    """`1m30s` as compose writes times."""
    return sum(int(number) * {"s": 1, "m": 60, "h": 3600}[unit] for number, unit in re.findall(r"(\d+)([smh])", time))


# ---------------------------------------------------------------- compose


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_closed_and_bounded(name: str) -> None:
    one = SERVICES[name]
    assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
    assert one["read_only"] is True
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert set(one["deploy"]["resources"]["limits"]) == {"cpus", "memory"}
    image, _, tag = one["image"].partition(":")
    assert tag
    assert "latest" not in tag
    if one["restart"] != "no":
        assert one["healthcheck"]["test"]
        assert seconds(one["stop_grace_period"]) >= 30
    # MinIO's image has no other user; without capabilities its root is one in name only.
    assert image == "minio/minio" or one.get("user", dict(instructions())["USER"]).split(":")[0] not in (
        "",
        "0",
        "root",
    )


def test_a_training_may_save_before_it_is_killed() -> None:
    assert seconds(SERVICES["worker"]["stop_grace_period"]) >= SAVE_SECONDS
    for name, pod in pods(written_objects()):
        if name in ("worker", "stage"):
            assert pod["terminationGracePeriodSeconds"] >= SAVE_SECONDS
    for name in ("lexmill-worker.service", "lexmill-schedule.service", "lexmill-nightly.service"):
        assert int(units()[name]["Service"]["TimeoutStopSec"]) >= SAVE_SECONDS


@pytest.mark.parametrize("name", SERVICES)
def test_a_secret_is_a_variable_that_must_be_set(name: str, new_secrets: dict[str, str]) -> None:
    for key, value in SERVICES[name]["environment"].items():
        if SECRET.search(key):
            found = re.fullmatch(r"\$\{(\w+):\?\}", value)
            assert found, f"{key} is written out, or may be empty"
            assert found[1] in new_secrets
        assert "://" not in value or "@" not in value or re.search(r"//\w+@", value), f"a password in {key}"


def test_every_service_asks_for_a_password() -> None:
    assert SERVICES["postgres"]["environment"]["POSTGRES_INITDB_ARGS"] == "--auth=scram-sha-256"
    assert SERVICES["mlflow"]["command"][2:4] == ["--app-name", "basic-auth"]
    assert "MLFLOW_AUTH_ADMIN_PASSWORD" in SERVICES["mlflow"]["environment"]
    assert "PREFECT_SERVER_API_AUTH_STRING" in SERVICES["prefect"]["environment"]
    hosts = SERVICES["mlflow"]["environment"]["MLFLOW_SERVER_ALLOWED_HOSTS"]
    assert "*" not in hosts
    assert hosts.startswith("mlflow:5000,")
    assert "admin_password" not in (INFRA / "mlflow" / "auth.ini").read_text()


def test_new_secrets_are_long_and_never_the_same(new_secrets: dict[str, str]) -> None:
    again = subprocess.run(["bash", INFRA / "new-secrets.sh"], check=True, capture_output=True, text=True).stdout
    made = {value.rpartition(":")[2] for key, value in new_secrets.items() if not re.search("USERNAME|KEY_ID", key)}
    assert len(made) == 7
    for value in made:
        assert re.fullmatch(r"[\w-]{32}", value)
        assert value not in again
    assert new_secrets["PREFECT_API_AUTH_STRING"] == new_secrets["PREFECT_SERVER_API_AUTH_STRING"]
    assert new_secrets["MLFLOW_TRACKING_PASSWORD"] == new_secrets["MLFLOW_AUTH_ADMIN_PASSWORD"]


# ---------------------------------------------------------------- the image


def test_the_image_is_that_of_this_project() -> None:
    arguments = dict(rest.split("=", 1) for word, rest in instructions() if word == "ARG")
    torch = re.search(r"^TORCH \?= torch==(\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert torch
    assert arguments["TORCH_VERSION"] == torch[1]
    wanted = re.search(r'requires-python = ">=(\d+)\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert wanted
    assert tuple(map(int, arguments["PYTHON"].split("."))) >= (int(wanted[1]), int(wanted[2]))
    runs = [rest for word, rest in instructions() if word == "RUN"]
    assert sum("--require-hashes" in run for run in runs) == 1
    assert next(i for i, run in enumerate(runs) if "torch==" in run) < next(
        i for i, run in enumerate(runs) if "--require-hashes" in run
    )
    assert dict(instructions())["USER"] == "10001:10001"
    for word, rest in instructions():
        if word == "FROM":
            assert re.match(r"[\w./-]+:[\w.${}-]+", rest), f"no version: {rest}"


def test_the_image_copies_what_is_there_and_not_ignored() -> None:
    ignored = (INFRA / "docker" / "Dockerfile.dockerignore").read_text().split("\n")
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = [
        source
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in [part for part in rest.split() if not part.startswith("--")][:-1]
    ]
    assert len(copied) > 5
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source in kept
    assert ignored.index("*") < min(ignored.index(f"!{name}") for name in kept)
    # The rules that come after the kept folders take secrets and caches out again.
    assert all(any(fnmatch.fnmatch(f"infra/{name}", rule) for rule in ignored) for name in ("x.env", "__pycache__"))


# ---------------------------------------------------------------- Kubernetes


@pytest.mark.parametrize("one", written_objects(), ids=lambda one: f"{one['kind']} {one['metadata'].get('name')}")
def test_an_object_is_one_of_kubernetes(one: dict[str, Any]) -> None:
    kubernetes_validate.validate(one, KUBERNETES, strict=True)


def test_a_misspelt_field_would_be_seen() -> None:
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"port": []}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@pytest.mark.parametrize(("name", "pod"), list(pods(written_objects())))
def test_a_pod_is_closed_and_bounded(name: str, pod: dict[str, Any], new_secrets: dict[str, str]) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod.get("automountServiceAccountToken") is False or pod["serviceAccountName"] == "worker"
    for one in containers(pod):
        expected = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert one["securityContext"] == expected
        assert set(one["resources"]["limits"]) >= {"cpu", "memory"}
        for variable in one.get("env", []):
            if SECRET.search(variable["name"]) or variable["name"] == "PGPASSWORD":
                reference = variable["valueFrom"]["secretKeyRef"]
                assert reference["name"] == "lexmill-secrets"
                assert reference["key"] in new_secrets
    if name != "stage":
        assert {"startupProbe", "livenessProbe"} <= set(pod["containers"][0])


def test_nothing_is_reached_unless_it_is_said() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in written_objects() if one["kind"] == "NetworkPolicy"}
    assert policies["nothing-comes-in"] == {"podSelector": {}, "policyTypes": ["Ingress"]}
    ways = {
        name: {peer["podSelector"]["matchLabels"]["app"] for rule in spec.get("ingress", []) for peer in rule["from"]}
        for name, spec in policies.items()
    }
    members = {"worker", "stage"}
    assert ways == {
        "nothing-comes-in": set(),
        "mlflow": members,
        "prefect": members,
        "postgres": {"mlflow", "prefect"},
    }
    assert not [one for one in written_objects() if one["kind"] == "Secret"], "secrets come from outside"


def test_every_file_belongs_to_a_kustomization() -> None:
    named = {INFRA / "kubernetes" / "stage-job.yaml"}
    for path in kubernetes_files():
        if path.name != "kustomization.yaml":
            continue
        named.add(path)
        one = objects(path.read_text())[0]
        files = [file for made in one.get("configMapGenerator", []) for file in made.get("files", [])]
        for name in [*one.get("resources", []), *one.get("components", []), *files]:
            target = (path.parent / name).resolve()
            assert target.exists(), f"{path}: {name}"
            named.add(target)
    assert set(kubernetes_files()) - named == set()


def test_execution_settings_have_no_error() -> None:
    paths = sorted(INFRA.rglob("execution*.yaml"))
    assert len(paths) == 5
    for path in paths:
        found: list[str] = []
        settings = build(Execution, yaml.safe_load(path.read_text()), found)
        assert found == [], path
        assert settings is not None
        by_systemd = path.parent.name == "systemd"
        assert settings.tracking_uri == ("http://127.0.0.1:5000" if by_systemd else "http://mlflow:5000")
        # Each unit has a /tmp of its own, where no other one would see its leases.
        assert settings.lease_root.startswith("/var/lib/lexmill/") or not by_systemd


# ---------------------------------------------------------------- systemd


@pytest.mark.parametrize("name", [name for name, unit in units().items() if "Service" in unit])
def test_a_unit_is_closed_and_bounded(name: str) -> None:
    service = units()[name]["Service"]
    assert service["User"] == "lexmill"
    for key in ("NoNewPrivileges", "PrivateTmp", "ProtectKernelTunables", "RestrictSUIDSGID"):
        assert service[key] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["ReadWritePaths"] == "/var/lib/lexmill"
    assert not SECRET.search(service.get("Environment", ""))
    if "server" in service["ExecStart"]:
        assert "--host 127.0.0.1" in service["ExecStart"]
        assert service["EnvironmentFile"] == "/etc/lexmill/secrets.env"
        # `$$`: the shell's variable. One dollar would have systemd write the password into the command line.
        assert re.search(r'_?PASSWORD="\$\$\w+_DB_PASSWORD" exec ', service["ExecStart"])


# ---------------------------------------------------------------- commands and variables


@pytest.mark.parametrize("where", commands())
def test_a_command_is_there_with_its_options(where: str) -> None:
    words = commands()[where]
    options = {word.partition("=")[0] for word in words if word.startswith("--")}
    match words:
        case ["lexmill", name, *_]:
            group: Any = typer.main.get_command(cli.app)
            assert options <= {option for one in group.commands[name].params for option in one.opts}
        case ["mlflow", "server", *_]:
            from mlflow.cli import cli as mlflow

            known = {option for one in mlflow.commands["server"].params for option in one.opts}
            assert options <= known
        case ["prefect", *_]:
            # Started for real, with these very options, in tests/services.
            started = (ROOT / "tests" / "services" / "started.py").read_text()
            assert all(f'"{word}"' in started for word in words if not re.fullmatch(r"[\d.]+|lexmill", word))
        case ["python", script, *_]:
            assert (ROOT / script).is_file()
        case ["sh", "-c", line]:
            assert line.startswith("[ -d /workspace/.git ] || git clone")
        case _:
            pytest.fail(f"an unknown command: {words}")


def test_variables_are_those_that_the_programs_read() -> None:
    from mlflow import environment_variables
    from prefect.settings.legacy import _get_valid_setting_names

    prefect = _get_valid_setting_names(_settings())
    assert "PREFECT_API_URL" in prefect
    mlflow = set(vars(environment_variables))
    mlflow |= set(
        re.findall(r'envvar="(\w+)"', _source("mlflow/cli/__init__.py") + _source("mlflow/utils/cli_args.py"))
    )
    ours = (ROOT / "pipeline").rglob("*.py")
    lexmill = set(re.findall(r"LEXMILL_[A-Z_]+", "".join(path.read_text(encoding="utf-8") for path in ours)))
    for name in sorted(environment_names()):
        if name.startswith("PREFECT_") and name != "PREFECT_DB_PASSWORD":  # that one is databases.sql's
            assert name in prefect
        if name.startswith("MLFLOW_") and name != "MLFLOW_DB_PASSWORD":
            assert name in mlflow
        if name.startswith("LEXMILL_") and name != "LEXMILL_CRON":  # the unit's own
            assert name in lexmill


def _settings() -> Any:
    from prefect.settings import Settings

    return Settings


def _source(module: str) -> str:
    import mlflow

    return (Path(mlflow.__file__).parents[1] / module).read_text(encoding="utf-8")


def test_every_mlflow_server_is_without_job_processes_and_asks_for_a_password_once_a_minute() -> None:
    """Seven processes of 240 MB serve what nothing here uses; without the cache a call costs a quarter of a second."""
    for name in ("compose.yaml", "kubernetes/base/mlflow.yaml", "systemd/lexmill-mlflow.service"):
        text = (INFRA / name).read_text(encoding="utf-8")
        assert re.search(r'MLFLOW_SERVER_ENABLE_JOB_EXECUTION(: "|=|, value: ")false', text), name
        # Without the names by which it is called it answers 403 to all but /health.
        hosts = re.search(r'MLFLOW_SERVER_ALLOWED_HOSTS(?:: |=|, value: ")([^"\n]+)', text)
        assert hosts, name
        called = {"127.0.0.1:5000", "localhost:5000"} if "systemd" in name else {"mlflow:5000"}
        assert called <= set(hosts[1].split(",")), name
        assert "*" not in hosts[1]
    assert "auth_cache_ttl_seconds = 60" in (INFRA / "mlflow" / "auth.ini").read_text(encoding="utf-8")


def test_no_service_reports_to_anybody() -> None:
    """The image, of which all but the stores are started, and the units that start others' programs."""
    (given,) = [rest for word, rest in instructions() if word == "ENV" and "DVC_NO_ANALYTICS" in rest]
    assert set(given.split()) >= UNTRACKED
    for name in ("mlflow", "prefect", "worker"):
        assert "LEXMILL_IMAGE" in SERVICES[name]["image"], name
    wanted = {"prefect": "DO_NOT_TRACK=true", "mlflow": "MLFLOW_DISABLE_TELEMETRY=true"}
    services = {name: unit["Service"] for name, unit in units().items() if "Service" in unit}
    started = {name: re.search(r"(prefect|mlflow) (server|worker)", one["ExecStart"]) for name, one in services.items()}
    assert sum(found is not None for found in started.values()) == 3
    for name, found in started.items():
        if found is not None:  # lexmill itself sees to it
            assert wanted[found[1]] in services[name]["Environment"].split(), name


UNTRACKED = {
    "DVC_NO_ANALYTICS=1",
    "DO_NOT_TRACK=true",
    "MLFLOW_DISABLE_TELEMETRY=true",
    "PREFECT_SERVER_ANALYTICS_ENABLED=false",
}
