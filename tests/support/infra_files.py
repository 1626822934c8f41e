"""The files of infra/, read: compose services, Kubernetes objects, the image's instructions, units, commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
INFRA = ROOT / "infra"
SECRET = re.compile(r"PASSWORD|SECRET|AUTH_STRING|ACCESS_KEY|_ROOT_USER|TOKEN|USERNAME")


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    """A compose file, as YAML alone gives it (no variables filled in)."""
    return dict(yaml.safe_load((INFRA / name).read_text(encoding="utf-8")))


def kubernetes_files() -> list[Path]:
    return sorted((INFRA / "kubernetes").rglob("*.yaml"))


def objects(text: str) -> list[dict[str, Any]]:
    """The objects of a Kubernetes file."""
    return [one for one in yaml.safe_load_all(text) if one is not None]


def written_objects() -> list[dict[str, Any]]:
    """All objects as they are written, before kustomize; no kustomization and no settings among them."""
    found = [one for path in kubernetes_files() for one in objects(path.read_text(encoding="utf-8"))]
    return [one for one in found if "kind" in one and one["kind"] not in ("Kustomization", "Component")]


def pods(found: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, pod specification) of what runs pods."""
    for one in found:
        if one["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield one["metadata"].get("name", "stage"), one["spec"]["template"]["spec"]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def instructions() -> list[tuple[str, str]]:
    """(word, rest) of each instruction of the Dockerfile, lines that go on joined, without comments."""
    text = (INFRA / "docker" / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [(word.upper(), rest) for word, _, rest in (line.partition(" ") for line in joined.split("\n") if line)]


def units() -> dict[str, RawConfigParser]:
    """The systemd units; a key that comes again is joined by newlines."""
    found = {}
    for path in sorted((INFRA / "systemd").glob("lexmill-*")):
        parser = RawConfigParser(strict=False, interpolation=None)
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        merged: dict[str, dict[str, list[str]]] = {}
        section = ""
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.startswith("["):
                section = line.strip("[]")
                merged[section] = {}
            elif "=" in line and not line.startswith("#"):
                key, _, value = line.partition("=")
                merged[section].setdefault(key, []).append(value)
        parser.read_dict(
            {name: {key: "\n".join(values) for key, values in one.items()} for name, one in merged.items()}
        )
        found[path.name] = parser
    return found


def commands() -> dict[str, list[str]]:
    """The command line of everything in infra/ that starts a program of ours or of our environment."""
    found = {f"compose {name}": [str(word) for word in one["command"]] for name, one in _ours(compose()).items()}
    for name, pod in pods(written_objects()):
        for one in containers(pod):
            if "lexmill" in one["image"] and "command" in one:
                found[f"kubernetes {name} {one['name']}"] = list(one["command"])
    for name, unit in units().items():
        if unit.has_option("Service", "ExecStart"):
            words = shlex.split(unit["Service"]["ExecStart"])
            if words[:2] == ["/bin/sh", "-c"]:  # NAME="$$VALUE" exec command ...
                words = shlex.split(words[2].partition(" exec ")[2])
            found[name] = [Path(words[0]).name, *words[1:]]
    found["image"] = shlex.split(re.sub(r"[\[\],]", " ", dict(instructions())["CMD"]))
    return found


def _ours(file: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in file["services"].items() if one["image"].startswith("lexmill:")}


def environment_names() -> set[str]:
    """Every variable that a file of infra/ sets for a program."""
    names = {name for one in compose()["services"].values() for name in one.get("environment", {})}
    for _, pod in pods(written_objects()):
        names |= {variable["name"] for one in containers(pod) for variable in one.get("env", [])}
    for unit in units().values():
        if unit.has_option("Service", "Environment"):
            names |= {pair.strip('"').partition("=")[0] for pair in shlex.split(unit["Service"]["Environment"])}
    return names
