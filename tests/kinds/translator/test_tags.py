"""Several target languages in one translator: a tag before the source says which."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import typer
import yaml
from typer.testing import CliRunner

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import UserError, UserErrors
from lexmill.compute.execution import Execution
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.mixture import open_train, write_mixture
from lexmill.data.shards import TokenShards
from lexmill.evaluation.subject import Subject
from lexmill.kinds.translator import Evaluate, evaluate
from lexmill.kinds.translator.batches import ParallelBatches
from lexmill.kinds.translator.command import add
from lexmill.kinds.translator.predict import Predictor
from lexmill.kinds.translator.tags import tag
from lexmill.kinds.translator.task import TranslationTask
from lexmill.kinds.verbs import Use
from lexmill.models import folder as model_folder
from lexmill.params.optimizers import AdamW, LinearSchedule
from lexmill.stages import train
from lexmill.tokenizers import Tokenizer, kinds
from lexmill.training.engine import fit
from lexmill.training.settings import TrainingSettings
from tests.kinds.translator import test_training
from tests.kinds.translator.test_task import network, random_digits, recipe, shards
from tests.support.prepared import write_prepared
from tests.support.small_project import whole

STEPS = 500
RULES = {"de": lambda text: text, "fr": lambda text: text[::-1]}


def letters(characters: str = "0123456789<>defr") -> Tokenizer:
    return Tokenizer(kinds.assemble("character", kinds.character_model(list(characters)), lowercase=False), "0" * 64)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    """A translator that has seen digits copied where `<2de>` and reversed where `<2fr>` stands before them."""
    folder, tokenizer, rng = tmp_path_factory.mktemp("tags"), letters(), random.Random(0)
    members = {}
    for language, rule in RULES.items():
        texts = [random_digits(rng, 5) for _ in range(2000)]
        pairs = {"train": [(text, rule(text)) for text in texts], "valid": [("123456", rule("123456"))]}
        members[language] = (shards(folder / language, tokenizer, pairs), 1.0)
    (folder / "both").mkdir()
    write_mixture(folder / "both", members)
    begins = [tag(tokenizer, language) for language in RULES]
    sides = (open_train(folder / "both", "source"), open_train(folder / "both", "target"))
    valid = (TokenShards(folder / "fr", "valid", "source"), TokenShards(folder / "fr", "valid", "target"))
    module = network(tokenizer.vocab_size)
    task = TranslationTask(
        module,
        ParallelBatches(*sides, 768, 0, 32, begins=begins),
        ParallelBatches(*valid, 768, 0, 32, begins=begins[1:]),
        recipe(),
        STEPS,
    )
    settings = TrainingSettings(
        optimizer=AdamW("adamw", lr=0.008, beta2=0.98, weight_decay=0.0),
        schedule=LinearSchedule("linear"),
        warmup_steps=40,
        steps=STEPS,
        seed=0,
        validate_every=STEPS,
    )
    execution = Execution(threads=1, checkpoint_root=str(folder / "checkpoints"))
    fit(task, settings, execution, name="tags", identity={})
    config = {"kind": "translator", "evaluate": {"beam": {"beam_size": 2}}, "target_languages": list(RULES)}
    return Predictor("tags", config, module.eval(), tokenizer)


def unseen(count: int) -> list[str]:
    rng = random.Random(1)
    return [random_digits(rng, 5) for _ in range(count)]


def test_one_translator_writes_the_language_that_it_is_asked_for(learned: Predictor) -> None:
    for language, rule in RULES.items():
        found = learned.predict(unseen(200), {"to": language})
        assert sum(made == rule(text) for made, text in zip(found, unseen(200), strict=True)) > 170
    assert learned.predict(unseen(20)) == learned.predict(unseen(20), {"to": "de"})  # the first
    with pytest.raises(UserError, match="to: 'it' is no language that it writes; there are de, fr"):
        learned.predict(["12"], {"to": "it"})


def test_a_corpus_is_evaluated_in_its_own_target_language(learned: Predictor, tmp_path: Path) -> None:
    records = [{"source": text, "target": text[::-1]} for text in unseen(60)]
    write_prepared(tmp_path / "corpus", "parallel", {"test": records}, ["en", "fr"])
    corpus, evaluation = PreparedCorpus(tmp_path / "corpus"), params.Evaluation(bootstrap_samples=100)
    subject = Subject("tags", learned.config, Evaluate(), learned.module, learned.tokenizer, corpus, evaluation, 1)
    rows = evaluate.rows(subject)
    assert [row["hypothesis"] for row in rows] == learned.predict(
        [record["source"] for record in records], {"to": "fr", **vars(Evaluate().beam)}
    )
    assert sum(row["hypothesis"] == row["reference"] for row in rows) > 50


def test_the_command_takes_the_language(learned: Predictor) -> None:
    class Terminal:
        def model(self, kind: str, name: str | None, precision: str) -> Predictor:
            return learned

        def texts(self, given: Sequence[str] | None) -> Iterable[str]:
            return given or ()

        def show(self, lines: Iterable[str]) -> None:
            for line in lines:
                print(line)

    app = typer.Typer()
    add(app, cast(Use, Terminal()))
    said = CliRunner().invoke(app, ["2345", "678", "--to", "fr"], catch_exceptions=False).stdout
    assert said.split() == learned.predict(["2345", "678"], {"to": "fr"})


def test_a_model_of_one_language_takes_none() -> None:
    plain = Predictor("plain", {"kind": "translator", "evaluate": {}}, cast(Any, None), cast(Any, None))
    with pytest.raises(UserErrors, match="to: a translator takes no such param"):
        plain.translations(["12"], {"to": "fr"})


def test_a_tokenizer_that_cannot_write_a_tag_is_refused() -> None:
    assert tag(letters(), "de") == letters().encode("<2de>")
    with pytest.raises(UserError, match="the tokenizer cannot write the tag <2it>"):
        tag(letters(), "it")


def test_the_tag_counts_as_part_of_the_source(tmp_path: Path) -> None:
    folder = shards(tmp_path / "p", letters(), {"train": [("12", "12"), ("123456", "1")]})
    source, target = TokenShards(folder, "train", "source"), TokenShards(folder, "train", "target")
    begin = tag(letters(), "de")
    batches = ParallelBatches(source, target, 100, 0, 8, begins=[begin], redraw=lambda ids, seed: [*ids, ids[-1]])
    assert batches.dropped == 1  # 5 of the tag, 6 digits, the end
    (batch,) = batches.evaluation_batches()
    assert batch.source.tolist() == [[*begin, *source.document(0).tolist()]]
    assert batches.batch(0).source.tolist() == [[*begin, *source.document(0).tolist()]]  # one more would not fit
    assert batches.batch(0).target_out.tolist() == [[*letters().encode("122"), letters().eos_id]]


def test_the_stage_keeps_the_languages_with_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n")
    Path("xavier.yaml").write_text("name: xavier\nembedding_std: 0\n")
    toy = {**test_training.MODEL, "data": {**test_training.MODEL["data"], "target_languages": {"pairs": "de"}}}
    Path("params.yaml").write_text(yaml.safe_dump(whole({**test_training.PARAMS, "models": {"toy": toy}})))
    test_training.make_tokenizer("abcd<2e>")
    test_training.encode()
    train.main("toy")
    config, _ = model_folder.load(layout.model("toy"))
    assert config["target_languages"] == ["de"]


@pytest.mark.parametrize("given", [{"pairs": "fr"}, {"other": "de"}, {"pairs": "de", "other": "de"}])
def test_languages_that_are_not_those_of_the_corpora_are_refused(given: dict[str, str]) -> None:
    toy = {**test_training.MODEL, "data": {**test_training.MODEL["data"], "target_languages": given}}
    with pytest.raises(UserErrors, match=r"toy.data.target_languages: it learns from other pairs; write \{pairs: de\}"):
        params.parse(whole({**test_training.PARAMS, "models": {"toy": toy}}))
