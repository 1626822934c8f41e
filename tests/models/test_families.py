"""What holds of every family: each folder of models/ that has a `shape.py` is tested here by itself."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from lexmill import models
from lexmill.base import strict
from lexmill.base.errors import UserError
from lexmill.models import folder, pretrained
from lexmill.models.common.init import GPT2, Kaiming, Recipe, Xavier, initialize
from lexmill.models.common.mixer import fused_layouts
from lexmill.models.common.recurrent import RecurrentLayer
from lexmill.models.common.state import snapshot
from lexmill.models.declaration import Role, mismatch, unlike

ALL = models.families()


def of_role(role: Role) -> list[str]:
    """Families and their variants: gpt, and decoder+2 for the second variant of decoder."""
    return [
        name + (f"+{i}" if i else "")
        for name in models.families(role)
        for i in range(len(models.family(name).variants) + 1)
    ]


CAUSAL = of_role("causal")
V, B = 23, 3


def made(name: str, **changes: Any) -> Any:
    """A tiny network of the family, in eval mode; biases and norms are drawn too."""
    torch.manual_seed(0)
    name, _, number = name.partition("+")
    variant = models.family(name).variants[int(number) - 1] if number else {}
    shape = dataclasses.asdict(models.family(name).shape(**{**models.family(name).tiny, **variant, **changes}))
    module = models.build({"family": name, "shape": shape, "vocab_size": V})
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return module.eval()


def window(module: Any) -> Tensor:
    return torch.randint(V, (B, module.context))


def documents(module: Any) -> Tensor:
    """Three rows: one document, two, and one that starts at every position."""
    time = module.context
    return torch.stack([torch.zeros(time), torch.arange(time) >= time // 3, torch.arange(time)]).long()


def test_every_role_has_a_family() -> None:
    assert {models.family(name).role for name in ALL} == set(get_args(Role))
    assert {name.partition("+")[0] for name in CAUSAL} < set(ALL)
    with pytest.raises(UserError, match="there is no model family 'gtp', did you mean 'gpt'"):
        models.family("gtp")


def test_the_declarations_load_no_torch() -> None:
    code = "import sys\nfrom lexmill import models\n"
    code += "for name in models.families():\n    models.family(name)\n"
    code += "sys.exit(', '.join({'torch', 'transformers', 'numpy'} & sys.modules.keys()) or 0)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("name", ALL)
def test_the_tiny_sizes_are_valid_and_strictly_read(name: str) -> None:
    family, errors = models.family(name), list[str]()
    shape = strict.build(family.shape, dict(family.tiny), errors)
    assert (errors, shape) == ([], family.shape(**family.tiny))
    assert strict.build(family.shape, {**family.tiny, "n_eggs": 3}, errors) is None
    assert errors[0].startswith("n_eggs: unknown key")


@pytest.mark.parametrize("name", ALL)
def test_a_model_folder_gives_the_network_back(name: str, tmp_path: Any) -> None:
    module = made(name)
    config = {"kind": "language_model", "family": name, "shape": dict(models.family(name).tiny), "vocab_size": V}
    folder.save(tmp_path / "model", config, module)
    _, loaded = folder.load(tmp_path / "model")
    ours, theirs = snapshot(module), snapshot(loaded)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


@pytest.mark.parametrize("recipe", [GPT2(), Xavier(), Kaiming()])
@pytest.mark.parametrize("name", ALL)
def test_each_recipe_draws_every_matrix_anew(name: str, recipe: Recipe) -> None:
    module = made(name)
    before = snapshot(module)
    initialize(module, recipe)
    for key, parameter in module.named_parameters():
        if parameter.ndim >= 2:
            assert not torch.equal(parameter, before[key]), key
        assert parameter.isfinite().all(), key


@pytest.mark.parametrize("name", ALL)
def test_fused_weights_are_made_of_equal_matrices(name: str) -> None:
    module = made(name)
    for path, (groups, parts) in fused_layouts(module).items():
        weight = module.get_parameter(path)
        assert weight.ndim == 2
        assert weight.size(0) % (groups * parts) == 0, path
        assert parts > 1


READ = [name for name in ALL if models.family(name).model_types]


@pytest.mark.parametrize("name", READ)
def test_its_configuration_goes_to_transformers_and_back(name: str) -> None:
    module = pretrained.mapping(name)
    family = models.family(name)
    shape = dataclasses.asdict(family.shape(**family.tiny))
    written = module.write_config(shape, V)
    assert written["model_type"] == family.model_types[0]
    assert unlike(name, shape, name, module.read_shape(written)) == {}
    state = snapshot(made(name))
    again = module.read_state(shape, module.write_tensors(shape, state))
    assert again.keys() == state.keys()
    assert all(torch.equal(again[key], state[key]) for key in state)


@pytest.mark.parametrize("name", ALL)
def test_what_may_differ_when_weights_are_taken_over(name: str) -> None:
    family = models.family(name)
    shape = dataclasses.asdict(family.shape(**family.tiny))
    assert unlike(name, shape, name, {**shape, **dict.fromkeys(family.free, 0.5)}) == {}
    for key in family.shrinking:
        assert unlike(name, shape, name, {**shape, key: shape[key] + 1}) == {}
        longer = unlike(name, shape, name, {**shape, key: shape[key] - 1})
        assert longer == {key: (shape[key] - 1, shape[key])}
        assert mismatch("there", longer).startswith(f"there has {key} {shape[key] - 1}, this model has")
    assert unlike(name, shape, "another", shape) == {"family": ("another", name)}


@pytest.mark.parametrize("name", CAUSAL)
def test_no_logit_depends_on_a_later_token(name: str) -> None:
    module = made(name)
    tokens, place = window(module), module.context // 2
    changed = tokens.clone()
    changed[:, place:] = (changed[:, place:] + 1) % V
    before, after = module(tokens), module(changed)
    assert torch.equal(before[:, :place], after[:, :place])
    assert not torch.allclose(before[:, place], after[:, place])


@pytest.mark.parametrize("name", CAUSAL)
def test_reading_on_from_a_cache_is_reading_at_once(name: str) -> None:
    module = made(name)
    tokens = window(module)
    whole = module(tokens)  # (B, T, V)
    with torch.inference_mode():
        cache, rows = module.new_cache(B), torch.arange(B)
        torch.testing.assert_close(module.next_logits(tokens[:, :3], cache), whole[:, 2], rtol=1e-4, atol=1e-4)
        for place in range(3, module.context):
            assert cache.length == place
            found = module.next_logits(tokens[rows, place : place + 1], cache)
            torch.testing.assert_close(found, whole[rows, place], rtol=1e-4, atol=1e-4)
            if place == 5:
                rows = torch.tensor([2, 0, 2, 1])  # a beam's choice
                cache.reorder(rows)
    if not module.carries:
        with pytest.raises(ValueError, match="cannot be read with a cache"):
            module(tokens, module.new_cache(B), torch.zeros_like(tokens))
    with pytest.raises(ValueError, match="at least one sequence"):
        module.new_cache(0)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_document_has_the_logits_that_it_has_alone(name: str) -> None:
    module = made(name)
    tokens, packed = window(module), documents(module)
    logits = module(tokens, documents=packed)
    for row in range(B):
        for number in packed[row].unique():
            places = packed[row] == number
            alone = module(tokens[row : row + 1, places])[0]
            torch.testing.assert_close(logits[row, places], alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CAUSAL)
def test_a_state_carries_into_the_first_document_of_a_window_if_the_family_says_so(name: str) -> None:
    module, family = made(name), models.family(name.partition("+")[0])
    assert module.carries == family.carries
    if family.carries:
        tokens = torch.randint(V, (B, 2 * module.context))
        packed = torch.cat([torch.zeros_like(documents(module)), documents(module)], dim=1)
        whole = module(tokens, documents=packed)
        cache = module.new_cache(B)
        halves = zip(tokens.chunk(2, dim=1), packed.chunk(2, dim=1), strict=True)
        found = [module(one, cache, numbers) for one, numbers in halves]
        torch.testing.assert_close(torch.cat(found, dim=1), whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", CAUSAL)
def test_the_loss_is_the_sum_of_nats_over_the_counted_targets(name: str, packed: bool) -> None:
    module = made(name)
    tokens, targets, numbers = window(module), window(module), documents(module) if packed else None
    targets[0, :4] = -100
    logits = module(tokens, documents=numbers).flatten(0, 1)
    wanted = nn.functional.cross_entropy(logits, targets.flatten(), reduction="sum")
    parameters = list(module.parameters())
    gradients = torch.autograd.grad(wanted, parameters)
    found = module.loss(tokens, targets, numbers)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-4)
    for one, other in zip(torch.autograd.grad(found, parameters), gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", CAUSAL)
def test_parameters_and_flops_are_counted(name: str) -> None:
    """FLOPs by torch's own counter of a forward and a backward pass."""
    module = made(name)
    fixed = dict(module.named_buffers())
    trained = {key: value for key, value in snapshot(module).items() if key not in fixed}
    assert module.count_parameters() == sum(value.numel() for value in trained.values())
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        hidden = module.hidden(window(module))
        if not hidden.requires_grad:
            hidden.requires_grad_()  # the loss computes this gradient in any case
        module.logits(hidden).sum().backward()
    if any(isinstance(child, nn.RNNBase) for child in module.modules()):
        return  # torch does not count inside its recurrent kernels
    stepwise = any(isinstance(child, RecurrentLayer) for child in module.modules())  # no way back to the first state
    close = 1 / module.context if stepwise else 1e-6
    assert module.flops_per_token() == pytest.approx(counter.get_total_flops() / (B * module.context), rel=close)


@pytest.mark.parametrize("name", CAUSAL)
def test_what_reads_any_length_says_so_and_does(name: str) -> None:
    module = made(name)
    assert module.unlimited == module.shape.unlimited
    if module.unlimited:
        tokens = torch.randint(V, (B, 3 * module.context))
        cache = module.new_cache(B)
        with torch.inference_mode():
            pieces = [module(piece, cache) for piece in tokens.split(5, dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), module(tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", CAUSAL)
def test_its_blocks_are_planned_and_split_or_refused(name: str) -> None:
    module = made(name)
    learning = module.embedding.weight.requires_grad  # a reservoir on a fixed embedding has no way back
    for block in module.blocks:
        assert block.activation_bytes(4, 4, 1.0) >= block.activation_bytes(2, 1, 0.5) >= 0
        assert (block.activation_bytes(2, 1, 0.5) > 0) == learning
        assert block.gradient_bytes(4) > 0
    if any(mixer.split() is None for mixer in module.mixers):
        with pytest.raises(UserError, match="use strategy: ddp or fsdp"):
            module.tensor_parallel_plan()
        return
    plan = module.tensor_parallel_plan()
    assert {path.split(".")[1] for path in plan} == {str(index) for index in range(len(module.blocks))}
    assert all(isinstance(module.get_submodule(path), nn.Linear) for path in plan)


@pytest.mark.parametrize("name", models.families("encoder"))
def test_an_encoders_padding_changes_nothing(name: str) -> None:
    module = made(name)
    tokens = torch.randint(V, (2, 6))
    mask = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    hidden = module.hidden(tokens, mask)
    assert hidden.shape == (2, 6, module.d_model)
    alone = module.hidden(tokens[1:, :4], mask[1:, :4])
    torch.testing.assert_close(hidden[1:, :4], alone, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="positions"):
        module.hidden(*(torch.ones(1, module.max_positions + 1, dtype=kind) for kind in (torch.long, torch.bool)))
