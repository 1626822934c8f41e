"""The stages tokenizer and encode: a prepared corpus in, a tokenizer, shards and metrics out; errors end with 2."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lexmill.base import layout, storage
from lexmill.base.errors import UserError
from lexmill.data.shards import TokenShards
from lexmill.stages import encode, tokenizer
from lexmill.tokenizers import load
from tests.support.small_project import whole

PARAMS = """
experiment: made
data_seed: 1
training_seed: 1
corpora:
  plays:
    kind: text
    source: {kind: file, paths: [plays.txt]}
    reader: {format: text}
  pairs:
    kind: parallel
    source: {kind: file, paths: [pairs.tsv]}
    reader: {format: tsv, source: en, target: de}
    languages: [en, de]
  mails:
    kind: labelled
    source: {kind: file, paths: [mails.csv]}
    reader: {format: csv, text: body, label: queue}
tokenizers:
  small: {corpus: plays, kind: bpe, vocab_size: 300}
  joint: {corpus: pairs, kind: unigram, vocab_size: 90}
  mail: {corpus: mails, kind: wordpiece, vocab_size: 5000, lowercase: true}
models:
  writer:
    kind: language_model
    family: gpt
    shape: {n_layer: 1, n_head: 1, d_model: 8, context: 8}
    data: {corpus: plays, train: plays, tokenizer: small}
    start: conf/initialization/gpt2.yaml
    recipe: &recipe
      method: gradient
      optimizer: {name: adamw, lr: 0.1}
      schedule: {name: constant}
      length: 1 steps
      batch: 8
    evaluate: {}
  interpreter:
    kind: translator
    family: transformer
    shape: {encoder_layers: 1, decoder_layers: 1, n_head: 1, d_model: 8, d_ffn: 8}
    data: {corpus: pairs, tokenizer: joint}
    start: conf/initialization/transformer.yaml
    recipe: *recipe
    evaluate: {}
"""
RECORDS = {
    "plays": ("text", [{"text": f"Enter the king.\nExit {name}, weeping."} for name in ("Ann", "Bob", "Cé")]),
    "pairs": ("parallel", [{"source": f"the {n}", "target": f"das {n}"} for n in ("mill", "river", "old mill")]),
    "mails": ("labelled", [{"text": "Printer BROKEN again", "label": "it"}, {"text": "More pay", "label": "hr"}]),
}


def prepared(name, kind, records):
    """A prepared corpus with the same records in each split."""
    folder = layout.corpus(name)
    splits = {}
    for split in ("train", "valid", "test"):
        lines = [json.dumps({"id": str(i), "group": str(i), **r}, ensure_ascii=False) for i, r in enumerate(records)]
        data = "".join(line + "\n" for line in lines).encode()
        storage.write_bytes(folder / f"{split}-00000.jsonl", data)
        splits[split] = {
            "records": len(records),
            "groups": len(records),
            "characters": sum(len(r[key]) for r in records for key in r if key != "label"),
            "bytes": 0,
            "words": 0,
            "shards": [{"path": f"{split}-00000.jsonl", "records": len(records), "bytes": len(data), "sha256": ""}],
        }
    manifest = {"kind": kind, "unit": "document", "languages": ["en"], "licence": "", "splits": splits}
    storage.write_json(folder / "manifest.json", manifest)


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(yaml.safe_dump(whole(yaml.safe_load(PARAMS))))
    storage.write_text("conf/execution/local.yaml", "accelerator: cpu\n")
    for name, (kind, records) in RECORDS.items():
        prepared(name, kind, records)
    return tmp_path


def test_text_becomes_a_tokenizer_and_shards(workspace):
    tokenizer.main("small")
    encode.main("plays-small")
    trained = load(layout.tokenizer("small"))
    shards = TokenShards(layout.tokens("plays", "small"), "test")
    assert [trained.decode(shards.document(i)) for i in range(3)] == [r["text"] for r in RECORDS["plays"][1]]
    assert shards.tokenizer_fingerprint == trained.fingerprint
    assert shards.corpus_fingerprint == storage.sha256_file(layout.corpus("plays") / "manifest.json")
    found = storage.read_json(layout.metrics("tokenizer", "small"))
    assert found["round_trip_failures"] == found["unknown"] == 0
    assert found["vocab_size"] == trained.vocab_size
    assert found["valid"]["bytes_per_token"] > 1
    counted = storage.read_json(layout.metrics("encode", "plays-small"))
    assert counted["test"]["tokens"] == len(shards.tokens) == found["test"]["tokens"] + 3


def test_a_joint_tokenizer_sees_both_sides(workspace):
    tokenizer.main("joint")
    encode.main("pairs-joint")
    vocabulary = load(layout.tokenizer("joint")).backend.get_vocab()
    assert {"the", "das"} <= set(vocabulary)
    folder = layout.tokens("pairs", "joint")
    assert len(TokenShards(folder, "train", "source")) == len(TokenShards(folder, "train", "target")) == 3


def test_a_vocabulary_that_the_text_cannot_fill_is_said(workspace, capsys):
    tokenizer.main("mail")
    assert "5000 were allowed" in capsys.readouterr().err
    assert storage.read_json(layout.metrics("tokenizer", "mail"))["vocab_size"] < 200


def test_running_again_gives_the_same_bytes(workspace):
    hashes = []
    for _ in range(2):
        tokenizer.main("joint")
        encode.main("pairs-joint")
        folders = (layout.tokenizer("joint"), layout.tokens("pairs", "joint"), layout.METRICS)
        hashes.append([storage.sha256_folder(folder) for folder in folders])
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize(
    ("stage", "name", "message"),
    [
        (tokenizer, "smal", "tokenizers.smal is not in params.yaml, did you mean 'small'?"),
        (encode, "plays-smal", "encodings.plays-smal is not in params.yaml, did you mean 'plays-small'?"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_nearest(workspace, stage, name, message):
    with pytest.raises(UserError, match=message):
        stage.main(name)


def test_a_missing_tokenizer_leaves_nothing_behind(workspace):
    with pytest.raises(UserError, match="run the tokenizer stage first"):
        encode.main("plays-small")
    assert not (layout.ARTIFACTS / "tokens").exists()


def test_an_error_of_the_user_ends_the_process_with_2(workspace):
    prepared("plays", "text", [])
    environment = {name: value for name, value in os.environ.items() if name not in ("DVC_STAGE", "LEXMILL_EXECUTION")}
    command = [sys.executable, "-m", "lexmill.stages.tokenizer", "small"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2, done.stderr
    assert "holds no text to train a tokenizer on" in done.stderr
    assert "Traceback" not in done.stderr
    assert not layout.tokenizer("small").exists()
