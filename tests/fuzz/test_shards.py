"""Our own shards and checkpoints, damaged: found by header, size or hash; the checkpoint before is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.prepare import prepare
from lexmill.data.mixture import open_train, open_valid, write_mixture
from lexmill.data.shards import TokenShards
from lexmill.training.checkpoints import CheckpointFolder
from tests.corpora.made_sources import corpus_of, make_source
from tests.data.made_shards import write_shards
from tests.fuzz.budget import empty_folder, fuzzed, hostile_json, mutated, outcome

DOCUMENTS = [[5, 6, 7], [8, 9], [10] * 40]


def as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def read_shards(folder: Path) -> list[list[int]]:
    """As a training does: every byte is checked first."""
    shards = open_train(folder)
    shards.verify()
    assert isinstance(shards, TokenShards)
    return [shards.document(i).tolist() for i in range(len(shards))]


@pytest.mark.parametrize("name", ["train-text-00000.bin", "train-text.offsets"])
def test_a_changed_shard_is_never_read(name: str) -> None:
    with empty_folder() as made:
        write_shards(made / "t", {"train": {"text": DOCUMENTS}})
        path = made / "t" / name
        whole, expected = path.read_bytes(), read_shards(made / "t")

        @fuzzed(80)
        @given(mutated([whole]))
        def check(data: bytes) -> None:
            path.write_bytes(data)
            found: list[Any] = []
            said = outcome(lambda: found.append(read_shards(made / "t")))
            # The rest of the header after its last field is the only part without a meaning.
            assert said or found == [expected], data

        check()


def test_any_manifest_ends_in_a_message() -> None:
    with empty_folder() as made:
        write_shards(made / "t", {"train": {"text": DOCUMENTS}, "valid": {"text": DOCUMENTS}})
        path = made / "t" / "manifest.json"
        whole = path.read_bytes()

        @fuzzed(120)
        @given(hostile_json(json.loads(whole)) | mutated([whole]))
        def check(value: Any) -> None:
            path.write_bytes(as_bytes(value))
            outcome(lambda: (read_shards(made / "t"), open_valid(made / "t", "x")))

        check()


def test_any_manifest_of_a_mixture_ends_in_a_message() -> None:
    with empty_folder() as made:
        write_shards(made / "t", {"train": {"text": DOCUMENTS}, "valid": {"text": DOCUMENTS}})
        (made / "mixed").mkdir()
        write_mixture(made / "mixed", {"a": (made / "t", 1.0), "b": (made / "t", 2.0)})
        path = made / "mixed" / "manifest.json"
        whole = path.read_bytes()

        @fuzzed(60)
        @given(hostile_json(json.loads(whole)) | mutated([whole]))
        def check(value: Any) -> None:
            path.write_bytes(as_bytes(value))
            outcome(lambda: (open_train(made / "mixed").verify(), open_valid(made / "mixed", "a")))

        check()


def test_any_prepared_corpus_ends_in_a_message() -> None:
    with empty_folder() as made:
        corpus = corpus_of("text", {"format": "text", "document": "line"}, splits={"valid": 0.2, "test": 0.2})
        source = make_source(made / "source", {"a": "".join(f"text {i}\n" for i in range(60))})
        prepare("made", corpus, source, made / "out")
        files = sorted(path for path in (made / "out").rglob("*") if path.is_file())
        whole = {path: path.read_bytes() for path in files}

        def read() -> None:
            found = PreparedCorpus(made / "out")
            for split in ("train", "valid", "test"):
                assert found.count(split) is not None
                list(found.records(split))

        @fuzzed(100)
        @given(st.data())
        def check(data: st.DataObject) -> None:
            path = data.draw(st.sampled_from(files))
            hostile = hostile_json(json.loads(whole[path])) if path.name == "manifest.json" else st.nothing()
            path.write_bytes(as_bytes(data.draw(hostile | mutated([whole[path]]))))
            outcome(read)
            path.write_bytes(whole[path])

        check()


# ---------------------------------------------------------------- checkpoints of a training


def saved(root: Path) -> CheckpointFolder:
    folder = CheckpointFolder(root, "train-x", {"seed": 1})
    for step in (10, 20):
        tensors = {"weights": {"a": torch.full((3,), float(step)), "b": torch.arange(step)}}
        folder.save(step, {"length": 100, "curve": [step]}, tensors)
    return folder


def newest(folder: CheckpointFolder) -> int | None:
    """Find the newest sound checkpoint, and read all of it."""
    with folder.locked():
        step = folder.latest(lambda state: state["length"] == 100)
    if step is not None:
        found = folder.open(step)
        assert found.state["step"] == step
        assert found.read("weights")["a"].tolist() == [float(step)] * 3
        np.testing.assert_array_equal(found.read("weights")["b"].numpy(), np.arange(step))
    return step


@pytest.mark.parametrize("name", ["weights.safetensors", "state.json", "COMPLETE"])
def test_of_a_damaged_checkpoint_the_one_before_is_used(tmp_path: Path, name: str) -> None:
    folder = saved(tmp_path)
    path = folder.path / "step-00000020" / name
    whole = path.read_bytes()

    @fuzzed(60)
    @given(mutated([whole]) | hostile_json({"step": 20, "files": {}}).map(as_bytes))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        found: list[int | None] = []
        assert outcome(lambda: found.append(newest(folder))) == ""
        assert found == [20 if data == whole else 10] or (name == "COMPLETE" and found == [20])

    check()
    path.unlink()
    assert newest(folder) == 10


def test_strangers_beside_the_checkpoints_are_left_alone(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    (folder.path / "step-new").mkdir()
    (folder.path / "step-99999999").write_text("a file")
    (folder.path / "lock").write_bytes(b"\xff\0not a lock")
    (folder.path / "identity.json").write_bytes(b"[" * 100_000)
    assert newest(folder) == 20
    assert CheckpointFolder(tmp_path, "train-x", {"seed": 2}).relatives(lambda one: {}) == []


def test_a_forged_state_is_damage(tmp_path: Path) -> None:
    """Its hash is right, but it lacks what a training needs."""
    from lexmill.base.storage import read_json, sha256_file, write_json

    folder = saved(tmp_path)
    step = folder.path / "step-00000020"
    for state in ([], {}, {"identity": None}, {"identity": {"seed": 1}, "length": None}, {"identity": {"seed": 1}}):
        write_json(step / "state.json", state)
        mark = read_json(step / "COMPLETE")
        mark["files"]["state.json"] = sha256_file(step / "state.json")
        write_json(step / "COMPLETE", mark)
        assert newest(folder) == 10


def test_a_lock_that_is_a_folder_is_one_sentence(tmp_path: Path) -> None:
    folder = saved(tmp_path)
    (folder.path / "lock").mkdir()
    assert "lock: cannot be read or written: Is a directory" in outcome(lambda: newest(folder))
