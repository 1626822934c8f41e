"""The champion's alias and the line of versions that held it, moved by a decision or by hand, and rolled back.

The line is a tag of the registered model, `1,4,7`: the oldest first, the present champion last. Reading it adds an
alias set elsewhere (MLflow's page); a model without the tag gets its line from its versions' decisions. A rollback
removes the last version, so two rollbacks go back two.

Each move is several writes, in an order in which a kill between any two leaves a correct line. Time and reason come
first: they are those of this move when the alias moves. A rollback writes the alias last: after a killed one, the
version that held it is still the champion, and the same command goes back by one. A move by hand is recorded in the
workspace around these writes (`decisions.by_hand`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.cutting import cut
from lexmill.base.errors import UserError
from lexmill.base.strict import nearest
from lexmill.registry import decisions, lookup
from lexmill.registry.lookup import CHAMPION, DECISION, Found

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import RegisteredModel

LINE = "lexmill.champions"
SINCE = "lexmill.champion_since"
WHY = "lexmill.champion_reason"
_MOST = 200  # versions in the line; the store takes 5,000 characters
_LONGEST = 4000


@dataclass(frozen=True)
class Move:
    """A move of the alias: the version that holds it now, and the one before (None: there was none)."""

    name: str
    version: str
    before: str | None


def model_of(client: MlflowClient, name: str) -> RegisteredModel:
    """Return the registered model.

    Raises:
        UserError: there is none of this name; names the nearest.
    """
    from mlflow.exceptions import MlflowException

    try:
        return client.get_registered_model(name)
    except MlflowException as error:
        if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise
        known = [model.name for model in client.search_registered_models(max_results=1000)]
        there = nearest(name, known) if known else "; it holds none yet"
        raise UserError(f"the registry has no model '{name}'{there}") from None


def versions_of(client: MlflowClient, name: str) -> list[Any]:
    """Return the model's versions, the oldest first."""
    return sorted(client.search_model_versions(f"name = '{name}'"), key=lambda version: int(version.version))


def version_of(client: MlflowClient, name: str, number: str | None) -> Found:
    """Return a version of a model, as `3` or `v3`; None: its champion.

    Raises:
        UserError: no such model or version, or no champion.
    """
    known = [str(one.version) for one in versions_of(client, model_of(client, name).name)]
    number = None if number is None else number.removeprefix("v")
    if number is not None and number not in known:
        raise UserError(f"'{name}' has no version {number}; it has {', '.join(known) or 'none'}")
    found = lookup.client_champion(client, name) if number is None else lookup.version(client, name, number)
    if found is None:
        raise UserError(f"'{name}' has no champion; `lexmill promote {name}` makes one")
    return found


def line(client: MlflowClient, name: str) -> list[str]:
    """Return the versions that were champion, without deleted ones, the oldest first, the present one last."""
    model = model_of(client, name)
    versions = versions_of(client, name)
    kept = model.tags.get(LINE)
    if kept is None:
        found = [str(one.version) for one in versions if one.tags.get(DECISION, "").startswith("champion:")]
    else:
        there = {str(one.version) for one in versions}
        found = [version for version in kept.split(",") if version in there]
    present = model.aliases.get(CHAMPION)
    if present is not None and found[-1:] != [str(present)]:
        found.append(str(present))
    return found


def move(client: MlflowClient, name: str, version: str, why: str) -> Move:
    """Give a version the alias and append it to the line."""
    before = line(client, name)
    holder = model_of(client, name).aliases.get(CHAMPION)
    _tag(client, name, version, why)
    client.set_registered_model_alias(name, CHAMPION, version)
    if before[-1:] != [version]:
        before.append(version)
    _write(client, name, before)
    return Move(name, version, None if holder is None else str(holder))


def promote(client: MlflowClient, root: Path, name: str, version: str | None, reason: str) -> Move:
    """Move the alias by hand to a version, None: the newest; record it in the workspace.

    Raises:
        UserError: no such model or version, or it is the champion already.
    """
    model = model_of(client, name)
    known = [str(one.version) for one in versions_of(client, name)]
    if not known:
        raise UserError(f"the model '{name}' has no version yet; `lexmill run` makes one")
    version = known[-1] if version is None else version.removeprefix("v")
    if version not in known:
        raise UserError(f"'{name}' has no version {version}; it has {_listed(known)}")
    before = model.aliases.get(CHAMPION)
    before = None if before is None else str(before)
    if before == version:
        raise UserError(f"version {version} of '{name}' is the champion already")
    why = f"by hand: {reason}" if reason else "by hand"
    with decisions.by_hand(root, name=name, version=version, before=before, outcome="promoted by hand", reason=why):
        return move(client, name, version, why)


def rollback(client: MlflowClient, root: Path, name: str, reason: str) -> Move:
    """Give the alias back to the previous champion; record it in the workspace.

    Raises:
        UserError: no such model, or no version was champion before.
    """
    before = line(client, name)
    present = model_of(client, name).aliases.get(CHAMPION)
    if present is None:
        raise UserError(f"'{name}' has no champion to roll back from; `lexmill promote {name}` makes one")
    earlier = before[:-1]
    if not earlier:
        raise UserError(
            f"version {present} of '{name}' is the first champion, so there is none to go back to;"
            f" `lexmill promote {name} VERSION` chooses another version"
        )
    back = Move(name, earlier[-1], str(present))
    outcome = "rolled back by hand"
    with decisions.by_hand(
        root, name=name, version=back.version, before=back.before, outcome=outcome, reason=reason or outcome
    ):
        _tag(client, name, back.version, f"rolled back: {reason}" if reason else outcome)
        _write(client, name, earlier)
        client.set_registered_model_alias(name, CHAMPION, back.version)
    return back


def _write(client: MlflowClient, name: str, versions: list[str]) -> None:
    client.set_registered_model_tag(name, LINE, ",".join(versions[-_MOST:]))


def _tag(client: MlflowClient, name: str, version: str, why: str) -> None:
    client.set_model_version_tag(name, version, SINCE, decisions.now())
    client.set_model_version_tag(name, version, WHY, cut(why, _LONGEST))


def _listed(versions: list[str]) -> str:
    shown = versions[-10:]
    return f"{'..., ' if len(shown) < len(versions) else ''}{', '.join(shown)}"
