"""Answers of a chat model and `lexmill chat`: one conversation, streamed, ended by its end token."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, cast

import pytest
import torch
import typer
from typer.testing import CliRunner

from lexmill import models, tokenizers
from lexmill.base.errors import UserErrors
from lexmill.data.conversations import answer_prompt
from lexmill.decoding.sampling import continue_tokens
from lexmill.decoding.settings import Sampling
from lexmill.kinds.chat_model import command
from lexmill.kinds.chat_model.predict import Predictor
from lexmill.kinds.chat_model.replies import replies, stream
from lexmill.kinds.verbs import Use
from lexmill.tokenizers.kinds import assemble, byte_model
from lexmill.tokenizers.saving import save

ASKED = [{"role": "user", "content": "Grüße?"}]
GREEDY = Sampling(12, temperature=0)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> tokenizers.Tokenizer:
    made = tmp_path_factory.mktemp("tokenizer")
    save(assemble("byte", byte_model(), lowercase=False), made)
    return tokenizers.load(made)


@pytest.fixture(scope="module")
def network() -> Any:
    torch.manual_seed(1)
    shape = {"n_layer": 1, "n_head": 2, "d_model": 16, "context": 32}
    module = models.build({"family": "gpt", "shape": shape, "vocab_size": 261})
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return module.eval()


def test_an_answer_is_what_follows_the_prompt_of_tokens(network: Any, tokenizer: tokenizers.Tokenizer) -> None:
    start = answer_prompt(tokenizer, ASKED)[-20:]  # 32 positions less 12 new tokens
    never = tokenizer.never_written
    (ids,) = continue_tokens(network, [start], GREEDY, eos=tokenizer.eos_id, never_written=never)
    assert replies(network, tokenizer, [ASKED], GREEDY) == [tokenizer.decode(ids)]
    pieces = list(stream(network, tokenizer, ASKED, GREEDY))
    assert "".join(pieces) == tokenizer.decode(ids)
    assert len(pieces) > 1


def test_an_answer_does_not_depend_on_the_others(network: Any, tokenizer: tokenizers.Tokenizer) -> None:
    asked = [[{"role": "user", "content": "x" * i + chr(96 + i)}] for i in range(1, 20)]
    drawn = Sampling(6, temperature=1.0, seed=4)
    alone = ["".join(stream(network, tokenizer, messages, drawn)) for messages in asked]
    assert replies(network, tokenizer, asked, drawn) == alone
    assert len(set(alone)) > 1


def test_a_stop_string_ends_an_answer(network: Any, tokenizer: tokenizers.Tokenizer) -> None:
    (whole,) = replies(network, tokenizer, [ASKED], GREEDY)
    stop = whole[3]
    (cut,) = replies(network, tokenizer, [ASKED], Sampling(12, temperature=0, stop=(stop,)))
    assert cut == whole[: whole.index(stop)]


def test_settings_out_of_bounds_are_refused_at_once(network: Any, tokenizer: tokenizers.Tokenizer) -> None:
    with pytest.raises(UserErrors, match="temperature"):
        stream(network, tokenizer, ASKED, Sampling(12, temperature=-1))


def test_the_predictor_answers_single_messages(network: Any, tokenizer: tokenizers.Tokenizer) -> None:
    predictor = Predictor("chat", {"kind": "chat_model"}, network, tokenizer)
    params = {"max_tokens": 12, "temperature": 0.0}
    found = predictor.predict(["Grüße?", "And?"], params)
    assert found[0] == replies(network, tokenizer, [ASKED], GREEDY)[0]
    assert "".join(predictor.stream("Grüße?", params)) == found[0]
    assert predictor.predict([], params) == []


class _Counts:
    """Answers with the number of messages so far, and the last one."""

    def __init__(self) -> None:
        self.settings: dict[str, Any] = {}

    def model(self, kind: str, name: str | None, precision: str) -> _Counts:
        assert (kind, name) == ("chat_model", "mine")
        return self

    def texts(self, given: list[str] | None) -> Iterable[str]:
        return given or (line.rstrip("\n") for line in io.StringIO("one\n\ntwo\n"))

    def reply(self, messages: list[dict[str, str]], settings: dict[str, Any]) -> Iterator[str]:
        self.settings = settings
        yield f"{len(messages)} "
        yield f"{messages[0]['role']}\n{messages[-1]['content']}"

    def show_growing(self, begun: Iterable[str], pieces: Iterator[str]) -> None:
        print("".join([*begun, *pieces]))


def chat(*arguments: str) -> tuple[str, _Counts]:
    app, use = typer.Typer(), _Counts()
    command.add(app, cast(Use, use))
    result = CliRunner().invoke(app, ["--model", "mine", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, use


def test_lines_of_stdin_are_one_conversation_an_answer_a_line() -> None:
    assert chat()[0] == "1 user\\none\n3 user\\ntwo\n"


def test_messages_as_arguments_with_a_system_message() -> None:
    shown, use = chat("a", "b", "--system", "Be brief.", "--max-tokens", "5")
    assert shown == "2 system\na\n4 system\nb\n"
    assert use.settings == {"max_tokens": 5}


def test_wrong_settings_are_refused_before_the_model_is_loaded() -> None:
    app = typer.Typer()
    command.add(app, cast(Use, None))
    with pytest.raises(UserErrors, match="top_p"):
        CliRunner().invoke(app, ["a", "--top-p", "3"], catch_exceptions=False)
