"""The presets of conf/model: each composes as its comment says, and has its published size."""

import copy
import dataclasses
import functools
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast, get_args

import pytest
import torch
import yaml
from torch import nn

from lexmill import kinds
from lexmill.config.compose import compose
from lexmill.models import build, families
from lexmill.models.common.row_sizes import Row
from lexmill.params import Params, parse
from lexmill.params.models import Model
from lexmill.tokenizers import SPECIAL_TOKENS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "conf" / "model"
PRESETS = sorted(path.stem for path in FOLDER.glob("*.yaml"))
COMMAND = re.compile(
    r"^#   lexmill compose (\+?model@models\.(?P<name>\w+)=(?P<preset>\S+)(?P<more>.*\n(?:#     .*\n)*))", re.MULTILINE
)


def command_of(preset: str) -> re.Match[str] | None:
    """The command of the preset's comment."""
    found = COMMAND.search((FOLDER / f"{preset}.yaml").read_text(encoding="utf-8"))
    assert found is None or found["preset"] == preset
    return found


def name_of(preset: str) -> str:
    """The model that its comment makes of it."""
    found = command_of(preset)
    return found["name"] if found else "gpt"


def additions(preset: str) -> list[str]:
    """What the preset's comment, or that of the preset it builds on, adds to the defaults."""
    if found := command_of(preset):
        return shlex.split(found["more"].replace("\\\n#     ", " ").replace("\n#     ", " "))
    text = (FOLDER / f"{preset}.yaml").read_text(encoding="utf-8")
    base = yaml.safe_load(text)["defaults"][0]
    if not isinstance(base, str) or base == "_self_" or base.startswith("/"):
        return []
    assert not additions(base) or f"{base}.yaml" in text, "the comment says where its needs are reported"
    return additions(base)


@cache
def written(preset: str) -> Any:
    """params.yaml as plain data."""
    name = name_of(preset)
    added = "" if name == "gpt" else "+"
    return yaml.safe_load(compose([f"{added}model@models.{name}={preset}", *additions(preset)], ROOT))


def model_of(preset: str) -> Model:
    return composed(preset).models[name_of(preset)]


def composed(preset: str) -> Params:
    return parse(written(preset))


def network(preset: str, vocab_size: int = 0) -> tuple[Model, nn.Module]:
    """The preset, and its network without memory, over its tokenizer's vocabulary."""
    params = composed(preset)
    model = params.models[name_of(preset)]
    size = vocab_size or params.tokenizers[model.data.tokenizer].vocab_size
    with torch.device("meta"):
        config = {"family": model.family, "shape": dataclasses.asdict(model.shape), "vocab_size": size}
        return model, build(config)


def count(preset: str, vocab_size: int = 0) -> int:
    found = network(preset, vocab_size)[1].count_parameters()
    assert isinstance(found, int)
    return found


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_composes_as_its_comment_says(preset: str) -> None:
    model = model_of(preset)
    text = (FOLDER / f"{preset}.yaml").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert model.family in families(*kinds.find(model.kind).roles)


def test_every_family_and_every_kind_has_a_preset() -> None:
    models = [model_of(preset) for preset in PRESETS]
    assert {model.family for model in models} == set(families())
    assert {model.kind for model in models} == set(kinds.names())
    mixers = [getattr(model.shape, "mixers", ()) for model in models]
    assert {one for some in mixers for one in some} >= set(get_args(Row)) - {"attention", "linformer"}


def unsaid(value: Any, plain: Any, path: str = "") -> set[str]:
    """The fields of dataclasses, by their dotted keys, that the plain data they were built from leave out."""
    if not dataclasses.is_dataclass(value) or not isinstance(plain, Mapping):
        return set()
    found: set[str] = set()
    for field in dataclasses.fields(value):
        key = f"{path}.{field.name}"
        inside = unsaid(getattr(value, field.name), plain[field.name], key) if field.name in plain else {key}
        found |= inside
    return found


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_leaves_nothing_to_a_default_in_code(preset: str) -> None:
    """A default that only the code holds could change a result without DVC seeing it."""
    model, plain = model_of(preset), written(preset)["models"][name_of(preset)]
    assert unsaid(model, plain) == set()
    parts = (model.shape, model.data, model.recipe, model.evaluate)  # each is typed by its kind or its family
    assert all(dataclasses.is_dataclass(part) for part in parts)
    assert plain.keys() == {field.name for field in dataclasses.fields(model)}


def test_a_value_that_a_preset_leaves_out_is_noticed() -> None:
    plain = copy.deepcopy(written("gpt_tiny"))
    for part in ("encodings", "imported_tokenizers", "baselines", "inputs"):
        del plain[part]
    gpt = plain["models"]["gpt"]
    missing = {"shape.norm", "recipe.patience", "data.mask_documents", "evaluate.prompts", "evaluate.ngrams.order"}
    missing |= {"recipe.optimizer.eps", "recipe.schedule.final_fraction"}
    for key in missing:
        *parts, last = key.split(".")
        del functools.reduce(dict.__getitem__, parts, gpt)[last]
    assert unsaid(parse(plain).models["gpt"], gpt) == {f".{key}" for key in missing}


@pytest.mark.parametrize(
    ("preset", "parameters"),
    [
        ("gpt_117m", 116_534_784),
        ("gpt2_124m", 124_439_808),
        ("gpt2_355m", 354_823_168),
        ("gpt2_774m", 774_030_080),
        ("gpt2_1558m", 1_557_611_200),
    ],
)
def test_gpt_and_gpt2_have_their_published_parameters(preset: str, parameters: int) -> None:
    assert count(preset) == parameters


# Name, parameters, layers, d_model, heads, d_head, batch in tokens, learning rate: table 2.1 of Brown et al. 2020.
GPT3 = [
    ("gpt3_125m", 125e6, 12, 768, 12, 64, 0.5e6, 6e-4),
    ("gpt3_350m", 350e6, 24, 1024, 16, 64, 0.5e6, 3e-4),
    ("gpt3_760m", 760e6, 24, 1536, 16, 96, 0.5e6, 2.5e-4),
    ("gpt3_1.3b", 1.3e9, 24, 2048, 24, 128, 1e6, 2e-4),
    ("gpt3_2.7b", 2.7e9, 32, 2560, 32, 80, 1e6, 1.6e-4),
    ("gpt3_6.7b", 6.7e9, 32, 4096, 32, 128, 2e6, 1.2e-4),
    ("gpt3_13b", 13e9, 40, 5140, 40, 128, 2e6, 1e-4),
    ("gpt3_175b", 175e9, 96, 12288, 96, 128, 3.2e6, 0.6e-4),
]


@pytest.mark.parametrize("row", GPT3, ids=[row[0] for row in GPT3])
def test_the_gpt3_rows_are_the_papers(row: tuple[str, float, int, int, int, int, float, float]) -> None:
    preset, parameters, n_layer, d_model, n_head, d_head, batch, lr = row
    model, module = network(preset)
    shape = model.shape
    assert (shape.n_layer, shape.d_model, shape.n_head, shape.d_head) == (n_layer, d_model, n_head, d_head)
    assert shape.context == 2048
    assert model.recipe.optimizer.lr == pytest.approx(lr)  # type: ignore[union-attr]
    assert model.recipe.batch == pytest.approx(batch, rel=0.05)
    assert (model.recipe.length.amount, model.recipe.length.unit) == (300e9, "tokens")
    if preset == "gpt3_1.3b":
        # The row as printed has 1.52 billion parameters; 16 heads of 128 would have the 1.3 billion of its name.
        assert module.count_parameters() == 1_517_123_584  # type: ignore[operator]
        sixteen = {**dataclasses.asdict(shape), "n_head": 16}
        with torch.device("meta"):
            module = build({"family": "gpt", "shape": sixteen, "vocab_size": 50257})
    found = module.count_parameters()  # type: ignore[operator]
    assert found == pytest.approx(parameters, rel=0.02)


def test_shakespeare_char_has_nanogpts_parameters() -> None:
    """Counted as it does: 65 characters, without positions; and it has no biases."""
    for preset, parameters in (("shakespeare_char", 10_646_784), ("shakespeare_char_small", 795_904)):
        named = dict(network(preset, vocab_size=65)[1].named_parameters())
        counted = {name: p.numel() for name, p in named.items() if name != "positions.weight"}
        assert sum(n for name, n in counted.items() if not name.endswith("bias")) == parameters
        model = model_of(preset)
        assert composed(preset).tokenizers[model.data.tokenizer].kind == "character"
    full, small = (model_of(name).recipe for name in ("shakespeare_char", "shakespeare_char_small"))
    assert full.batch * full.length.amount == 81_920_000
    assert small.batch * small.length.amount == 1_536_000


# Layers, width and parameters at 30,522 entries: Turc et al. 2019 (base and large: Devlin et al. 2019).
BERT = {
    "bert_tiny": (2, 128, 4.4e6),
    "bert_mini": (4, 256, 11.2e6),
    "bert_small": (4, 512, 28.8e6),
    "bert_medium": (8, 512, 41.4e6),
    "bert_base": (12, 768, 109.5e6),
    "bert_large": (24, 1024, 335e6),
}


@pytest.mark.parametrize("preset", BERT)
def test_the_berts_have_the_published_parameters(preset: str) -> None:
    """The published counts have the pooler, which is no part of the encoder here, and not the masked head."""
    n_layer, width, parameters = BERT[preset]
    model, module = network(preset)
    shape = cast(Any, model.shape)
    assert (shape.num_hidden_layers, shape.hidden_size, shape.intermediate_size) == (n_layer, width, 4 * width)
    assert shape.hidden_size // shape.num_attention_heads == 64
    counted = sum(parameter.numel() for parameter in module.parameters()) + width * width + width
    by_hand = (30522 + 512 + 2 + 2) * width + n_layer * (12 * width**2 + 13 * width) + width**2 + width
    assert counted == by_hand == pytest.approx(parameters, rel=0.005)
    assert f"{counted:,} parameters" in (FOLDER / f"{preset}.yaml").read_text(encoding="utf-8")


def test_the_recipe_for_small_corpora_has_its_size_and_choices() -> None:
    """Of LTG-BERT's smallest size: its tables and matrices, without what the preset's comment leaves out."""
    model, module = network("ltg_bert_tiny", vocab_size=16_384)
    shape, recipe = cast(Any, model.shape), cast(Any, model.recipe)
    assert (shape.n_layer, shape.d_model, shape.n_head, shape.d_ffn, shape.dropout) == (12, 192, 3, 512, 0.1)
    counted = sum(parameter.numel() for parameter in module.parameters())
    norms = 2 * 12 + 2
    assert counted == 16_384 * 192 + 12 * (4 * 192**2 + 3 * 192 * 512) + norms * 192
    assert f"{counted:,} parameters" in (FOLDER / "ltg_bert_tiny.yaml").read_text(encoding="utf-8")
    assert (recipe.masking, recipe.share, recipe.pairs, recipe.clip_norm) == ("span", 0.15, "none", 2.0)
    assert (recipe.optimizer.weight_decay, recipe.optimizer.beta2, recipe.schedule.final_fraction) == (0.1, 0.98, 0.1)


@pytest.mark.parametrize(
    ("preset", "printed", "parameters"),
    [("transformer_base", 65e6, 63_082_496), ("transformer_big", 213e6, 214_245_376)],
)
def test_the_transformers_have_the_published_sizes(preset: str, printed: float, parameters: int) -> None:
    """Of table 3 of Vaswani et al. 2017, with one matrix for the 37,000 subwords of section 5.1."""
    model = model_of(preset)
    shape = cast(Any, model.shape)
    d, f = shape.d_model, shape.d_ffn
    attention, feed_forward = 4 * d * d + 4 * d, 2 * d * f + d + f
    by_hand = 37_000 * d + 6 * (3 * attention + 2 * feed_forward + 5 * 2 * d)
    assert count(preset, vocab_size=37_000) == by_hand == parameters == pytest.approx(printed, rel=0.03)
    assert f"{parameters:,} parameters" in (FOLDER / f"{preset}.yaml").read_text(encoding="utf-8")
    assert vars(model.recipe.optimizer)["lr"] == pytest.approx(d**-0.5 * 4000**-0.5, rel=1e-3)


def test_the_transformer_for_captions_has_the_published_size() -> None:
    """Of Wu et al. 2021: 9,712 entries, width 128, feed-forward 256, 4 + 4 layers, without a last norm."""
    attention, feed_forward, norm = 4 * 128 * 128 + 4 * 128, 2 * 128 * 256 + 128 + 256, 2 * 128
    by_hand = 9712 * 128 + 4 * (3 * attention + 2 * feed_forward + 5 * norm)
    assert count("transformer_multi30k", vocab_size=9712) == by_hand == 2_568_192


def test_smollm2_has_the_parameters_of_the_model_it_starts_from() -> None:
    assert count("smollm2", vocab_size=49_152) == 134_515_008
    assert model_of("smollm2").start == "artifacts/checkpoints/smollm2"


# By hand, with V entries of the vocabulary, width D, L layers, C positions, F the feed-forward's width:
#   gpt    V D + C D + L (12 D^2 + 13 D) + 2 D    attention 4 D^2 + 4 D, feed-forward 8 D^2 + 5 D, two norms 4 D
#   llama  V D + L (3 D^2 + 3 D F + 2 D) + D      half as many key and value heads: queries and output D^2 each, keys
#                                                 and values D^2 / 2; with as many (tinyshakespeare_fast) 4 D^2 in all,
#                                                 two matrices of feed-forward layers, and tables of hashed n-grams
#   lstm   V D + L (8 D^2 + 8 D)                  four gates, each D^2 for input and state and a bias for both
#   retnet V D + L (5 D^2 + 3 D F + 2 D + K) + D  query, key, value, gate, output; a norm of the heads' width K
#   gru, elman                                    as lstm with three gates, and with one
#   reservoir  V D                                the read-out
@pytest.mark.parametrize(
    ("preset", "vocab_size", "by_hand", "parameters"),
    [
        ("gpt_tiny", 2048, 2048 * 192 + 128 * 192 + 4 * (12 * 192**2 + 13 * 192) + 2 * 192, 2_197_632),
        ("llama_tiny", 2048, 2048 * 192 + 4 * (3 * 192**2 + 3 * 192 * 576 + 2 * 192) + 192, 2_164_416),
        ("decoder_tiny", 2048, 2048 * 192 + 4 * (3 * 192**2 + 3 * 192 * 576 + 2 * 192) + 192, 2_164_416),
        ("lstm_tiny", 2048, 2048 * 384 + 8 * 384**2 + 8 * 384, 1_969_152),
        ("retnet_tiny", 2048, 2048 * 192 + 4 * (5 * 192**2 + 3 * 192 * 448 + 2 * 192 + 48) + 192, 2_164_608),
        ("gru_tiny", 2048, 2048 * 432 + 6 * 432**2 + 6 * 432, 2_007_072),
        ("elman_tiny", 2048, 2048 * 640 + 2 * 640**2 + 2 * 640, 2_131_200),
        ("reservoir_tiny", 2048, 2048 * 1024, 2_097_152),
        ("gpt_small", 2048, 2048 * 256 + 256 * 256 + 6 * (12 * 256**2 + 13 * 256) + 2 * 256, 5_328_896),
        ("llama_small", 2048, 2048 * 256 + 6 * (3 * 256**2 + 3 * 256 * 768 + 2 * 256) + 256, 5_246_208),
        # 65 characters of the corpus, and the special tokens.
        ("tinyshakespeare_fast", 70, (70 + 3 * 16384) * 128 + 4 * 128**2 + 2 * 128 * 512 + 2 * 128 + 128, 6_497_408),
    ],
)
def test_the_small_presets_have_the_parameters_of_their_equations(
    preset: str, vocab_size: int, by_hand: int, parameters: int
) -> None:
    assert by_hand == parameters
    if chosen := composed(preset).tokenizers[model_of(preset).data.tokenizer].vocab_size:
        assert chosen == vocab_size
    else:
        assert vocab_size == 65 + len(SPECIAL_TOKENS)
    assert count(preset, vocab_size) == parameters


def test_the_page_tells_the_parameters() -> None:
    """docs/language-models.md: exact ones, and those in millions to two digits."""
    page = (ROOT / "docs" / "language-models.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (`[^|]+`) \| ([^|]+) \|", page, re.MULTILINE))
    assert rows["`tinyshakespeare_fast`"] == f"{count('tinyshakespeare_fast', 65 + len(SPECIAL_TOKENS)):,}"
    assert rows["`smollm2`"] == f"{count('smollm2', vocab_size=49_152):,}"
    for names in (
        "`gpt_tiny`, `llama_tiny`, `decoder_tiny`, `lstm_tiny`",
        "`retnet_tiny`, `gla_tiny`, `mamba2_tiny`, `deltanet_tiny`, `gated_deltanet_tiny`, `hybrid_tiny`,"
        " `performer_tiny`, `local_tiny`, `lsh_tiny`",
        "`linear_tiny`, `linear_kernel_tiny`, `linear_normalized_tiny`, `gated_rfa_tiny`, `s4_tiny`, `abc_tiny`,"
        " `dfw_tiny`, `mamba_tiny`, `rwkv6_tiny`, `hgrn2_tiny`, `mlstm_tiny`, `gsa_tiny`",
        "`elman_tiny`, `gru_tiny`, `reservoir_tiny`",
        "`decoder_ngrams`, `lstm_ngrams`",
        "`gpt_small`, `llama_small`",
    ):
        assert rows[names] == ", ".join(f"{count(name) / 1e6:.1f}" for name in re.findall(r"\w+", names)) + " M"
    message = set(re.findall(r"`(\w+)`", " ".join(rows))) | {"gpt3_125m"}
    ours = [name for name in PRESETS if model_of(name).kind == "language_model"]
    assert {name for name in ours if not name.startswith("gpt3_")} <= message


def test_the_tiny_presets_are_alike_in_size() -> None:
    fixed = "reservoir_tiny"  # most of its products have no backward pass
    tiny = [name for name in PRESETS if name.endswith("_tiny") and model_of(name).kind == "language_model"]
    sizes = {name: count(name) for name in tiny}
    flops = {name: cast(Any, network(name)[1]).flops_per_token() for name in sizes if name != fixed}
    for found in (sizes, flops):
        assert max(found.values()) < 1.3 * min(found.values()), found
    assert count("llama_small") == pytest.approx(count("gpt_small"), rel=0.1)
