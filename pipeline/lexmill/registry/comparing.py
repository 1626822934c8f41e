"""Compare a new version with the champion, and decide between them.

Both are judged on the same items, the present test split. The champion's rows are in its package; if the split has
changed since, its model is loaded (as data, by our loader) and scored again by the present code, once: the rows are
kept under .lexmill/rescored/ by the champion, the test data, the settings and the code. A champion that cannot be
loaded is compared on the items that both were tested on.

Cost: with an unchanged test split, the paired test; else one evaluation of the champion. For a version that won, the
champion's package is downloaded once, and both models answer some texts of the test split a few times.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lexmill import kinds
from lexmill.base import layout, storage
from lexmill.base.code import Code
from lexmill.base.cutting import beginning
from lexmill.base.errors import UserError
from lexmill.compute.execution import Execution
from lexmill.corpora.identity import split_sha256
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.rows import Row, read_rows, spread
from lexmill.evaluation.significance import PairedTest, differing_key
from lexmill.params import Params
from lexmill.registry import guards, lookup, package, trial
from lexmill.registry.download import registered_package
from lexmill.registry.guards import Guard
from lexmill.registry.lookup import TRAIN_DATA, Found
from lexmill.registry.promotion import Decision, decide, shared_rows
from lexmill.registry.trial import TrialFailed
from lexmill.report.verdicts import listed, of_metrics

if TYPE_CHECKING:
    from mlflow import MlflowClient

RESCORED = Path(".lexmill") / "rescored"
_TEXTS, _CHARACTERS = 24, 400  # of a timing


@dataclass(frozen=True)
class Challenger:
    """A new version, its package and description, and the choices, settings and workspace that judge it."""

    found: Found
    folder: Path
    description: dict[str, Any]
    params: Params
    execution: Execution
    root: Path

    @property
    def resampling(self) -> Resampling:
        evaluation = self.params.evaluation
        return Resampling(evaluation.bootstrap_samples, evaluation.confidence, self.params.data_seed)


def compared(client: MlflowClient, challenger: Challenger, say: Callable[[str], None]) -> tuple[Decision, Found | None]:
    """Decide about a version; return the decision and the previous champion (None: there was no other).

    Args:
        say: called before slow steps.
    """
    found = challenger.found
    champion = lookup.client_champion(client, found.name)
    if champion is None:
        why = "the first version" if found.version == "1" else "no version was champion"
        measured = challenger.description["metrics"]
        weak = of_metrics(kinds.find(challenger.description["kind"]), measured["test"], measured["baselines"])
        if others := measured.get("not_compared"):
            apart = f"it is not compared with {listed(others, 'and')}, measured on another test set"
            weak = f"{weak} and {apart}" if weak else apart
        return Decision(True, f"{why}, though {weak}" if weak else why), None
    if champion.version == found.version:
        return Decision(True, "it was made champion before the publishing was interrupted"), None
    return _against(client, champion, challenger, say), champion


def _against(client: MlflowClient, champion: Found, challenger: Challenger, say: Callable[[str], None]) -> Decision:
    kind = challenger.description["kind"]
    if champion.kind != kind:
        return Decision(
            False,
            f"version {champion.version} is {champion.kind or 'no model of ours'}, this one {kind};"
            f" give it another name, or `lexmill promote {champion.name}` if you want it",
        )
    test: PairedTest = kinds.find(kind).module("metrics").TEST
    ours = read_rows(challenger.folder / package.ROWS)
    theirs, note = _rows_of(champion, challenger, test, ours, say)
    if theirs is None:
        return Decision(
            False,
            f"version {champion.version} has no test rows to compare with{note}; `lexmill promote {champion.name}` if"
            " you want the new one",
        )
    rule = challenger.params.promotion
    fresher, resampling = is_fresher(client, challenger.found, champion), challenger.resampling
    decision = decide(
        test, ours, theirs, champion_version=champion.version, rule=rule, resampling=resampling, fresher=fresher
    )
    decision = dataclasses.replace(decision, reason=f"{decision.reason}{note}")
    if not decision.promote:
        return decision
    guarded = _by_package(champion, challenger)
    if rule.guards.slices:
        shared = shared_rows(test, ours, theirs)
        guarded += guards.check_slices(test, *shared, level=rule.significance, resampling=resampling)
    return decision.guarded(guarded)


def is_fresher(client: MlflowClient, version: Found, champion: Found) -> bool:
    """Return whether a version has learned from newer data than the champion.

    That is, data that the registry first saw after the champion's: going back to old data is not fresher. False if
    either version lacks the tag of its data.
    """
    first: dict[str, int] = {}
    by_version = {}
    for one in client.search_model_versions(f"name = '{version.name}'"):
        data = one.tags.get(TRAIN_DATA, "")
        by_version[str(one.version)] = data
        first[data] = min(int(one.version), first.get(data, int(one.version)))
    mine, theirs = by_version.get(version.version, ""), by_version.get(champion.version, "")
    return bool(mine and theirs) and first[mine] > first[theirs]


def _rows_of(
    champion: Found, challenger: Challenger, test: PairedTest, ours: list[Row], say: Callable[[str], None]
) -> tuple[list[Row] | None, str]:
    """Return the champion's rows on the challenger's test items, as far as available, and a note for the reason."""
    stored = _stored_rows(champion)
    if stored is not None and _same_items(test, ours, stored):
        return stored, ""
    why = "the test data changed" if stored is not None else "it has no test rows"
    message = f"{champion.name}: version {champion.version} is scored on the present test split, for {why}"
    try:
        kept = _rescored(champion, challenger, lambda: say(message))
    except (TrialFailed, UserError) as error:
        return stored, f"; version {champion.version} could not be scored anew ({error})"
    return kept, f"; version {champion.version} was scored anew on the present test split"


def _same_items(test: PairedTest, ours: list[Row], theirs: list[Row]) -> bool:
    by_id = {row["id"]: row for row in theirs}
    return len(ours) == len(by_id) and all(
        row["id"] in by_id and differing_key(test, row, by_id[row["id"]]) is None for row in ours
    )


def _rescored(champion: Found, challenger: Challenger, announce: Callable[[], None]) -> list[Row]:
    """Return the champion's rows on the present test split, stored ones if there are any.

    Raises:
        UserError: the test split is not here, or the champion's package is not available.
        TrialFailed: it cannot be loaded or run.
    """
    test, root = challenger.description["test_corpus"], challenger.root
    folder = root / layout.corpus(test["name"])
    corpus = PreparedCorpus(folder)
    if split_sha256(corpus.manifest, "test") != test["sha256"]:
        raise UserError(f"the prepared corpus '{test['name']}' is no longer the one of the test")
    evaluation = challenger.params.evaluation
    known = {"champion": champion.fingerprint, "test": test["sha256"], "evaluation": dataclasses.asdict(evaluation)}
    # The code that scores a model of this kind, whatever its family.
    code = Code().digest(f"lexmill.kinds.{challenger.description['kind']}.evaluate", "lexmill.models.folder")
    key = storage.fingerprint({**known, "code": code})
    place = root / RESCORED / champion.name
    kept = place / f"{key[:32]}.jsonl"
    if not kept.is_file():
        announce()
        model = registered_package(champion, challenger.execution.tracking_uri, root)
        place.mkdir(parents=True, exist_ok=True)
        for older in place.glob("*.jsonl"):
            older.unlink()
        trial.score(model, folder, evaluation, challenger.execution, kept)
    return read_rows(kept)


def _stored_rows(version: Found) -> list[Row] | None:
    """Return the test rows in a version's package; None if it has none."""
    from mlflow.artifacts import download_artifacts, list_artifacts

    inside = f"models:/{version.name}/{version.version}/data/{version.name}"
    if not any(Path(entry.path).name == package.ROWS for entry in list_artifacts(artifact_uri=inside)):
        return None
    with tempfile.TemporaryDirectory() as folder:
        return read_rows(download_artifacts(artifact_uri=f"{inside}/{package.ROWS}", dst_path=folder))


def _by_package(champion: Found, challenger: Challenger) -> list[Guard]:
    """Check the guards of time and size, for which the champion's package is downloaded."""
    chosen = challenger.params.promotion.guards
    if not (chosen.latency or chosen.size):
        return []
    try:
        folder = registered_package(champion, challenger.execution.tracking_uri, challenger.root)
    except UserError as error:
        words = f"latency and size not compared: version {champion.version} cannot be downloaded ({error})"
        return [Guard("latency", None, None, None, False, words)]

    def times(first: Path, second: Path) -> dict[str, Any]:
        settings = dict(kinds.find(champion.kind).module("predict").Predictor.timed)
        try:
            return trial.times(first, second, _texts(challenger), settings, challenger.execution)
        except TrialFailed as error:
            return {"failed": "both", "why": str(error)}

    found = guards.check_size(chosen, folder, challenger.folder)
    return guards.check_latency(chosen, folder, challenger.folder, times) + found


def _texts(challenger: Challenger) -> list[str]:
    """Return texts for timing, spread over the test split; the package's examples if there is no split here."""
    try:
        corpus = PreparedCorpus(challenger.root / layout.corpus(challenger.description["test_corpus"]["name"]))
        places = set(spread(corpus.count("test"), _TEXTS))
        chosen = [record for i, record in enumerate(corpus.records("test")) if i in places]
    except (UserError, OSError):
        chosen = []
    texts = [beginning(_text(record), _CHARACTERS) for record in chosen]
    return texts or challenger.description["example"]["input"] or ["a"]


def _text(record: Mapping[str, Any]) -> str:
    """Return what a model reads of a record; "" for a conversation."""
    return record.get("source") or record.get("text") or " ".join(record.get("words", ()))
