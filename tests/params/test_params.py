"""params.yaml: the committed file, its faults, and conf/ that composes it."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base.errors import UserError, UserErrors
from lexmill.compute.execution import load_execution
from lexmill.config.compose import compose, write_params
from lexmill.config.undoing import undone
from lexmill.params import Length, load, parse, read_yaml

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted(path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml"))


def plain() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))


def as_plain(value: Any) -> Any:
    """Dataclasses and tuples back to what YAML holds."""
    if isinstance(value, Length):
        return str(value)
    if dataclasses.is_dataclass(value):
        return {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: as_plain(inner) for key, inner in value.items()}
    return [as_plain(inner) for inner in value] if isinstance(value, tuple) else value


def test_the_committed_file_is_the_composed_default() -> None:
    assert (ROOT / "params.yaml").read_text(encoding="utf-8") == compose((), ROOT)
    assert undone((), ROOT) == []


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_has_no_fault_and_leaves_nothing_to_a_default_in_code(experiment: str) -> None:
    """A default that only the code holds could change a result without DVC seeing it."""
    composed = yaml.safe_load(compose([f"experiment={experiment}"], ROOT))
    assert composed["experiment"] == experiment
    assert as_plain(parse(composed)) == composed


def group_choices() -> list[str]:
    slots = {
        "translator": "translators.en_de",
        "classifier": "classifiers.sentiment",
    }
    return [
        f"{group}@{slot}={path.stem}"
        for group, slot in slots.items()
        for path in sorted((ROOT / "conf" / group).glob("*.yaml"))
    ]


@pytest.mark.parametrize("choice", group_choices())
def test_every_choice_composes(choice: str) -> None:
    parse(yaml.safe_load(compose([choice], ROOT)))


def test_one_more_entry_is_one_more_model() -> None:
    text = compose(["+model@models.second=gpt_small"], ROOT)
    assert parse(yaml.safe_load(text)).model_names == ["gpt", "lstm", "second", "sentiment", "en_de"]


def test_a_misspelt_key_and_all_other_faults_come_at_once() -> None:
    data = plain()
    data["language_models"]["gpt"]["lenght"] = 3
    data["language_models"]["gpt"]["shape"]["n_head"] = 5
    data["translators"]["en_de"]["tokenizer"] = "home_assistant_bp"
    data["classifiers"]["sentiment"]["corpus"] = "shakespeare"
    data["tokenizers"]["shakespeare_bpe"]["corpus"] = "shakspere"
    with pytest.raises(UserErrors) as caught:
        parse(data)
    assert sorted(caught.value.faults) == [
        "params.yaml: classifiers.sentiment.corpus: 'shakespeare' is a text corpus, a labelled one is needed",
        "params.yaml: language_models.gpt.lenght: unknown key, did you mean 'length'?",
        "params.yaml: language_models.gpt.shape.d_model: 192 is not a multiple of n_head (5)",
        "params.yaml: tokenizers.shakespeare_bpe.corpus: there is no corpus 'shakspere', did you mean 'shakespeare'?",
        "params.yaml: translators.en_de.tokenizer: there is no tokenizer 'home_assistant_bp',"
        " did you mean 'home_assistant_bpe'?",
    ]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda d: d["language_models"]["gpt"].update(batch_tokens=1000), "is not a multiple of shape.context"),
        (lambda d: d["language_models"]["gpt"]["schedule"].update(warmup="1000000 steps"), "must be below length"),
        (lambda d: d["encodings"].pop("shakespeare"), "is not encoded with tokenizer"),
        (lambda d: d["encodings"].update(again=d["encodings"]["shakespeare"]), "same corpus and tokenizer"),
        (lambda d: d["corpora"]["shakespeare"].update(kind="labelled"), "cannot give a labelled corpus"),
        (lambda d: d["translators"].update(gpt=d["translators"]["en_de"]), "language_models has an entry of that name"),
        (
            lambda d: d["baselines"]["translator"].update(movie_reviews=d["baselines"]["translator"]["home_assistant"]),
            "baselines.translator.movie_reviews: baselines.classifier has an entry of that name",
        ),
        (
            lambda d: d["baselines"]["classifier"].update({"a/b": {"corpus": "movie_reviews"}}),
            "baselines.classifier.a/b: a name",
        ),
        (lambda d: d["corpora"]["movie_reviews"]["reader"].update(negative_to=None), "belong together"),
        (lambda d: d["corpora"]["shakespeare"]["splits"].update(valid=0.6, test=0.5), "leave nothing for train"),
        (lambda d: d["corpora"].update({"a b": d["corpora"]["shakespeare"]}), "a name has letters, digits"),
        (lambda d: d["tokenizers"]["shakespeare_bpe"].update(vocab_size=100), "needs 256 bytes"),
    ],
)
def test_clashes_and_bounds(change: Any, fault: str) -> None:
    data = plain()
    change(data)
    with pytest.raises(UserErrors, match=fault.replace("(", r"\(")) as caught:
        parse(data)
    assert len(caught.value.faults) >= 1


@pytest.mark.parametrize("group", ["language_models", "translators", "classifiers"])
def test_float16_is_not_offered(group: str) -> None:
    """Its largest number is 65,504: losses and gradients overflow, and scaling them hides that for a while."""
    data = plain()
    for precision in ("16-mixed", "16-true", "fp16"):
        next(iter(data[group].values()))["precision"] = precision
        with pytest.raises(UserErrors, match=rf"precision: .*'?{precision}'?.*32-true.*bf16-mixed"):
            parse(data)


def test_a_yaml_fault_names_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("a: 1\nb: [1, 2\nc: 3\n")
    with pytest.raises(UserError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:3: not valid YAML")
    with pytest.raises(UserError, match="does not exist"):
        read_yaml(tmp_path / "none.yaml")
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(UserError, match="not UTF-8"):
        read_yaml(path)
    path.write_text("a:\n\tb: 1\n")
    with pytest.raises(UserError, match=r":2: not valid YAML: .*; indent with spaces"):
        read_yaml(path)
    path.write_text("a: \0\n")
    with pytest.raises(UserError, match="not valid YAML: unacceptable character #x0000"):
        read_yaml(path)
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_yaml(tmp_path)


def test_keys_that_are_given_twice_are_all_told(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("a: &x {k: 1, k: 2}\nb:\n  - c: 1\n    c: 1\nd: {<<: *x, k: 3}\n1: 0\n'1': 0\na: 3\n")
    with pytest.raises(UserErrors) as caught:
        read_yaml(path)
    assert caught.value.faults == [
        f"{path}:{line}: '{key}' is given twice; remove one" for key, line in (("k", 1), ("c", 4), ("a", 8))
    ]
    path.write_text("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\nc: &c [*c]\n")
    data = read_yaml(path)
    assert data["b"] == {"k": 3, "l": 2}
    assert data["c"][0] is data["c"]


def test_what_yaml_makes_of_a_value_is_told_in_plain_words() -> None:
    data = plain()
    data["experiment"] = yaml.safe_load("2026-01-31")
    data["tokenizers"] = None
    with pytest.raises(UserErrors) as caught:
        parse(data)
    assert "params.yaml: experiment: expected text, got the date 2026-01-31; put it in quotes to make it text" in (
        caught.value.faults
    )
    assert "params.yaml: tokenizers: expected a mapping, got nothing; write {} for none" in caught.value.faults


def test_a_folder_that_is_no_project_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="run this in the project's folder"):
        load(tmp_path / "params.yaml")
    with pytest.raises(UserError, match="run this in the project's folder"):
        load_execution(tmp_path)
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    with pytest.raises(UserError, match="`lexmill compose` writes it"):
        load(tmp_path / "params.yaml")
    monkeypatch.setenv("LEXMILL_EXECUTION", "locl")
    with pytest.raises(UserError, match=r"locl\.yaml: .*LEXMILL_EXECUTION names it, did you mean 'local'"):
        load_execution(tmp_path)


def test_compose_refuses_what_hydra_cannot_apply_and_writes_nothing(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    shutil.copy(ROOT / "params.yaml", tmp_path / "params.yaml.here")
    for wrong, hint in (
        ("language_models.gpt.lenght=3", "`lexmill params` lists the keys"),
        ("experiment=ful", "did you mean 'full'"),
        ("experiment=none", "known: demo"),
        ("nonsense", "give it as nonsense=VALUE"),
        ("gpt=gpt_small", "write model@models.gpt=gpt_small$"),
        ("translator=transformer_tiny", "write model@models.en_de=transformer_tiny$"),
        ("language_model=gpt_small", r"gpt_small or language_model@language_models\.lstm=gpt_small$"),
    ):
        with pytest.raises(UserError, match=f"conf/ cannot be composed.*{hint}"):
            write_params([wrong], tmp_path)
    with pytest.raises(UserErrors, match="multiple of n_head"):
        write_params(["language_models.gpt.shape.n_head=5"], tmp_path)
    assert not (tmp_path / "params.yaml").exists()
    shutil.move(tmp_path / "params.yaml.here", tmp_path / "params.yaml")
    with pytest.raises(UserError, match=r"did you mean 'language_models\.gpt\.length'"):
        write_params(["language_models.gpt.lenght=3"], tmp_path)


def test_compose_names_each_file_of_conf_that_is_no_yaml(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "conf/corpus/shakespeare.yaml").write_text("kind: [\n")
    (tmp_path / "conf/schedule/linear.yaml").write_bytes(b"name: \xff\n")
    (tmp_path / "conf/tokenizer/bpe_2k.yaml").write_text("kind: bpe\nkind: bpe\n")
    with pytest.raises(UserErrors) as caught:
        write_params((), tmp_path)
    told = "\n".join(caught.value.faults)
    assert "shakespeare.yaml:2: not valid YAML" in told
    assert "linear.yaml: not UTF-8" in told
    assert "bpe_2k.yaml:2: 'kind' is given twice" in told


def test_conf_looks_nothing_up_in_the_environment() -> None:
    """Composing writes what it finds into params.yaml: a password that conf/ read would be committed."""
    for path in sorted((ROOT / "conf").rglob("*.yaml")):
        assert "${oc." not in path.read_text(encoding="utf-8"), path
