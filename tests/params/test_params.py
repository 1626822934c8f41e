"""params.yaml: the committed file, its errors, and conf/ that composes it."""

import dataclasses
import functools
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lexmill.base.errors import UserError, UserErrors
from lexmill.base.yaml_file import read_yaml
from lexmill.compute.execution import load_execution
from lexmill.config.compose import compose, write_params
from lexmill.config.undoing import undone
from lexmill.params import load, parse
from lexmill.params.derived import PARTS, derive
from lexmill.params.length import Length

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
def test_every_experiment_has_no_error_and_leaves_nothing_to_a_default_in_code(experiment: str) -> None:
    """A default that only the code holds could change a result without DVC seeing it."""
    composed = yaml.safe_load(compose([f"experiment={experiment}"], ROOT))
    assert composed["experiment"] == experiment
    assert as_plain(parse(composed)) == composed


def test_one_more_line_is_one_more_model() -> None:
    """Its inputs, its baselines and what must be encoded for it follow."""
    before = yaml.safe_load(compose((), ROOT))
    composed = yaml.safe_load(compose(["+model@models.modern=llama_tiny"], ROOT))
    assert list(parse(composed).models) == ["gpt", "lstm", "sentiment", "en_de", "modern"]
    assert composed["inputs"].pop("modern") == {
        "kind": "language_model",
        "family": "llama",
        "start": "conf/initialization/gpt2.yaml",
        "corpus": "shakespeare",
        "tokenizer": "shakespeare_bpe",
        "data": "artifacts/tokens/shakespeare-shakespeare_bpe",
        "teacher": "conf/initialization/gpt2.yaml",
        "valid": "artifacts/tokens/shakespeare-shakespeare_bpe",
    }
    del composed["models"]["modern"]
    assert composed == before  # its corpus is encoded already, and its baselines are those of gpt and lstm


def test_a_line_may_bring_its_checkpoint_tokenizer_encoding_and_baselines() -> None:
    params = parse(yaml.safe_load(compose(["model@models.gpt=smollm2"], ROOT)))
    assert params.models["gpt"].start == "artifacts/checkpoints/smollm2"
    assert set(params.checkpoints) == {"minilm", "smollm2"}
    assert params.imported_tokenizers["smollm2"].checkpoint == "smollm2"
    encoded = params.encodings["shakespeare-smollm2"]
    assert (encoded.corpus, encoded.tokenizer) == ("shakespeare", "smollm2")
    assert params.inputs["gpt"].data == "artifacts/tokens/shakespeare-smollm2"
    baselines = params.baselines_of(params.models["gpt"])
    assert [one.tokenizer for one in baselines.values()] == ["shakespeare_bpe", "smollm2"]  # of lstm too; its own last
    assert list(baselines)[-1] == "language_model-shakespeare-smollm2"
    assert baselines["language_model-shakespeare-smollm2"].reads == "artifacts/tokenizers/smollm2"


def test_what_no_model_reads_any_more_is_gone() -> None:
    params = parse(yaml.safe_load(compose(["~model@models.gpt", "~model@models.lstm"], ROOT)))
    assert set(params.encodings) == {"home_assistant-home_assistant_bpe"}
    assert set(params.baselines) == {"classifier-movie_reviews", "translator-home_assistant"}
    assert set(params.inputs) == {"sentiment", "en_de"}
    none = parse({"experiment": "x", "data_seed": 1, "training_seed": 1})
    assert (none.encodings, none.imported_tokenizers, none.baselines, none.inputs) == ({}, {}, {}, {})


@pytest.mark.parametrize("preset", ["minilm", "gpt2_124m", "smollm2"])
def test_two_models_of_one_preset_share_what_it_brings(preset: str) -> None:
    both = [f"model@models.gpt={preset}", f"+model@models.again={preset}"]
    params = parse(yaml.safe_load(compose(both, ROOT)))
    assert params.models["gpt"] == params.models["again"]
    assert params.inputs["gpt"] == params.inputs["again"]


def test_a_file_may_leave_out_what_follows_but_not_where_dvc_reads_it(tmp_path: Path) -> None:
    data = plain()
    kept = {key: value for key, value in data.items() if key not in PARTS}
    assert parse(kept) == parse(data)
    path = tmp_path / "params.yaml"
    for part in PARTS:
        path.write_text(yaml.safe_dump({key: value for key, value in data.items() if key != part}))
        with pytest.raises(UserErrors) as caught:
            load(path)
        assert caught.value.errors == [
            f"{path}: {part}: it is not what the models need; `lexmill compose --keep` writes it"
        ]


@pytest.mark.parametrize(
    ("change", "stale"),
    [
        (lambda d: d["models"].update(more=d["models"]["gpt"]), ["inputs"]),
        (lambda d: d["models"].pop("en_de"), ["baselines", "encodings", "inputs"]),
        (lambda d: d["models"]["sentiment"].update(start="conf/initialization/gpt2.yaml"), ["inputs"]),
        (
            lambda d: d["models"]["lstm"]["data"].update(tokenizer="home_assistant_bpe"),
            ["baselines", "encodings", "inputs"],
        ),
        (lambda d: [d["models"][one]["evaluate"]["ngrams"].update(order=4) for one in ("gpt", "lstm")], ["baselines"]),
        (
            lambda d: d["models"]["gpt"]["evaluate"].update(prompts=["Act"]),
            ["baselines"],
        ),  # the first gives the samples
        (lambda d: d["encodings"].popitem(), ["encodings"]),
        (lambda d: d["imported_tokenizers"].update(other={"checkpoint": "minilm"}), ["imported_tokenizers"]),
        (lambda d: d.update(inputs=None), ["inputs"]),
    ],
)
def test_a_stale_part_is_refused(tmp_path: Path, change: Any, stale: list[str]) -> None:
    data = plain()
    change(data)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(UserErrors) as caught:
        load(tmp_path / "params.yaml")
    assert sorted(error.split(": ")[1] for error in caught.value.errors) == stale
    assert all("`lexmill compose --keep` writes it" in error for error in caught.value.errors)


def test_models_that_share_baselines_ask_for_the_same(tmp_path: Path) -> None:
    data = plain()
    data["models"]["lstm"]["evaluate"]["ngrams"] |= {"order": 4, "add_k": 0.5}
    with pytest.raises(UserErrors) as caught:
        parse(data)
    assert caught.value.errors == [
        "params.yaml: models.lstm.evaluate: its baselines are those of 'gpt', but add_k and order differ;"
        " give both the same"
    ]
    data = plain()
    data["models"]["lstm"]["evaluate"]["prompts"] = ["Exeunt"]  # what a model writes is its own
    assert parse(data).baselines["language_model-shakespeare-shakespeare_bpe"].settings["samples"] != ["Exeunt"]
    with pytest.raises(UserErrors, match="its baselines are those of 'gpt', but order differs"):
        compose(["models.lstm.evaluate.ngrams.order=4"], ROOT)


def test_a_misspelt_key_and_all_other_errors_come_at_once() -> None:
    data = {key: value for key, value in plain().items() if key not in PARTS}
    data["models"]["gpt"]["recipe"]["lenght"] = 3
    data["models"]["lstm"]["startt"] = "x"
    data["models"]["en_de"]["shape"]["n_head"] = 5
    data["models"]["en_de"]["data"]["tokenizer"] = "home_assistant_bp"
    data["models"]["sentiment"]["data"]["corpus"] = "shakespeare"
    data["models"]["more"] = data["models"]["gpt"] | {"kind": "clasifier"}
    data["models"]["most"] = data["models"]["gpt"] | {"family": "transformer"}
    data["tokenizers"]["shakespeare_bpe"]["corpus"] = "shakspere"
    with pytest.raises(UserErrors) as caught:
        parse(data)
    assert sorted(caught.value.errors) == [
        "params.yaml: models.en_de.data.tokenizer: there is no tokenizer or checkpoint 'home_assistant_bp',"
        " did you mean 'home_assistant_bpe'?",
        "params.yaml: models.en_de.shape.d_model: 128 is not a multiple of n_head (5)",
        "params.yaml: models.gpt.recipe.lenght: unknown key, did you mean 'length'?",
        "params.yaml: models.lstm.startt: unknown key, did you mean 'start'?",
        "params.yaml: models.more.kind: 'clasifier' is unknown, did you mean 'classifier'?",
        "params.yaml: models.most.family: 'transformer' is unknown; known: decoder, elman, gpt, gru, linear_attention,"
        " llama, lstm, reservoir",
        "params.yaml: models.sentiment.data.corpus: 'shakespeare' is a text corpus, a labelled one is needed",
        "params.yaml: tokenizers.shakespeare_bpe.corpus: there is no corpus 'shakspere', did you mean 'shakespeare'?",
    ]


WRONG: list[Any] = [None, 1, "x", [1], {"a": [1]}, {}]
PLACES = [
    *("models", "mixtures", "checkpoints", "tokenizers", "corpora"),
    *(
        "models.gpt",
        "models.gpt.kind",
        "models.gpt.family",
        "models.gpt.shape",
        "models.gpt.start",
        "models.gpt.recipe",
    ),
    *("models.gpt.data", "models.gpt.data.corpus", "models.gpt.data.train", "models.gpt.data.tokenizer"),
    *("models.gpt.evaluate", "models.gpt.evaluate.ngrams", "models.en_de.data.tokenizer", "models.sentiment.recipe"),
    *("mixtures.both", "mixtures.both.members", "mixtures.both.tokenizer"),
]


@pytest.mark.parametrize("place", PLACES)
def test_whatever_stands_in_a_place_is_an_error_of_the_users(place: str) -> None:
    """What follows from it is left out, and brings no error of its own."""
    for wrong in WRONG:
        data = {key: value for key, value in plain().items() if key not in PARTS}
        data["mixtures"] = {"both": {"tokenizer": "shakespeare_bpe", "members": {"shakespeare": 1, "movie_reviews": 1}}}
        *parents, last = place.split(".")
        functools.reduce(dict.__getitem__, parents, data)[last] = wrong
        assert [error for error in errors_of(data) if error.split(": ")[1].split(".")[0] in PARTS] == []


def errors_of(data: dict[str, Any]) -> list[str]:
    try:
        parse(data)
    except UserErrors as raised:
        return raised.errors
    return []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda d: d["models"]["gpt"]["recipe"].update(batch=1000), "is not a multiple of shape.context"),
        (lambda d: d["models"]["gpt"]["recipe"]["schedule"].update(warmup="1000000 steps"), "must be below length"),
        (lambda d: d["models"]["gpt"]["recipe"].update(method="linear_probe"), "is unknown; known: gradient, hybrid"),
        (lambda d: d["models"]["gpt"]["recipe"].update(head_dropout=0.1), "recipe.head_dropout: unknown key"),
        (lambda d: d["models"]["sentiment"]["recipe"].update(method="lbfgs"), "recipe.method: 'lbfgs' is unknown"),
        (lambda d: d["models"]["sentiment"]["recipe"].update(length="10 %"), "of what? give steps, tokens or epochs"),
        (lambda d: d["models"]["sentiment"]["recipe"].update(validate_every="0 epochs"), "validate_every: it must be"),
        (
            lambda d: d["corpora"]["shakespeare"].update(kind="labelled"),
            "reader.label_from: texts of a labelled corpus need it",
        ),
        (lambda d: d["models"].update({"a/b": d["models"]["gpt"]}), "models.a/b: a name has letters, digits"),
        (
            lambda d: d["checkpoints"].update(shakespeare=d["checkpoints"]["minilm"]),
            "corpora has an entry of that name",
        ),
        (lambda d: d["corpora"]["movie_reviews"]["reader"].update(negative_to=None), "belong together"),
        (lambda d: d["corpora"]["home_assistant"].update(languages=["en", "zh_CN"]), "languages: 'zh_CN': write zh-CN"),
        (lambda d: d["corpora"]["home_assistant"].update(languages=["en", "jp"]), "did you mean Japanese (ja)?"),
        (lambda d: d["corpora"]["shakespeare"]["splits"].update(valid=0.6, test=0.5), "leave nothing for train"),
        (lambda d: d["corpora"].update({"a b": d["corpora"]["shakespeare"]}), "a name has letters, digits"),
        (lambda d: d["tokenizers"]["shakespeare_bpe"].update(vocab_size=100), "needs 256 bytes"),
    ],
)
def test_clashes_and_bounds(change: Any, error: str) -> None:
    data = plain()
    change(data)
    with pytest.raises(UserErrors, match=re.escape(error)) as caught:
        parse(data)
    assert len(caught.value.errors) >= 1


@pytest.mark.parametrize("model", ["gpt", "en_de", "sentiment"])
def test_float16_is_not_offered(model: str) -> None:
    """Its largest number is 65,504: losses and gradients overflow, and scaling them hides that for a while."""
    data = plain()
    for precision in ("16-mixed", "16-true", "fp16"):
        data["models"][model]["recipe"]["precision"] = precision
        with pytest.raises(UserErrors, match=rf"precision: .*'?{precision}'?.*32-true.*bf16-mixed"):
            parse(data)


def test_a_yaml_error_names_file_and_line(tmp_path: Path) -> None:
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


def test_keys_that_are_given_twice_are_all_reported(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("a: &x {k: 1, k: 2}\nb:\n  - c: 1\n    c: 1\nd: {<<: *x, k: 3}\n1: 0\n'1': 0\na: 3\n")
    with pytest.raises(UserErrors) as caught:
        read_yaml(path)
    assert caught.value.errors == [
        f"{path}:{line}: '{key}' is given twice; remove one" for key, line in (("k", 1), ("c", 4), ("a", 8))
    ]
    path.write_text("a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}\n")
    assert read_yaml(path)["b"] == {"k": 3, "l": 2}


def test_what_yaml_makes_of_a_value_is_reported_in_plain_words() -> None:
    data = plain()
    data["experiment"] = yaml.safe_load("2026-01-31")
    data["tokenizers"] = None
    with pytest.raises(UserErrors) as caught:
        parse(data)
    assert "params.yaml: experiment: expected text, got the date 2026-01-31; put it in quotes to make it text" in (
        caught.value.errors
    )
    assert "params.yaml: tokenizers: expected a mapping, got nothing; write {} for none" in caught.value.errors


def test_a_folder_that_is_no_project_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        ("models.gpt.recipe.lenght=3", "`lexmill params` lists the keys"),
        ("experiment=ful", "did you mean 'full'"),
        ("experiment=none", "known: demo"),
        ("nonsense", "give it as nonsense=VALUE"),
        ("gpt=gpt_small", "write model@models.gpt=gpt_small$"),
        ("tokenizer=bpe_2k", r"bpe_2k or tokenizer@tokenizers\.home_assistant_bpe=bpe_2k$"),
        ("model=gpt_small", r"write model@models\.gpt=gpt_small or model@models\.lstm=gpt_small or .*en_de=gpt_small$"),
    ):
        with pytest.raises(UserError, match=f"conf/ cannot be composed.*{hint}"):
            write_params([wrong], tmp_path)
    with pytest.raises(UserErrors, match="multiple of n_head"):
        write_params(["models.gpt.shape.n_head=5"], tmp_path)
    assert not (tmp_path / "params.yaml").exists()
    shutil.move(tmp_path / "params.yaml.here", tmp_path / "params.yaml")
    with pytest.raises(UserError, match=r"did you mean 'models\.gpt\.recipe\.length'"):
        write_params(["models.gpt.recipe.lenght=3"], tmp_path)


def test_compose_names_each_file_of_conf_that_is_no_yaml(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "conf/corpus/shakespeare.yaml").write_text("kind: [\n")
    (tmp_path / "conf/schedule/linear.yaml").write_bytes(b"name: \xff\n")
    (tmp_path / "conf/tokenizer/bpe_2k.yaml").write_text("kind: bpe\nkind: bpe\n")
    with pytest.raises(UserErrors) as caught:
        write_params((), tmp_path)
    message = "\n".join(caught.value.errors)
    assert "shakespeare.yaml:2: not valid YAML" in message
    assert "linear.yaml: not UTF-8" in message
    assert "bpe_2k.yaml:2: 'kind' is given twice" in message


def test_conf_looks_nothing_up_in_the_environment() -> None:
    """Composing writes what it finds into params.yaml: a password that conf/ read would be committed."""
    for path in sorted((ROOT / "conf").rglob("*.yaml")):
        assert "${oc." not in path.read_text(encoding="utf-8"), path


def test_a_tokenizer_is_imported_where_a_model_or_a_mixture_names_a_checkpoint_and_none_is_trained() -> None:
    given = {
        "checkpoints": {"one": {}, "two": {}, "three": {}, "unused": {}},
        "tokenizers": {"three": {}, "bpe": {}},
        "mixtures": {"mixed": {"tokenizer": "two"}},
        "models": {name: {"data": {"tokenizer": name}} for name in ("one", "three", "bpe")},
    }
    assert derive(given)["imported_tokenizers"] == {"one": {"checkpoint": "one"}, "two": {"checkpoint": "two"}}
