"""Initial weights: variances by recipe, of weights and of what goes through a deep stack of them."""

import math
from pathlib import Path

import pytest
import torch
from torch import nn

from lexmill.base.errors import UserError
from lexmill.models.common.feed_forward import FeedForward, GatedFeedForward
from lexmill.models.common.init import GPT2, Kaiming, Recipe, Xavier, gain, initialize, load_recipe
from lexmill.models.common.norms import RMSNorm
from lexmill.models.gpt.model import GPT
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.models.lstm.model import Layer
from lexmill.models.transformer.model import Transformer
from lexmill.models.transformer.shape import Shape as TransformerShape

RECIPES: list[Recipe] = [GPT2(), Xavier(), Kaiming()]
SHAPE = GPTShape(n_layer=4, n_head=2, d_model=128, context=64)


def rms(weight: torch.Tensor) -> float:
    return weight.detach().double().pow(2).mean().sqrt().item()


def seeded(module: nn.Module, recipe: Recipe) -> nn.Module:
    torch.manual_seed(0)
    initialize(module, recipe)
    return module


def test_the_files_of_conf_are_recipes() -> None:
    found = {path.stem: load_recipe(path) for path in Path("conf/initialization").glob("*.yaml")}
    named = {"gpt2": GPT2(), "gpt2_zero": GPT2(zero_branches=True), "xavier": Xavier(), "kaiming": Kaiming()}
    assert found.items() >= named.items()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: gpt3\nstd: 0.02\n", r"recipe\.name: 'gpt3' is unknown, did you mean 'gpt2'"),
        ("name: gpt2\nsdt: 0.02\n", r"recipe\.sdt: unknown key, did you mean 'std'"),
        ("name: gpt2\nstd: 0\n", r"recipe\.std: 0.0 is too small"),
        ("name: xavier\nembedding_std: -1\n", r"recipe\.embedding_std: -1.0 is too small"),
        ("", "recipe: expected a mapping with 'name'"),
    ],
)
def test_a_wrong_recipe_is_reported_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=rf"mine\.yaml: {message}"):
        load_recipe(file)


def test_gpt2_has_one_deviation_and_smaller_ones_where_branches_end() -> None:
    model = seeded(GPT(SHAPE, 300), GPT2(std=0.03))
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            assert torch.equal(parameter.detach(), torch.full_like(parameter, float("norm.weight" in name))), name
        else:
            wanted = 0.03 / math.sqrt(2 * 4) if name.endswith("output.weight") else 0.03
            assert rms(parameter) == pytest.approx(wanted, rel=0.03), name


def test_branches_may_start_at_zero_and_all_else_stays() -> None:
    """Each block is the identity then, and its last matrices alone have a gradient."""
    plain, model = GPT(SHAPE, 300), GPT(SHAPE, 300)
    seeded(plain, GPT2())
    seeded(model, GPT2(zero_branches=True))
    ends = {name for name, _ in model.named_parameters() if name.endswith("output.weight")}
    assert len(ends) == 2 * 4
    for name, parameter in model.named_parameters():
        drawn = plain.get_parameter(name)
        assert torch.equal(parameter, torch.zeros_like(drawn) if name in ends else drawn), name
    tokens = torch.arange(20).view(1, 20)
    model.eval().loss(tokens[:, :-1], tokens[:, 1:]).backward()
    hidden = model.norm(model.embedded(tokens, None, None))
    torch.testing.assert_close(model(tokens), model.logits(hidden), rtol=0, atol=0)
    for name, parameter in model.blocks.named_parameters(prefix="blocks"):
        assert parameter.grad is not None
        assert bool(parameter.grad.any()) is (name in ends or name.endswith("output.bias")), name


def test_branches_are_counted_by_stack() -> None:
    """An encoder block ends two branches, a decoder block three."""
    shape = TransformerShape(encoder_layers=2, decoder_layers=3, n_head=2, d_model=128, d_ffn=256)
    model = seeded(Transformer(shape, 50), GPT2())
    assert rms(model.get_parameter("encoder.1.feed_forward.output.weight")) == pytest.approx(0.02 / 2, rel=0.03)
    assert rms(model.get_parameter("decoder.1.cross.output.weight")) == pytest.approx(0.02 / 3, rel=0.03)


def test_xavier_is_uniform_with_the_mean_of_both_sides_and_treats_fused_parts_alone() -> None:
    model = seeded(GPT(SHAPE, 300), Xavier(embedding_std=0.5))
    for name, (inputs, outputs) in {
        "attention.query_key_value": (128, 128),
        "attention.output": (128, 128),
        "feed_forward.expand": (128, 512),
        "feed_forward.output": (512, 128),
    }.items():
        weight = model.get_parameter(f"blocks.2.{name}.weight").detach()
        bound = math.sqrt(6 / (inputs + outputs))
        assert rms(weight) == pytest.approx(math.sqrt(2 / (inputs + outputs)), rel=0.03), name
        assert 0.99 * bound < weight.abs().max() <= bound, name
    assert rms(model.get_parameter("embedding.weight")) == pytest.approx(0.5, rel=0.03)


@pytest.mark.parametrize("recipe", [Xavier(embedding_std=0), Kaiming(embedding_std=0)])
def test_a_deviation_of_zero_is_that_of_the_transformer_paper(recipe: Xavier | Kaiming) -> None:
    """Embeddings that are multiplied by the root of their width then have a deviation of 1."""
    model = seeded(GPT(SHAPE, 300), recipe)
    assert rms(model.get_parameter("embedding.weight")) == pytest.approx(128**-0.5, rel=0.03)


def test_kaiming_is_normal_by_the_inputs_with_the_activations_gain() -> None:
    model = seeded(GPT(SHAPE, 300), Kaiming(embedding_std=0.5))
    for name, wanted in {
        "attention.query_key_value": 1 / math.sqrt(128),
        "feed_forward.expand": 1 / math.sqrt(128),
        "feed_forward.output": gain(nn.GELU(approximate="tanh")) / math.sqrt(512),
    }.items():
        weight = model.get_parameter(f"blocks.2.{name}.weight").detach()
        assert rms(weight) == pytest.approx(wanted, rel=0.03), name
        # of a normal distribution 4.6 % lie beyond two deviations, of a uniform one none
        assert (weight.abs() > 2 * wanted).double().mean().item() == pytest.approx(0.0455, rel=0.1), name


def test_gains_are_those_of_the_paper() -> None:
    assert gain(nn.ReLU(inplace=True)) == pytest.approx(math.sqrt(2), rel=1e-3)
    assert gain(nn.Identity()) == pytest.approx(1, rel=1e-6)
    z = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert gain(nn.functional.silu) == pytest.approx(1 / rms(nn.functional.silu(z)), rel=5e-3)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: FeedForward(256, 512, "relu"),
        lambda: FeedForward(256, 512, "gelu_tanh"),
        lambda: GatedFeedForward(256, 512),
    ],
)
def test_kaiming_keeps_the_scale_through_a_deep_stack(layer: type[nn.Module]) -> None:
    """24 layers one upon another; the derivation takes what each reads for normal, of variance 1."""
    stack = seeded(nn.ModuleList(layer() for _ in range(24)), Kaiming())
    hidden, sizes = torch.randn(64, 256), []
    for one in stack:  # type: ignore[attr-defined]
        hidden = one(nn.functional.rms_norm(hidden, (256,)))
        sizes.append(rms(hidden))
    assert sum(sizes) / 24 == pytest.approx(1, abs=0.07)
    assert 0.75 < min(sizes) <= max(sizes) < 1.3


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_deep_gpts_activations_and_gradients_stay_in_range(recipe: Recipe) -> None:
    model = seeded(GPT(GPTShape(n_layer=24, n_head=2, d_model=64, context=16), 100), recipe)
    sizes: list[float] = []
    for block in model.blocks:  # type: ignore[union-attr]
        block.register_forward_hook(lambda *args: sizes.append(rms(args[2])))
    tokens = torch.randint(100, (4, 16), generator=torch.Generator().manual_seed(0))
    logits = model(tokens)
    nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    assert len(sizes) == 24
    # 48 branches of variance at most about 1 each
    assert min(sizes) > 0.02
    assert max(sizes) < 2 * math.sqrt(48)
    norms = [rms(block.attention.output.weight.grad) for block in model.blocks]  # type: ignore[union-attr]
    assert max(norms) / min(norms) < 50


def test_gpt2_branches_add_up_to_what_one_layer_would_give() -> None:
    """The residual stream's growth does not depend on the depth."""
    grown = []
    for depth in (4, 32):
        model = seeded(GPT(GPTShape(n_layer=depth, n_head=2, d_model=64, context=16), 100), GPT2(std=0.1))
        out: list[float] = []
        model.blocks[-1].register_forward_hook(lambda *args, out=out: out.append(rms(args[2])))  # type: ignore
        model(torch.randint(100, (4, 16), generator=torch.Generator().manual_seed(0)))
        grown.append(out[0])
    assert grown[1] == pytest.approx(grown[0], rel=0.3)


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_lstms_gates_are_matrices_of_their_own_and_it_remembers_at_first(recipe: Recipe) -> None:
    layer = seeded(Layer(128, 0.0), recipe)
    wanted = {"gpt2": 0.02, "xavier": math.sqrt(2 / (128 + 128)), "kaiming": 1 / math.sqrt(128)}[recipe.name]
    for name in ("lstm.weight_ih_l0", "lstm.weight_hh_l0"):
        for gate in layer.get_parameter(name).chunk(4):
            assert rms(gate) == pytest.approx(wanted, rel=0.03)
    bias = layer.get_parameter("lstm.bias_ih_l0") + layer.get_parameter("lstm.bias_hh_l0")
    assert torch.equal(bias.detach(), torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(128))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(500, 64, padding_idx=3)
        self.norm = RMSNorm(64)
        self.scale = nn.Parameter(torch.full((64,), 7.0))
        self.head = nn.Linear(64, 500)
        self.head.weight = self.embedding.weight


def test_a_tied_matrix_is_the_embeddings_and_padding_is_zero() -> None:
    module = seeded(Tied(), Xavier(embedding_std=0.3))
    weight = module.get_parameter("embedding.weight").detach()
    assert rms(weight) == pytest.approx(0.3, rel=0.03)
    assert not weight[3].any()
    assert not module.get_parameter("head.bias").detach().any()
    assert (module.get_parameter("scale") == 7).all(), "what no recipe knows keeps its constructor's value"


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_same_seed_gives_the_same_weights(recipe: Recipe) -> None:
    one, other = (seeded(GPT(SHAPE, 20), recipe).state_dict() for _ in range(2))
    assert all(torch.equal(value, other[name]) for name, value in one.items())
