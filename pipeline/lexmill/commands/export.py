"""`lexmill export NAME FOLDER`: a language model for `transformers`."""

from __future__ import annotations

from pathlib import Path

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.quiet import quieten
from lexmill.base.strict import nearest
from lexmill.compute.execution import load_execution
from lexmill.models import folder as model_folder
from lexmill.registry import lookup
from lexmill.registry.download import champion_package
from lexmill.registry.hugging_face import card_beside, export
from lexmill.registry.package import MODEL


def export_model(name: str, target: Path, root: Path = Path()) -> None:
    """Export the workspace's model of that name, or else the registered champion.

    Raises:
        UserError: there is neither, or it cannot be exported.
    """
    quieten(offline=True)
    model = root / layout.model(name)
    if (model / model_folder.CONFIG).is_file():
        export(model, target, name, card_beside(root / layout.package(name), model))
        print(f"{target}: written from {model}")
        return
    uri = load_execution(root).tracking_uri
    champion = lookup.champion(uri, name, root)
    if champion is None:
        known = params.load(root / "params.yaml").models
        made = "is not trained yet; `lexmill run` trains it" if name in known else f"is unknown{nearest(name, known)}"
        raise UserError(f"the model '{name}' {made}, and {uri} has no registered champion of that name")
    package = champion_package(champion, uri, root)
    export(package / MODEL, target, name, card_beside(package, package / MODEL))
    print(f"{target}: written from the champion of '{name}', version {champion.version}")
