"""BLEU splits the words of each target language as sacrebleu documents, from `lexmill init` to the metrics."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import pytest
import sacrebleu

from lexmill import params
from lexmill.commands.init import initialize as module
from lexmill.commands.init.entry import located
from lexmill.commands.init.reading import Reading
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.corpora.preparing.prepare import prepare
from lexmill.corpora.preparing.small import linked
from lexmill.evaluation.bootstrap import Resampling
from lexmill.evaluation.subject import Subject
from lexmill.kinds.translator import Evaluate
from lexmill.kinds.translator import evaluate as translator
from lexmill.kinds.translator.baselines import baselines
from lexmill.kinds.translator.metrics import signature, splitter
from lexmill.kinds.translator.predict import Translation

ROOT = Path(__file__).parents[3]
ROOMS = {"客厅": "living room", "厨房": "kitchen", "卧室": "bedroom", "车库": "garage", "花园": "garden"}
THINGS = {"灯": "light", "电视": "television", "空调": "air conditioning", "窗户": "window"}
DEEDS = {
    "请打开{}的{}。": "Please open the {1} in the {0}.",
    "{}里的{}现在已经关闭了。": "The {1} in the {0} is closed now.",
}
PAIRS = [
    (english.format(ROOMS[room], THINGS[thing]), chinese.format(room, thing))
    for chinese, english in DEEDS.items()
    for room in ROOMS
    for thing in THINGS
]
BY_SOURCE = {english: chinese.replace("的", "").replace("已经", "") for english, chinese in PAIRS}


@pytest.fixture
def corpus(request: pytest.FixtureRequest, tmp_path: Path) -> PreparedCorpus:
    """English-Chinese pairs as `lexmill init translate --languages en-CODE` and the stage prepare leave them."""
    root = tmp_path / "project"
    shutil.copytree(ROOT / "conf", root / "conf")
    table = root / "pairs.tsv"
    table.write_text("a\tb\n" + "".join(f"{english}\t{chinese}\n" for english, chinese in PAIRS), encoding="utf-8")
    columns = {"source": "a", "target": "b"}
    module.initialize("parallel", [table], Reading(columns), languages=f"en-{request.param}", root=root, force=True)
    chosen = params.load(root / "params.yaml").corpora["pairs"]
    with linked(located(chosen, root)) as source:
        prepare("pairs", chosen, source, root / "corpus")
    return PreparedCorpus(root / "corpus")


def translated(_module: Any, _tokenizer: Any, lines: list[str], *_: Any, **__: Any) -> list[Translation]:
    """What a translator that leaves some characters out would say."""
    return [Translation(BY_SOURCE[line], 0.0) for line in lines]


@pytest.mark.parametrize("corpus", ["zh", "zh-CN", "zh_TW", "cmn", "zho", "Chinese", "yue"], indirect=True)
def test_chinese_is_scored_as_sacrebleu_scores_it(corpus: PreparedCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "translate_lines", translated)
    evaluation = params.Evaluation(bootstrap_samples=100)
    settings = Evaluate()
    found = translator.evaluate(Subject("t", {}, settings, cast(Any, None), cast(Any, None), corpus, evaluation, 1))
    hypotheses = [row["hypothesis"] for row in found.rows]
    references = [row["reference"] for row in found.rows]
    theirs = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh", force=True).score
    assert found.metrics["bleu"] == theirs > 20
    assert sacrebleu.corpus_bleu(hypotheses, [references], force=True).score < theirs / 2
    assert "tok:zh" in found.metrics["bleu_signature"]
    (baseline,) = baselines(cast(Any, None), corpus, Resampling(samples=100, confidence=0.95, seed=1))
    assert baseline.metrics["bleu_signature"] == found.metrics["bleu_signature"]


@pytest.mark.parametrize(
    ("tokenizer", "tags"),
    {
        "13a": ["de", "en-US", "pt-BR", "sr-Latn", "vi", ""],
        "zh": ["zh", "zh-TW", "zh-Hans-CN", "yue", "wuu"],
        "char": ["ja", "ko-KR", "th", "lo", "km", "my", "bo", "dz"],
    }.items(),
)
def test_the_tokenizer_follows_from_the_language_alone(tokenizer: str, tags: list[str]) -> None:
    """Whatever is installed; the country or script changes nothing."""
    assert all(f"|tok:{tokenizer}|" in signature("bleu", splitter(tag)) for tag in tags)
