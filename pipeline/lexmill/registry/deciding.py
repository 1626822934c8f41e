"""Decide about a new version, ask for approval if configured, record the decision and carry it out.

Order: decision file, champion alias, decision tag. A version with the tag is complete; one without is decided again,
with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill.base.cutting import cut
from lexmill.compute.execution import Execution
from lexmill.params import Params
from lexmill.registry import champion as alias
from lexmill.registry import decisions, lookup, record
from lexmill.registry.comparing import Challenger, compared
from lexmill.registry.lookup import DECISION, Found
from lexmill.registry.promotion import Decision
from lexmill.tracking.database import locked
from lexmill.tracking.store import opened, sqlite_path

if TYPE_CHECKING:
    from mlflow import MlflowClient

_LONGEST = 5000  # characters of a version's tag


@dataclass(frozen=True)
class Proposal:
    """A version that won against the champion, to be approved before the alias moves."""

    name: str
    kind: str
    version: str
    champion_version: str
    decision: Decision


Approve = Callable[[Proposal], bool]


@dataclass(frozen=True)
class Outcome:
    """The result for one package.

    `created`: whether this call made the version; `champion`: whether the version holds the alias now.
    """

    name: str
    kind: str
    version: str
    created: bool
    champion: bool
    reason: str
    run_id: str

    @property
    def sentence(self) -> str:
        """Return the outcome as one line of text."""
        if not self.created:
            return f"{self.name}: already version {self.version}{' (champion)' if self.champion else ''}"
        place = "is the champion" if self.champion else "does not replace the champion"
        return f"{self.name}: version {self.version} {place}: {self.reason}"


@dataclass(frozen=True)
class Case:
    """A package whose version is to be decided about."""

    folder: Path
    description: dict[str, Any]
    found: Found


@dataclass(frozen=True)
class Judge:
    """Decides about versions by the choices and settings of one publish.

    Attributes:
        say: called before slow steps.
        approve: called before the alias moves from a champion to a version that won; None: no approval is needed.
    """

    params: Params
    execution: Execution
    root: Path
    say: Callable[[str], None]
    approve: Approve | None = None

    def settle(self, client: MlflowClient, case: Case) -> Outcome | Proposal:
        """Decide about a version and carry it out; return a proposal if it must be approved first."""
        challenger = Challenger(
            found=case.found,
            folder=case.folder,
            description=case.description,
            params=self.params,
            execution=self.execution,
            root=self.root,
        )
        decision, champion = compared(client, challenger, self.say)
        if self.approve is not None and decision.promote and champion is not None:
            found = case.found
            client.set_terminated(found.run_id, "FINISHED")
            return Proposal(found.name, case.description["kind"], found.version, champion.version, decision)
        return self._carry_out(client, case, decision, champion.version if champion else None)

    def ask(self, case: Case, proposal: Proposal) -> Outcome:
        """Ask for approval, again if another version has become champion meanwhile, and carry out the answer.

        The registry is not locked while waiting, which may take hours.
        """
        assert self.approve is not None
        uri, root = self.execution.tracking_uri, self.root
        while True:
            approved = self.approve(proposal)
            with held(uri, root) as client:
                champion = lookup.client_champion(client, proposal.name)
                if champion is not None and champion.version == proposal.champion_version:
                    decision = proposal.decision
                    if not approved:
                        decision = replace(decision, promote=False, reason=f"not approved: {decision.reason}")
                    return self._carry_out(client, case, decision, champion.version, approved=approved)
                settled = self.settle(client, case)
            if isinstance(settled, Outcome):
                return settled
            proposal = settled

    def _carry_out(
        self,
        client: MlflowClient,
        case: Case,
        decision: Decision,
        champion_version: str | None,
        *,
        approved: bool | None = None,
    ) -> Outcome:
        """Record the decision in the workspace and the run, move the alias, mark the version as decided."""
        found, kind = case.found, case.description["kind"]
        kept = decisions.keep(
            self.root,
            name=found.name,
            kind=kind,
            version=found.version,
            run_id=found.run_id,
            decision=decision,
            champion_version=champion_version,
            approved=approved,
        )
        record.log_json(client, found.run_id, kept, "decision.json")
        decisions.log_table(client, found.run_id, found.name, self.root)
        if decision.promote:
            alias.move(client, found.name, found.version, decision.reason)
        client.set_terminated(found.run_id, "FINISHED")
        text = cut(f"{decision.word}: {decision.reason}", _LONGEST)
        client.set_model_version_tag(found.name, found.version, DECISION, text)
        return Outcome(
            name=found.name,
            kind=kind,
            version=found.version,
            created=True,
            champion=decision.promote,
            reason=decision.reason,
            run_id=found.run_id,
        )


@contextmanager
def held(uri: str, root: Path) -> Iterator[MlflowClient]:
    """Open the registry for one process at a time: a local store, or a remote one from this workspace.

    Moves by hand that were interrupted are settled first.
    """
    path = sqlite_path(uri, root)
    lock = root / ".lexmill" / "publish.lock" if path is None else path.with_name(f".{path.name}.publish.lock")
    with locked(lock), opened(uri, root) as client:
        decisions.settle(client, root)
        yield client
