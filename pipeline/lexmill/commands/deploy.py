"""`lexmill serve` and `lexmill export`: a registered model over HTTP, or a folder for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lexmill import params
from lexmill.base import layout
from lexmill.base.allowed_hosts import LOOPBACK
from lexmill.base.errors import UserError
from lexmill.base.quiet import quieten
from lexmill.base.shown import print_line, value_text
from lexmill.base.strict import nearest
from lexmill.commands.check import unusable
from lexmill.compute.cores import set_torch_threads
from lexmill.compute.execution import load_execution
from lexmill.models import folder as model_folder
from lexmill.registry import lookup
from lexmill.registry.download import registered_package
from lexmill.registry.hugging_face import described, export
from lexmill.registry.package import MODEL
from lexmill.tracking.store import sqlite_path

Format = Literal["transformers", "onnx", "ctranslate2"]


def serve(name: str, version: str | None, host: str, port: int, allowed_hosts: tuple[str, ...] = ()) -> None:
    """Serve until Ctrl-C.

    Args:
        name, version: the model; None: its champion.
        host, port: where to listen.
        allowed_hosts: names that requests may use besides `host` and the loopback ones; "*": any.

    Raises:
        UserError: no such model or version, or the address is taken.
        RetryableError: the tracking server does not answer.
    """
    settings = load_execution()
    path = sqlite_path(settings.tracking_uri)
    if path is not None and not path.is_file():
        raise UserError("there is no registry yet; `lexmill run` makes it", path)
    quieten(offline=True)
    from lexmill.registry import serving

    with serving.listening(host, port) as bound:
        model, version = serving.load(name, version, settings)
        set_torch_threads(settings)
        if host not in LOOPBACK:
            print_line(f"{host} may be reached from other machines, and no password is asked for")
        address = f"[{host}]" if ":" in host else host
        shown = f"http://{address}:{bound.getsockname()[1]}/invocations"
        print_line(f"{name}, version {version}: {shown} (Ctrl-C ends it)")
        serving.run(serving.application(model), bound, (host, *allowed_hosts))


def export_model(
    name: str, target: Path, root: Path = Path(), to: Format = "transformers", *, int8: bool = False
) -> None:
    """Export the workspace's model of that name, or else the registered champion.

    Args:
        name, root: the model, and the workspace.
        target: a new folder.
        to: for which program.
        int8: not for transformers: with matrices in 8 bits.

    Raises:
        UserError: there is neither, it cannot be exported, or the target is no possible folder.
    """
    if int8 and to == "transformers":
        raise UserError("--int8 belongs to --to onnx or ctranslate2; transformers reads the weights as they are")
    if "\0" in name:  # layout's path of it
        raise UserError(f"{value_text(name)} is no name of a model")
    if why := unusable(target.parent):
        raise UserError(f"{value_text(str(target), 500)} cannot be made: {why}")
    quieten(offline=True)
    model = root / layout.model(name)
    if (model / model_folder.CONFIG).is_file():
        _write(model, root / layout.package(name), target, name, to, int8=int8)
        print_line(f"{target}: written from {model}")
        return
    uri = load_execution(root).tracking_uri
    champion = lookup.champion(uri, name, root)
    if champion is None:
        known = params.load(root / "params.yaml").models
        made = "is not trained yet; `lexmill run` trains it" if name in known else f"is unknown{nearest(name, known)}"
        raise UserError(f"the model '{name}' {made}, and {uri} has no registered champion of that name")
    package = registered_package(champion, uri, root)
    _write(package / MODEL, package, target, name, to, int8=int8)
    print_line(f"{target}: written from the champion of '{name}', version {champion.version}")


def _write(model: Path, package: Path, target: Path, name: str, to: Format, *, int8: bool) -> None:
    if to == "onnx":
        from lexmill.registry.onnx_export import export_onnx

        export_onnx(model, target, name, int8=int8)
    elif to == "ctranslate2":
        from lexmill.registry.ctranslate2_export import export_ctranslate2

        export_ctranslate2(model, target, name, int8=int8)
    else:
        export(model, target, name, *described(package, model))
