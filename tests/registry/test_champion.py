"""The champion's alias by hand: forward, back, and back again, said in sentences."""

import itertools
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow import MlflowClient
from typer.testing import CliRunner

from lexmill import cli
from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.params import parse
from lexmill.registry import champion, decisions
from lexmill.registry.publish import publish_all
from lexmill.tracking.store import opened

from .conftest import publish_model
from .plain import plain_params

URI = "sqlite:///mlflow.db"


def plain() -> dict[str, Any]:
    """params.yaml without guards."""
    chosen = plain_params()
    chosen["promotion"]["guards"] = {"latency": 0, "size": 0, "slices": False}
    return chosen


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory, empty_store: Path) -> Path:
    """A workspace whose translator has four versions: 1 and 3 were promoted, 2 and 4 stayed beside."""
    params = parse(plain())
    where = tmp_path_factory.mktemp("four") / "the workspace"
    shutil.copytree(empty_store, where)
    for seed, quality in enumerate((0.3, 0.1, 0.9, 0.5)):
        publish_model(params, where, "en_de", quality, seed)
    (where / "conf/execution").mkdir(parents=True)
    (where / "conf/execution/local.yaml").write_text("tracking_uri: sqlite:///mlflow.db\n")
    return where


@pytest.fixture
def here(four: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(four, root, dirs_exist_ok=True)
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def client(here: Path) -> Iterator[MlflowClient]:
    with opened(URI, here) as opened_client:
        yield opened_client


def lexmill(*arguments: str) -> str:
    done = CliRunner().invoke(cli.app, arguments)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0
    return done.stdout


def present(client: MlflowClient) -> str:
    return str(client.get_model_version_by_alias("en_de", "champion").version)


def test_promote_and_roll_back_step_by_step(client: MlflowClient, here: Path) -> None:
    assert champion.line(client, "en_de") == ["1", "3"]
    assert lexmill("promote", "en_de", "--reason", "the customers' wish") == (
        "en_de: version 4 is the champion now, instead of version 3\n"
    )
    version = client.get_model_version_by_alias("en_de", "champion")
    assert version.tags[champion.WHY] == "by hand: the customers' wish"
    assert lexmill("promote", "en_de", "v2") == "en_de: version 2 is the champion now, instead of version 4\n"
    assert champion.line(client, "en_de") == ["1", "3", "4", "2"]

    assert lexmill("rollback", "en_de") == "en_de: back to version 4; version 2 is no longer the champion\n"
    assert lexmill("rollback", "en_de", "--reason", "too slow") == (
        "en_de: back to version 3; version 4 is no longer the champion\n"
    )
    assert lexmill("rollback", "en_de") == "en_de: back to version 1; version 3 is no longer the champion\n"
    assert present(client) == "1"
    with pytest.raises(UserError, match="version 1 of 'en_de' is the first champion, so there is none to go back to"):
        lexmill("rollback", "en_de")
    by_hand = [row for row in decisions.rows(here) if "by hand" in row["outcome"]]
    assert len(by_hand) == 5
    assert {row["reason"] for row in by_hand} >= {"by hand: the customers' wish", "too slow", "rolled back by hand"}


def test_an_alias_that_was_set_elsewhere_is_part_of_the_line(client: MlflowClient, here: Path) -> None:
    client.set_registered_model_alias("en_de", "champion", "2")  # on MLflow's page
    assert champion.line(client, "en_de") == ["1", "3", "2"]
    assert champion.rollback(client, here, "en_de", "") == champion.Move("en_de", "3", "2")
    client.delete_registered_model_tag("en_de", champion.LINE)  # of before the line was kept: the decisions tell it
    assert champion.line(client, "en_de") == ["1", "3"]
    client.delete_model_version("en_de", "1")
    assert champion.line(client, "en_de") == ["3"]


@contextmanager
def killed_at(count: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill in place of the write number `count` to the registry."""
    written = itertools.count()

    def replaced(write: Callable[..., None]) -> Callable[..., None]:
        def one(*arguments: Any) -> None:
            if next(written) == count:
                raise KeyboardInterrupt
            write(*arguments)

        return one

    with monkeypatch.context() as patch:
        for name in ("set_registered_model_alias", "set_registered_model_tag", "set_model_version_tag"):
            patch.setattr(MlflowClient, name, replaced(getattr(MlflowClient, name)))
        yield


def why(client: MlflowClient) -> str | None:
    found = client.get_model_version_by_alias("en_de", "champion").tags.get(champion.WHY)
    return None if found is None else str(found)


def test_a_kill_between_any_two_writes_of_a_rollback_leaves_the_champion_and_its_line(
    client: MlflowClient, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the command given again goes back by one, not by two."""
    reason = why(client)
    for count in range(4):
        with killed_at(count, monkeypatch), pytest.raises(KeyboardInterrupt):
            champion.rollback(client, here, "en_de", "too slow")
        assert (present(client), champion.line(client, "en_de"), why(client)) == ("3", ["1", "3"], reason), count
    with killed_at(4, monkeypatch):
        assert champion.rollback(client, here, "en_de", "too slow") == champion.Move("en_de", "1", "3")
    assert (present(client), champion.line(client, "en_de"), why(client)) == ("1", ["1"], "rolled back: too slow")


def test_a_kill_between_any_two_writes_of_a_promotion_leaves_a_line_that_is_right(
    client: MlflowClient, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = why(client)
    for count in range(3):
        with killed_at(count, monkeypatch), pytest.raises(KeyboardInterrupt):
            champion.promote(client, here, "en_de", "4", "wished")
        assert (present(client), champion.line(client, "en_de"), why(client)) == ("3", ["1", "3"], reason), count
    with killed_at(3, monkeypatch), pytest.raises(KeyboardInterrupt):
        champion.promote(client, here, "en_de", "4", "wished")
    assert (present(client), champion.line(client, "en_de"), why(client)) == ("4", ["1", "3", "4"], "by hand: wished")
    with pytest.raises(UserError, match="version 4 of 'en_de' is the champion already"):
        champion.promote(client, here, "en_de", "4", "wished")
    with killed_at(4, monkeypatch):
        champion.promote(client, here, "en_de", "2", "")
    assert champion.line(client, "en_de") == ["1", "3", "4", "2"]


KILLED = """
import os, sys
from pathlib import Path
from mlflow import MlflowClient
from lexmill.commands import champions
from lexmill.registry import decisions
moment, verb, *arguments = sys.argv[1:]
alias = MlflowClient.set_registered_model_alias
def last(*given):
    if moment == "after":
        alias(*given)
    os._exit(9)
MlflowClient.set_registered_model_alias = last
getattr(champions, verb)(*arguments)
"""


@pytest.mark.parametrize("by", ["a command", "a failing command", "a list", "a run with nothing to publish"])
def test_a_move_by_hand_that_was_killed_after_the_alias_moved_is_in_the_table(by: str, here: Path) -> None:
    """The process dies between the write of the alias and the record of the move."""
    (here / "params.yaml").write_text(yaml.safe_dump(plain()))
    before = [(row["version"], row["outcome"]) for row in decisions.rows(here)]
    decisions.write_page(parse(plain()), here)
    killed("after", "promote", "en_de", "4", "wished")
    assert [(row["version"], row["outcome"]) for row in decisions.rows(here)] == before
    with opened(URI, here) as client:
        assert present(client) == "4"
    if by == "a command":
        assert lexmill("promote", "en_de", "1") == "en_de: version 1 is the champion now, instead of version 4\n"
        assert decisions.rows(here)[0]["outcome"] == "promoted by hand"
        (row,) = [row for row in decisions.rows(here) if row["version"] == "4" and row["outcome"] != "stays"]
    else:
        if by == "a list":
            lexmill("champions")
        elif by == "a failing command":
            with pytest.raises(UserError, match="version 4 of 'en_de' is the champion already"):
                lexmill("promote", "en_de", "4")
        else:
            publish_all(parse(plain()), Execution(tracking_uri=URI), lambda _: None, here)
        row = decisions.rows(here)[0]
        assert "by hand: wished" in (here / decisions.PAGE).read_text(encoding="utf-8")
    assert (row["version"], row["against"], row["outcome"]) == ("4", "3", "promoted by hand")
    assert row["reason"] == "by hand: wished"
    assert decisions.interrupted(here) == []


def test_a_rollback_that_was_killed_is_in_the_table_only_if_the_alias_has_moved(here: Path) -> None:
    before = decisions.rows(here)
    killed("before", "rollback", "en_de", "too slow")
    assert len(decisions.interrupted(here)) == 1
    lexmill("champions")
    assert decisions.rows(here) == before
    assert decisions.interrupted(here) == []
    killed("after", "rollback", "en_de", "too slow")
    lexmill("champions")
    row, *rest = decisions.rows(here)
    assert rest == before
    assert (row["version"], row["against"], row["outcome"]) == ("1", "3", "rolled back by hand")
    assert row["reason"] == "too slow"


def killed(*arguments: str) -> None:
    """Run a command in a process that dies before or after it writes the alias."""
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("promote", "en_dee"), "the registry has no model 'en_dee', did you mean 'en_de'?"),
        (("rollback", "nobody"), "the registry has no model 'nobody'; known: en_de"),
        (("champions", "nobody"), "the registry has no model 'nobody'"),
        (("promote", "en_de", "9"), "'en_de' has no version 9; it has 1, 2, 3, 4"),
        (("promote", "en_de", "newest"), "'en_de' has no version newest"),
        (("promote", "en_de", "3"), "version 3 of 'en_de' is the champion already"),
    ],
)
def test_wrong_names_and_versions_are_reported(arguments: tuple[str, ...], message: str, here: Path) -> None:
    with pytest.raises(UserError) as caught:
        lexmill(*arguments)
    assert message in str(caught.value)


def test_the_list_shows_champions_and_versions(here: Path) -> None:
    listed = lexmill("champions")
    for part in ("en_de", "translator", "3", "bleu 20.50", "better: bleu"):
        assert part in listed
    versions = lexmill("champions", "en_de")
    assert versions.count("champion") == 3  # the mark, and two decisions
    assert "worse: bleu" in versions


def test_without_a_registry_nothing_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf/execution").mkdir(parents=True)
    (tmp_path / "conf/execution/local.yaml").write_text("tracking_uri: sqlite:///mlflow.db\n")
    monkeypatch.chdir(tmp_path)
    for arguments in (("champions",), ("promote", "x"), ("rollback", "x")):
        with pytest.raises(UserError, match="there is no registry yet; `lexmill run` makes it"):
            lexmill(*arguments)
    assert not (tmp_path / "mlflow.db").exists()
