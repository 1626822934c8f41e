"""What params.yaml accepts must start: sizes, names, members, encodings and lengths have bounds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base.errors import UserErrors
from lexmill.commands.describe import describe
from lexmill.params import parse
from lexmill.params.derived import PARTS
from lexmill.params.length import Length
from lexmill.params.references import MOST_NAME

ROOT = Path(__file__).resolve().parents[2]


def chosen() -> dict[str, Any]:
    """The committed file without what follows from its models."""
    data = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    return {key: inner for key, inner in data.items() if key not in PARTS}


def errors_of(data: Any) -> str:
    with pytest.raises(UserErrors) as caught:
        parse(data)
    return str(caught.value)


def errors_with(path: str, value: Any) -> str:
    """The errors of the committed file with one value replaced."""
    data = chosen()
    *parents, last = path.split(".")
    place = data
    for key in parents:
        place = place[key]
    place[last] = value
    return errors_of(data)


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        ("models.gpt.shape.n_layer", 10**9, "shape.n_layer: 1000000000 is too large; at most 1000"),
        ("models.gpt.shape.d_model", 10**9, "shape.d_model: 1000000000 is too large; at most 1,000,000"),
        ("models.gpt.shape.context", 2**40, "at most 10,000,000"),
        ("models.gpt.recipe.batch", 10**30, "recipe.batch: 1000000000000000000000000000000 is too large"),
        ("models.gpt.recipe.length", "1e300 steps", "'1e300 steps' is too long; at most 1,000,000,000,000 steps"),
        ("models.gpt.recipe.length", "9" * 90, "is too long; at most"),
        ("models.gpt.recipe.length", ["1 steps"], "length: expected a short text or a number, got ['1 steps']"),
        ("models.gpt.recipe.validate_every", "200 %", "'200 %' is too long; at most 100 percent"),
        ("models.gpt.family", {}, "models.gpt.family: {} is unknown; known: "),
        ("models.gpt.kind", ["language_model"], "models.gpt.kind: ['language_model'] is unknown"),
        ("models.sentiment.shape.hidden_act", "shout", "hidden_act: 'shout' is none of: gelu"),
        ("evaluation.batch_tokens", 10**30, "evaluation.batch_tokens: 1000000000000000000000000000000 is too large"),
        ("data_seed", 2**64, "data_seed: 18446744073709551616 is too large; at most 9,007,199,254,740,992"),
        ("tokenizers.shakespeare_bpe.vocab_size", 2**62, "vocab_size: 4611686018427387904 is too large"),
        ("corpora.shakespeare.source.kind", ["file"], "corpora.shakespeare.source.kind: ['file'] is unknown"),
        ("corpora.shakespeare.source.members", ["../../etc/passwd"], "source.members: '../../etc/passwd' leads out of"),
        ("corpora.shakespeare.source.members", ["a.tar.gz!/etc/x", "b!../x"], "members[1]: 'b!../x' leads out of"),
        ("corpora.shakespeare.source.sha256", "abc", "source.sha256: 'abc' is not a sha256 (64 hexadecimal digits)"),
        ("corpora.shakespeare.reader.encoding", "utf-9", "reader.encoding: 'utf-9' is unknown"),
        ("corpora.shakespeare.reader.encoding", "hex", "reader.encoding: 'hex' is unknown"),
        ("corpora.home_assistant.reader.source", "/etc/{group}", "reader.source: '/etc/{group}' leads out of"),
        ("corpora." + "x" * 300, {}, "a name has at most 80 characters, this has 300"),
        ("corpora.a/b", {}, "corpora.a/b: a name has letters, digits, '_' and '-' only"),
        ("tokenizers.\u00e9", {}, "a name has letters, digits, '_' and '-' only"),
        ("models.a\nb", {}, "a name has letters, digits, '_' and '-' only"),
        ("experiment", "x" * 300, "is no name; give 1 to 80 printable characters"),
        ("experiment", "a\x1b[2J", "experiment: 'a\\x1b[2J' is no name"),
    ],
)
def test_each_is_an_error_of_its_key(path: str, value: Any, error: str) -> None:
    assert error in errors_with(path, value)


@pytest.mark.parametrize(
    ("name", "sizes", "count"),
    [
        # 12 squares of the width a layer, and two norms; a tied table of 2,048 tokens, and a norm
        (
            "gpt",
            {"n_layer": 1000, "d_model": 10**6, "d_ffn": 0, "ngram_rows": 0},
            1000 * (12 * 10**12 + 2 * 10**6) + 2049 * 10**6,
        ),
        # 4 gates, each with the input's and the state's square, and two biases
        ("lstm", {"n_layer": 1000, "d_model": 10**6, "ngram_rows": 0}, 1000 * (8 * 10**12 + 8 * 10**6) + 2048 * 10**6),
    ],
)
def test_sizes_that_are_absurd_only_together_are_counted(name: str, sizes: dict[str, int], count: int) -> None:
    data = chosen()
    data["models"][name]["shape"] |= sizes
    error = f"models.{name}.shape: its sizes make {count:,} parameters; at most 10,000,000,000,000"
    assert error in errors_of(data)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("en_de", {"encoder_layers": 1000, "d_model": 10**6}),
        ("en_de", {"decoder_layers": 1000, "d_model": 10**5, "d_ffn": 10**6}),
        ("sentiment", {"num_hidden_layers": 1000, "hidden_size": 10**6, "num_attention_heads": 1}),
        ("gpt", {"n_layer": 1000, "d_model": 10**4, "n_head": 1000, "d_head": 10**4}),
    ],
)
def test_so_it_is_for_every_family(name: str, sizes: dict[str, int]) -> None:
    data = chosen()
    data["models"][name]["shape"] |= sizes
    assert "parameters; at most 10,000,000,000,000" in errors_of(data)


def test_a_window_whose_activations_are_absurd_is_refused() -> None:
    data = chosen()
    data["models"]["gpt"]["shape"] |= {"n_layer": 1000, "d_model": 16384, "n_head": 8, "context": 10**7}
    data["models"]["gpt"]["recipe"]["batch"] = 10**7
    assert "keep 163,840,000,000,000 numbers for one window of its context" in errors_of(data)


def test_the_largest_models_in_use_are_accepted_and_counted_without_torch() -> None:
    code = """
import sys, yaml
from lexmill.params import parse
data = yaml.safe_load(sys.stdin)
data["models"]["gpt"]["shape"] |= {"n_layer": 126, "d_model": 16384, "n_head": 128, "context": 2048}
parse(data)
print("torch" in sys.modules)
"""
    given = yaml.safe_dump(chosen())
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_the_longest_names_make_file_names_that_fit() -> None:
    assert len(f"baseline@language_model-{'x' * MOST_NAME}-{'x' * MOST_NAME}.json.12345678.tmp") < 255


def test_lengths_within_their_bounds_are_read() -> None:
    assert Length.parse("3e11 tokens") == Length(3e11, "tokens")
    assert Length.parse("100 %") == Length(100, "percent")


def test_the_bounds_are_shown_and_readable() -> None:
    text = describe(execution=False)
    assert "models.NAME.shape.n_layer (whole number): blocks; at least 1 and at most 1000" in text
    assert "at least 8 and at most 1,000,000" in text
    assert "9007199254740992" not in text
