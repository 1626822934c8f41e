"""What somebody else put into the registry, or changed on the disk, is not run, not loaded and never answers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import mlflow
import pytest
import yaml
from typer.testing import CliRunner

from lexmill import cli
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.registry import download, package, serving
from lexmill.registry.loader import load_package
from lexmill.registry.lookup import KIND, champion
from lexmill.tracking import store
from lexmill.tracking.finding import FINGERPRINT

from .plain import plain_params

URI = "sqlite:///mlflow.db"
SETTINGS = Execution(tracking_uri=URI)


@pytest.fixture
def here(published: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with three champions, to be spoiled."""
    where = tmp_path / "copy"
    shutil.copytree(published[0], where)
    (where / "params.yaml").write_text(yaml.safe_dump(plain_params()))
    (where / "conf/execution").mkdir(parents=True)
    (where / "conf/execution/local.yaml").write_text(f"tracking_uri: {URI}\n")
    monkeypatch.chdir(where)
    return where


CODE = """
import pathlib
pathlib.Path({canary!r}).touch()
import mlflow.pyfunc
class Stranger(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        return ["owned"]
def _load_pyfunc(path):
    return Stranger()
"""


class Pickled:
    """Touches the canary where it is unpickled."""

    def __init__(self, canary: str) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return (Path.touch, (Path(self.canary),))

    def predict(self, model_input: Any) -> Any:
        """Never called."""


def register(how: str, canary: Path, folder: Path) -> str:
    """Register a stranger's model as the champion of `gpt`, with lexmill's tags; return its version."""
    with store.opened(URI) as client:
        before = client.get_model_version_by_alias("gpt", "champion")
        with mlflow.start_run(experiment_id="0"):
            if how == "pickle":
                saved = folder / "pickled"
                mlflow.pyfunc.save_model(str(saved), loader_module="lexmill.registry.loader", data_path=__file__)
                import cloudpickle

                (saved / "python_model.pkl").write_bytes(cloudpickle.dumps(Pickled(str(canary))))
                about = yaml.safe_load((saved / "MLmodel").read_text())
                about["flavors"]["python_function"] |= {
                    "loader_module": "mlflow.pyfunc.model",
                    "python_model": "python_model.pkl",
                    "cloudpickle_version": cloudpickle.__version__,
                }
                (saved / "MLmodel").write_text(yaml.safe_dump(about))
            else:
                module = folder / "stranger_code.py"
                module.write_text(CODE.format(canary=str(canary)))
                saved = folder / "coded"
                mlflow.pyfunc.save_model(
                    str(saved), loader_module="stranger_code", data_path=__file__, code_paths=[str(module)]
                )
            mlflow.log_artifacts(str(saved), "model")
            run = mlflow.active_run()
            assert run is not None
            source = f"{run.info.artifact_uri}/model"
        tags = {key: before.tags[key] for key in (FINGERPRINT, KIND)}
        version = client.create_model_version("gpt", source, run.info.run_id, tags=tags)
        client.set_registered_model_alias("gpt", "champion", version.version)
        assert not canary.exists(), "only loading it runs it"
        return str(version.version)


@pytest.mark.parametrize("how", ["pickle", "code"])
def test_a_strangers_model_under_our_name_is_not_run(how: str, here: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    version = register(how, canary, tmp_path)
    shutil.rmtree(here / layout.package("gpt"))  # else the same fingerprint is taken from here
    with pytest.raises(UserError, match=rf"version {version} of 'gpt' holds no package of lexmill"):
        serving.load("gpt", None, SETTINGS, here)
    with pytest.raises(UserError, match="holds no package of lexmill"):
        serving.load("gpt", version, SETTINGS, here)
    done = CliRunner().invoke(cli.app, ["generate", "--max-tokens", "2", "a"])
    assert isinstance(done.exception, UserError), done.output
    with pytest.raises(UserError, match="holds no package of lexmill"):
        download.bring(URI, "gpt", version, tmp_path / "brought", here)
    assert not canary.exists()


def test_the_right_package_here_answers_for_a_version_with_its_fingerprint(here: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    register("pickle", canary, tmp_path)
    model, _ = serving.load("gpt", None, SETTINGS, here)
    assert model.predict(["a"], params={"max_tokens": 2}) != ["owned"]
    assert not canary.exists()


def test_a_version_without_our_tags_is_refused(here: Path) -> None:
    with store.opened(URI) as client:
        version = client.get_model_version_by_alias("tickets", "champion").version
        client.delete_model_version_tag("tickets", version, FINGERPRINT)
    with pytest.raises(UserError, match="version 1 of 'tickets' holds no package of lexmill"):
        serving.load("tickets", None, SETTINGS, here)


def spoil(folder: Path) -> None:
    """Change one weight in a package, in as many bytes."""
    weights = folder / package.MODEL / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 0x40
    weights.write_bytes(content)


def test_changed_weights_are_not_loaded(here: Path) -> None:
    folder = here / layout.package("gpt")
    spoil(folder)
    with pytest.raises(UserError, match="the package was changed after it was made"):
        load_package(folder)


def test_a_spoiled_copy_is_fetched_again(here: Path) -> None:
    """From the registry, which still has the right one; the same for the copy that came from there."""
    version = champion(URI, "gpt", here)
    assert version is not None
    spoil(here / layout.package("gpt"))
    for _ in range(2):
        folder = download.registered_package(version, URI, here)
        assert folder == here / ".lexmill" / "champions" / "gpt"
        assert package.verify(folder)["fingerprint"] == version.fingerprint
        spoil(folder)
