"""The kind of translators, started from translators of `transformers`: trained, stopped, evaluated, exported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pytest
import torch
import transformers
import yaml

from lexmill import params, tokenizers
from lexmill.base import layout, storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.base.storage import sha256_folder
from lexmill.commands import check
from lexmill.config.compose import compose
from lexmill.corpora.fetching.checkpoint_folder import fetch_checkpoint
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.encoding import encode_corpus
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator.predict import Predictor, together, translate_lines
from lexmill.kinds.translator.task import TranslationTask
from lexmill.models import folder, pretrained
from lexmill.models.declaration import unlike
from lexmill.params.corpora import FileSource
from lexmill.params.size import more_than
from lexmill.registry import package
from lexmill.registry.ctranslate2_export import export_ctranslate2
from lexmill.registry.hugging_face import export
from lexmill.registry.loader import load_package
from lexmill.registry.logged_model import LOADER, signature
from lexmill.runner import graph
from lexmill.stages import baseline, evaluate, import_tokenizer, train
from tests.support.once import init_repository
from tests.support.prepared import write_prepared
from tests.support.small_project import ROOT, whole
from tests.support.tiny_translators import KINDS, PREFIXES, make_tiny_translator

WORDS = {"the": "die", "mill": "Mühle", "turns": "dreht", "water": "Wasser", "good": "gut", "slowly": "langsam"}
RECIPE: dict[str, Any] = {
    "method": "gradient",
    "optimizer": {"name": "adamw", "lr": 0.01},
    "schedule": {"name": "linear", "warmup": "10 %"},
    "length": "4 steps",
    "batch": 128,
    "validate_every": "2 steps",
}


def pairs(count: int, seed: int) -> list[dict[str, str]]:
    """Sentences of one to four words, and each word's translation."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words = generator.choice(list(WORDS), generator.integers(1, 5)).tolist()
        found.append({"source": " ".join(words), "target": " ".join(WORDS[word] for word in words)})
    return found


def prepare(kind: str, **recipe: Any) -> None:
    """params.yaml, the corpus, the checkpoint, its tokenizer and the encoded pairs, in the present folder."""
    make_tiny_translator(layout.checkpoint("tiny"), kind, list(WORDS), list(WORDS.values()))
    _, shape, _ = pretrained.read_shape(layout.checkpoint("tiny"), "hugging_face_translator")
    model = {
        "kind": "translator",
        "family": "hugging_face_translator",
        "shape": {**shape, **PREFIXES.get(kind, {}), "dropout": 0.0},
        "data": {"corpus": "made", "tokenizer": "tiny"},
        "start": "artifacts/checkpoints/tiny",
        "recipe": RECIPE | recipe,
        "evaluate": {},
    }
    source = {"kind": "file", "paths": ["x"]}
    reader = {"format": "parallel_text", "source": ["a"], "target": ["b"]}
    corpus = {"kind": "parallel", "languages": ["en", "de"], "source": source, "reader": reader}
    data = {
        "experiment": "test",
        "data_seed": 1,
        "training_seed": 1,
        "corpora": {"made": corpus},
        "checkpoints": {"tiny": {"source": source}},
        "models": {"one": model},
        "evaluation": {"bootstrap_samples": 100},
    }
    Path("params.yaml").write_text(yaml.safe_dump(whole(data)), encoding="utf-8")
    import_tokenizer.main("tiny")
    splits = {"train": pairs(160, 0), "valid": pairs(24, 1), "test": pairs(24, 2)}
    write_prepared(layout.corpus("made"), "parallel", splits, ("en", "de"))
    prepared = PreparedCorpus(layout.corpus("made"))
    with storage.new_folder(layout.tokens("made", "tiny")) as target:
        records = {split: list(prepared.records(split)) for split in ("train", "valid")}
        encode_corpus(target, "parallel", records, tokenizers.load(layout.tokenizer("tiny")), "0" * 64)


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n", encoding="utf-8")
    return tmp_path


def model() -> tuple[dict[str, Any], Any, tokenizers.Tokenizer]:
    config, module = folder.load(layout.model("one"))
    return config, module, tokenizers.load(layout.model("one") / "tokenizer")


def measured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(layout.metrics(name, "one").read_text())
    return found


@pytest.mark.usefixtures("workspace")
@pytest.mark.parametrize("kind", list(KINDS))
def test_it_learns_pairs_from_its_pretrained_weights(kind: str) -> None:
    prepare(kind, length="150 steps", validate_every="1 steps", label_smoothing=0.0, keep="best")
    assert params.load().models["one"].family == "hugging_face_translator"
    train.main("one")
    losses = [float(row.split(",")[4]) for row in layout.curve("one").read_text().splitlines()[1:] if row.split(",")[4]]
    assert min(losses) < losses[0] / 2, "after the first step"
    evaluate.main("one")
    if kind in ("marian", "nllb"):  # a T5 that was never pre-trained needs longer to align
        assert measured("evaluate")["test"]["chrf"] > 60


@pytest.mark.usefixtures("workspace")
def test_a_stopped_training_ends_like_a_straight_one(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare("nllb", length="8 steps", decided_by="chrf")
    train.main("one")
    straight = sha256_folder(layout.model("one")), layout.curve("one").read_bytes()
    Path("execution.yaml").write_text("threads: 1\ncheckpoint_seconds: 0\n", encoding="utf-8")
    original = TranslationTask.batch

    def stop(task: TranslationTask, step: int, rank: int, world: int) -> Any:
        if step == 5:
            raise RuntimeError("pulled plug")
        return original(task, step, rank, world)

    with monkeypatch.context() as patch:
        patch.setattr(TranslationTask, "batch", stop)
        with pytest.raises(RuntimeError, match="pulled plug"):
            train.main("one")
    train.main("one")
    assert (sha256_folder(layout.model("one")), layout.curve("one").read_bytes()) == straight


@pytest.mark.parametrize("kind", list(KINDS))
def test_an_export_gives_the_same_tokens_logits_and_translations_there(workspace: Path, kind: str) -> None:
    prepare(kind, length="10 epochs")
    train.main("one")
    export(layout.model("one"), workspace / "export", "one")
    config, module, tokenizer = model()
    there = transformers.AutoTokenizer.from_pretrained(workspace / "export")
    theirs, loading = transformers.AutoModelForSeq2SeqLM.from_pretrained(workspace / "export", output_loading_info=True)
    assert not any(loading.values()), loading
    lines = ["the mill turns slowly", "water", "good water"]
    batch = there(lines, padding=True, return_tensors="pt")
    begins = module.begins
    ids = tokenizer.encode_batch(lines)
    for row, real, own in zip(batch["input_ids"], batch["attention_mask"], ids, strict=True):
        assert row[real.bool()].tolist() == [*begins["source"], *own, tokenizer.eos_id]
    for line, own in zip(lines, ids, strict=True):
        source, target = torch.tensor([[*own, tokenizer.eos_id]]), torch.tensor([[tokenizer.bos_id, 7, 9, 8]])
        mask = torch.ones_like(source, dtype=torch.bool)
        begun = torch.tensor([[tokenizer.bos_id, *begins["target"], 7, 9, 8]])
        with torch.no_grad():
            wanted = theirs(**there(line, return_tensors="pt"), decoder_input_ids=begun).logits
            torch.testing.assert_close(module(source, mask, target)[0], wanted[0, -4:], atol=1e-4, rtol=0)
    found = [one.text for one in translate_lines(module, tokenizer, lines, BeamSearch(beam_size=1), 1000)]
    never = [[one] for one in tokenizer.special.never_written]
    made = theirs.generate(**batch, bad_words_ids=never or None, num_beams=1, do_sample=False)
    assert found == [text.strip() for text in there.batch_decode(made, skip_special_tokens=True)]
    fetch_checkpoint(FileSource("file", ("export/*",)), workspace, workspace / "again")
    again = pretrained.read(workspace / "again", config["family"])
    first = pretrained.read(layout.model("one"))
    assert unlike(config["family"], config["shape"], again.family, again.shape) == {}
    assert all(again.state[name].equal(tensor) for name, tensor in first.state.items())
    (workspace / "imported").mkdir()
    other = tokenizers.imported.import_tokenizer(workspace / "again", workspace / "imported")
    assert other.special == tokenizer.special
    assert other.encode_batch(lines) == ids
    assert other.target.encode("die Mühle") == tokenizer.target.encode("die Mühle")
    with pytest.raises(UserError, match="export it --to transformers, and convert that folder with"):
        export_ctranslate2(layout.model("one"), workspace / "ctranslate2", "one")


@pytest.mark.usefixtures("workspace")
def test_its_package_translates_as_the_model_does_and_so_does_mlflow() -> None:
    prepare("nllb", length="10 epochs")  # with prefixes
    train.main("one")
    evaluate.main("one")
    baseline.main("translator-made")
    _, module, tokenizer = model()
    lines = ["the mill turns slowly", "", "good water"]
    wanted = [one.text for one in translate_lines(module, tokenizer, lines, BeamSearch(beam_size=2), 1000)]
    assert [bool(text) for text in wanted] == [True, False, True]
    written = package.write(params.load(), "one")
    description = package.verify(written)
    mlflow.pyfunc.save_model("mlflow", loader_module=LOADER, data_path=str(written), signature=signature(description))
    for loaded in (load_package(written), mlflow.pyfunc.load_model("mlflow")):
        assert loaded.predict(lines, {"beam_size": 2}) == wanted


def test_an_ensemble_of_other_prefixes_is_refused(workspace: Path) -> None:
    prepare("nllb", length="2 steps")
    train.main("one")
    config, module, tokenizer = model()
    config["evaluate"] = {}
    mirrored = {**config, "begins": {"source": config["begins"]["target"], "target": config["begins"]["source"]}}
    one, two = (Predictor(name, own, module, tokenizer) for name, own in (("one", config), ("two", mirrored)))
    assert len(together([one, one]).predict(["the mill"])) == 1
    with pytest.raises(UserError, match="'two' has other prefixes than 'one'"):
        together([one, two])


@pytest.mark.usefixtures("workspace")
def test_what_needs_begin_and_end_tokens_reads_its_tokenizer() -> None:
    """A search for given phrases, a prefix, draws, coverage and n best."""
    prepare("marian", length="40 epochs", label_smoothing=0.0)
    train.main("one")
    config, module, tokenizer = model()
    predictor = Predictor("one", config | {"evaluate": {}}, module, tokenizer)
    [[phrased]] = predictor.translations(["the mill turns"], {}, lexicon=[("mill", "Wasser")])
    assert "Wasser" in phrased.text
    [[begun]] = predictor.translations(["the mill turns"], {}, prefix="gut")
    assert begun.text.startswith("gut")
    assert len(predictor.translations(["the mill"], {}, n_best=3)[0]) == 3
    drawn = predictor.predict(["the mill", "water"], {"temperature": 1.0, "seed": 3})
    assert drawn == predictor.predict(["the mill", "water"], {"temperature": 1.0, "seed": 3})
    assert predictor.predict(["water"], {"coverage_penalty": 0.2}) != [""]


SIZES = {"encoder_layers": 2, "decoder_layers": 2, "n_head": 2, "d_model": 16, "d_ffn": 24, "max_positions": 40}
SIZES_OF = {
    "opus_mt": ("marian", {"pad_token_id": 0}),
    "nllb": ("nllb", {"options.attention_dropout": 0.3}),
    "t5": ("t5", {"options.d_kv": 6}),
}


@pytest.mark.parametrize("preset", list(SIZES_OF))
def test_a_preset_composes_and_is_checked_against_the_checkpoint(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line of the preset's comment, with the sizes of a tiny checkpoint in the place of the published one."""
    init_repository(tmp_path)
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    for name in ("dvc.yaml", "sources.lock.yaml"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LEXMILL_EXECUTION", raising=False)
    kind, own = SIZES_OF[preset]
    make_tiny_translator(Path("downloads", preset), kind, list(WORDS), list(WORDS.values()))
    pad = pretrained.read_shape(Path("downloads", preset), "hugging_face_translator")[1]["pad_token_id"]

    def compose_with(**changes: Any) -> None:
        sizes = {**SIZES, **own, "pad_token_id": pad, **changes}
        line = [
            f"+model@models.{preset}={preset}",
            *(f"models.{preset}.shape.{key}={one}" for key, one in sizes.items()),
        ]
        Path("params.yaml").write_text(compose(line, ROOT), encoding="utf-8")

    compose_with()
    assert check.gather(check._file_checks()) == []
    assert (more_than(1, params.load().models[preset], 0) or 0) > 3000, "it is counted before its vocabulary is known"
    if preset == "nllb":
        check.check()  # reads the DAG, which is dear
        assert "params.yaml, execution settings, DAG, files and disk are in order" in capsys.readouterr().out
        needs = {stage.name: stage.needs for stage in graph.read().stages}
        assert "checkpoint@nllb" in needs["import_tokenizer@nllb"]
        assert {"checkpoint@nllb", "encode@home_assistant-nllb", "import_tokenizer@nllb"} < {*needs["train@nllb"]}
        with pytest.raises(UserErrors, match=r"models\.nllb\.shape\.source_prefix: missing: an m2m_100 reads"):
            compose_with(source_prefix="''")
    compose_with(d_ffn=25)
    (error,) = [one for one in check.gather(check._file_checks()) if preset in one]
    assert f"models.{preset}.start: " in error
    assert "has d_ffn 24, this model has d_ffn 25" in error
