"""The question before a champion is replaced, without a server: its rules are played by a stand-in, and so is time."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from prefect.client.schemas.objects import State
from prefect.client.schemas.responses import SetStateStatus
from prefect.exceptions import PrefectHTTPStatusError
from prefect.input import actions
from prefect.states import Cancelling, Running
from prefect.utilities import schema_tools

from flows import approval, pipeline
from flows.approval import LOOK_SECONDS, Asking
from lexmill.base.errors import Terminated
from lexmill.registry.promotion import Decision
from lexmill.registry.publish import Proposal

RUN = uuid4()
SECONDS = 5 * LOOK_SECONDS


class Server:
    """What Prefect's server keeps of the run, and its rules for a pause and its end."""

    def __init__(self) -> None:
        self.state: State[None] = Running()
        self.inputs: dict[str, str] = {}
        self.paused: list[str] = []
        self.calls: list[str] = []
        self.away: Callable[[str], bool] = lambda _call: False
        self.before_resume: Callable[[], object] = lambda: None

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_error: object) -> None:
        return None

    def _reach(self, call: str, run: UUID) -> None:
        assert run == RUN
        self.calls.append(call)
        if self.away(call):
            raise httpx.ConnectError("connection refused")

    def read_flow_run(self, run: UUID) -> Any:
        self._reach("read", run)
        return SimpleNamespace(state=self.state)

    def set_flow_run_state(self, run: UUID, state: State[None]) -> Any:
        self._reach("pause", run)
        details = state.state_details
        if not self.state.is_running() or details.pause_key in self.paused:
            return SimpleNamespace(status=SetStateStatus.REJECT)
        self.paused.append(str(details.pause_key))
        for key in (details.run_input_keyset or {}).values():
            self.inputs.pop(key, None)
        self.state = state
        return SimpleNamespace(status=SetStateStatus.ACCEPT)

    def resume_flow_run(self, run: UUID, run_input: dict[str, Any]) -> Any:
        self._reach("resume", run)
        self.before_resume()
        return self.answer(**run_input)

    def answer(self, **given: Any) -> Any:
        """What a person's or a script's answer does."""
        keyset = self.state.state_details.run_input_keyset
        if not self.state.is_paused() or keyset is None:
            return SimpleNamespace(status=SetStateStatus.ABORT)
        try:
            schema_tools.validate(given, json.loads(self.inputs[keyset["schema"]]), raise_on_error=True)
        except (KeyError, schema_tools.ValidationError):
            return SimpleNamespace(status=SetStateStatus.REJECT)
        self.state = Running()
        self.inputs[keyset["response"]] = json.dumps(given)
        return SimpleNamespace(status=SetStateStatus.ACCEPT)

    def form(self) -> dict[str, Any]:
        """The values with which the form of the open question is shown, `approve` switched on."""
        keyset = self.state.state_details.run_input_keyset
        assert keyset is not None
        shown = json.loads(self.inputs[keyset["schema"]])["properties"]
        return {name: field["default"] for name, field in shown.items()} | {"approve": True}

    def create_flow_run_input(self, flow_run_id: UUID, key: str, value: str, sender: str | None = None) -> None:
        self._reach("create", flow_run_id)
        self.inputs[key] = value

    def read_flow_run_input(self, flow_run_id: UUID, key: str) -> str:
        self._reach("input", flow_run_id)
        if key not in self.inputs:
            request = httpx.Request("GET", "http://server")
            raise PrefectHTTPStatusError("none", request=request, response=httpx.Response(404, request=request))
        return self.inputs[key]


class Stop:
    """A run's stop: time passes in `wait` alone, and the next event happens there."""

    def __init__(self) -> None:
        self.now, self.asked = 0.0, False
        self.events: list[Callable[[], object]] = []

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        if self.events:
            self.events.pop(0)()
        return self.asked

    def request(self) -> None:
        self.asked = True


def nothing() -> None:
    """No event at this look."""


class Question:
    """An `Asking` with its surroundings."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.server, self.stop = Server(), Stop()
        self.notes: list[str] = []
        self.artifacts: dict[str, str] = {}
        context = SimpleNamespace(get=lambda: SimpleNamespace(flow_run=SimpleNamespace(id=RUN)))
        monkeypatch.setattr(approval, "FlowRunContext", context)
        monkeypatch.setattr(approval, "time", SimpleNamespace(monotonic=lambda: self.stop.now))
        monkeypatch.setattr(approval, "get_run_logger", lambda: logging.getLogger("test"))
        monkeypatch.setattr(
            approval, "create_markdown_artifact", lambda text, key, description: self.artifacts.update({key: text})
        )
        for module in (approval, actions):
            monkeypatch.setattr(module, "get_client", lambda sync_client: self.server)
        display = SimpleNamespace(note=self.notes.append)
        session: Any = SimpleNamespace(stop=self.stop, display=display)
        self.ask = Asking(session, SECONDS)

    def __call__(self, *events: Callable[[], object], version: str = "2", champion: str = "1") -> bool:
        self.stop.events = list(events)
        return self.ask(Proposal("gpt", "language_model", version, champion, Decision(True, "better: bits")))


@pytest.fixture
def question(monkeypatch: pytest.MonkeyPatch) -> Question:
    return Question(monkeypatch)


@pytest.mark.parametrize("approve", [True, False])
def test_an_answer_counts_as_it_is_given(question: Question, approve: bool) -> None:
    assert question(nothing, lambda: question.server.answer(approve=approve)) is approve
    assert question.stop.now == 2 * LOOK_SECONDS
    said = "May version 2 of gpt replace version 1 as champion?"
    assert question.artifacts["approval-gpt"].startswith(said)
    assert [note.partition(" Resume")[0] for note in question.notes] == [
        said,
        f"gpt: {'approved' if approve else 'not approved'}",
    ]
    (description,) = (json.loads(text) for key, text in question.server.inputs.items() if key.endswith("description"))
    assert description == question.artifacts["approval-gpt"]


def test_the_form_as_it_is_shown_is_an_answer_and_one_without_a_word_is_a_no(question: Question) -> None:
    assert question(lambda: question.server.answer(**question.server.form()))
    assert not question(question.server.answer)


def test_silence_is_a_no_and_the_run_goes_on(question: Question) -> None:
    pauses: list[float] = []

    def look() -> None:
        details = question.server.state.state_details
        assert details.pause_timeout is not None
        pauses.append((details.pause_timeout - question.server.state.timestamp).total_seconds())

    assert not question(look)
    assert question.stop.now == SECONDS
    assert question.notes[-1] == "gpt: nobody answered in time: not approved"
    assert question.server.state.is_running()
    # The server fails a run whose pause it ends itself, so it must not be the first.
    assert pauses[0] >= SECONDS + 590


def test_an_answer_of_the_last_moment_counts(question: Question) -> None:
    question.server.before_resume = lambda: question.server.answer(approve=True)
    assert question()
    assert question.notes[-1] == "gpt: approved"


def test_a_late_answer_is_refused_and_is_none_for_the_next_question(question: Question) -> None:
    assert not question()
    assert question.server.answer(approve=True).status == SetStateStatus.ABORT
    assert not question(version="3")


def test_an_answer_about_another_version_is_refused(question: Question) -> None:
    """A form that was still open when its time was up, sent while the next question is open."""
    forms: list[dict[str, Any]] = []
    answers: list[Any] = []

    def send_first() -> None:
        answers.append(question.server.answer(**forms[0]).status)

    assert not question(lambda: forms.append(question.server.form()))
    assert not question(send_first, version="3")
    assert not question(send_first, champion="3")
    assert answers == [SetStateStatus.REJECT] * 2
    assert question(send_first, lambda: question.server.answer(**question.server.form()), version="4")


def test_the_same_version_can_be_asked_about_again(question: Question) -> None:
    """Where another version became champion meanwhile, and also where that one was champion before."""
    assert question(lambda: question.server.answer(approve=True))
    assert not question(lambda: question.server.answer(approve=False))
    assert len(set(question.server.paused)) == 2


@pytest.mark.parametrize("call", ["read", "input"])
def test_a_server_that_is_away_for_a_while_loses_no_answer(question: Question, call: str) -> None:
    def go() -> None:
        question.server.away = lambda one: one == call

    def come_back() -> None:
        question.server.away = lambda _call: False

    assert question(go, lambda: question.server.answer(approve=True), come_back)
    assert question.stop.now == 3 * LOOK_SECONDS
    assert "resume" not in question.server.calls


def test_a_server_that_is_away_at_the_end_ends_the_run_without_a_decision(question: Question) -> None:
    question.server.away = lambda call: call == "resume"
    with pytest.raises(httpx.ConnectError):
        question()
    assert len(question.notes) == 1


def cancel(question: Question) -> None:
    question.server.state = Cancelling()


def test_a_cancel_before_the_pause_asks_nothing(question: Question) -> None:
    cancel(question)
    with pytest.raises(Terminated, match="cancelled before gpt could be approved"):
        question()
    assert question.server.inputs == {}
    assert question.notes == []


def test_a_cancel_ends_the_question(question: Question) -> None:
    with pytest.raises(Terminated, match="cancelled while it waited for approval"):
        question(nothing, question.stop.request)
    assert question.stop.now == 2 * LOOK_SECONDS
    assert "resume" not in question.server.calls


def test_a_cancel_of_the_last_moment_is_no_silence(question: Question) -> None:
    """Silence would be recorded as a no, and the version not be asked about again."""
    question.server.before_resume = lambda: cancel(question)
    with pytest.raises(Terminated, match="cancelled while it waited for approval"):
        question()
    assert len(question.notes) == 1


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_cancel_that_only_the_question_has_seen_cancels_the_run(
    monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """The watch asks the server every two seconds; the question may be faster."""

    class Watch:
        def __init__(self, _run: UUID) -> None:
            self.seen = self.struck = False

        def __enter__(self) -> Watch:
            return self

        def __exit__(self, *_error: object) -> None:
            return None

        def cancelled(self) -> bool:
            return cancelled

    def stopped() -> None:
        raise Terminated("cancelled while it waited for approval")

    context = SimpleNamespace(get=lambda: SimpleNamespace(flow_run=SimpleNamespace(id=RUN)))
    monkeypatch.setattr(pipeline, "FlowRunContext", context)
    monkeypatch.setattr(pipeline, "CancelWatch", Watch)
    monkeypatch.setattr(pipeline, "preflight", stopped)
    if cancelled:
        state = pipeline.pipeline.fn()
        assert state is not None
        assert state.is_cancelled()
    else:
        with pytest.raises(Terminated):
            pipeline.pipeline.fn()
