"""`lexmill export --to ctranslate2`: a process with neither lexmill nor torch gives the same translations."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lexmill import tokenizers
from lexmill.base.errors import UserError
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator.predict import translate_lines
from lexmill.models import family
from lexmill.models import folder as model_folder
from lexmill.registry import ctranslate2_export, export_checks, hugging_face
from lexmill.registry.ctranslate2_export import export_ctranslate2
from tests.registry.test_export import make

TEXTS = ["one", "a longer text </s> of several words, Grüße 東京", "x " * 60, "[SEP]"]
# A process that can have neither.
APART = """
import sys
sys.modules["lexmill"] = sys.modules["torch"] = None
import json
import ctranslate2, tokenizers

folder, texts = sys.argv[1], json.loads(sys.argv[2])
tokenizer = tokenizers.Tokenizer.from_file(f"{folder}/tokenizer.json")
tokenizer.encode_special_tokens = True
found = ctranslate2.Translator(folder, device="cpu").translate_batch(
    [one.tokens for one in tokenizer.encode_batch(texts)],
    beam_size=1,
    max_decoding_length=47,
    suppress_sequences=[["<pad>"], ["<unk>"], ["<s>"], ["<mask>"]],
)
print(json.dumps([tokenizer.decode([tokenizer.token_to_id(token) for token in one.hypotheses[0]]) for one in found]))
"""


def translator(target: Path, norm: str = "pre") -> Path:
    shape = family("transformer").tiny | {"encoder_layers": 2, "d_model": 32, "norm": norm, "max_positions": 48}
    made = make(target, "transformer", {**shape, "dropout": 0.1}, "translator")
    config, module = model_folder.load(made)
    with torch.no_grad():  # a token read shall not be the likeliest to be written again, whatever the source says
        module.get_parameter("embedding.weight").mul_(0.1)
        module.get_parameter("decoder.0.cross.output.weight").mul_(5.0)
    model_folder.save(made, config, module)
    return made


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_process_without_lexmill_gives_the_same_greedy_translations(tmp_path: Path, norm: str) -> None:
    model = translator(tmp_path / "model", norm)
    export_ctranslate2(model, tmp_path / "there", "en_de")
    done = subprocess.run(
        [sys.executable, "-c", APART, str(tmp_path / "there"), json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        check=True,
    )
    _, module = model_folder.load(model)
    search = BeamSearch(beam_size=1, max_length_extra=1000)
    ours = translate_lines(module, tokenizers.load(model / "tokenizer"), TEXTS, search, 1000)
    assert json.loads(done.stdout) == [one.text for one in ours]
    if norm == "pre":  # the other one repeats a token, whatever it reads
        assert len({one.text for one in ours}) == len(TEXTS)


def test_the_lines_of_the_card_run(tmp_path: Path) -> None:
    export_ctranslate2(translator(tmp_path / "model"), tmp_path / "there", "en_de")
    card = (tmp_path / "there" / "README.md").read_text(encoding="utf-8")
    lines = card.partition("```python\n")[2].partition("```")[0].replace("beam_size=4", "beam_size=1")
    done = subprocess.run(
        [sys.executable, "-c", lines], cwd=tmp_path / "there", capture_output=True, text=True, check=True
    )
    _, module = model_folder.load(tmp_path / "model")
    search = BeamSearch(beam_size=1, max_length_extra=1000)
    texts = ["a text", "another, longer one"]
    ours = translate_lines(module, tokenizers.load(tmp_path / "model" / "tokenizer"), texts, search, 1000)
    assert done.stdout == "".join(f"{one.text}\n" for one in ours)


def test_int8_is_smaller_and_says_how_far_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = translator(tmp_path / "model")
    for int8 in (False, True):
        export_ctranslate2(model, tmp_path / f"{int8}", "en_de", int8=int8)
    sizes = [(tmp_path / f"{int8}" / "model.bin").stat().st_size for int8 in (False, True)]
    assert sizes[1] < 0.5 * sizes[0]
    assert "in int8 the log-probabilities of 4 made texts differ by up to 0." in capsys.readouterr().err


def test_scores_that_differ_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = ctranslate2_export._write

    def another(shape: Any, tensors: dict[str, torch.Tensor], *rest: Any, **more: Any) -> None:
        write(shape, {key: value * 1.1 for key, value in tensors.items()}, *rest, **more)

    monkeypatch.setattr(ctranslate2_export, "_write", another)
    with pytest.raises(UserError, match="whose tokens CTranslate2 would score otherwise"):
        export_ctranslate2(translator(tmp_path / "model"), tmp_path / "there", "en_de")
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(("name", "kind"), [("rnn_seq2seq", "translator"), ("gpt", "language_model")])
def test_other_networks_are_refused(tmp_path: Path, name: str, kind: str) -> None:
    model = make(tmp_path / "model", name, {**family(name).tiny}, kind)
    with pytest.raises(UserError, match=f"of family '{name}'; CTranslate2 takes Transformers"):
        export_ctranslate2(model, tmp_path / "there", "made")


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize(
    "option",
    [
        {"positions": "learned"},
        {"positions": "rotary"},
        {"tied": "none"},
        {"tied": "decoder"},
        {"n_kv_head": 1},
        {"decoder_mixer": "ssru"},
    ],
)
def test_networks_that_ctranslate2_would_compute_otherwise_are_refused(
    tmp_path: Path, option: dict[str, Any], int8: bool
) -> None:
    model = make(tmp_path / "model", "transformer", {**family("transformer").tiny, **option}, "translator")
    ((key, value),) = option.items()
    with pytest.raises(UserError, match=f"no other program has such a network with {key}: {value}"):
        export_ctranslate2(model, tmp_path / "there", "made", int8=int8)
    assert not (tmp_path / "there").exists()


def test_a_translator_of_several_languages_is_refused(tmp_path: Path) -> None:
    shape = {**family("transformer").tiny}
    model = make(tmp_path / "model", "transformer", shape, "translator", target_languages=["de", "fr"])
    for write in (export_ctranslate2, hugging_face.export):
        with pytest.raises(UserError, match="a translator of several languages, asked for by a tag"):
            write(model, tmp_path / "there", "made")


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_checks, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"CTranslate2 needs ctranslate2: pip install 'lexmill\[ctranslate2\]'"):
        export_ctranslate2(tmp_path, tmp_path / "there", "made")
