"""Low-rank adaptation: nothing changes at first, what is learned is merged, only the thin matrices are trained."""

import pytest
import torch

from lexmill import models
from lexmill.models.common import lora
from lexmill.models.declaration import families, family


def network(name: str) -> torch.nn.Module:
    torch.manual_seed(2)
    return models.build({"family": name, "shape": dict(family(name).tiny), "vocab_size": 40}).eval()


def logits(module: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = module(torch.arange(2, 12)[None])
        return found


LINEAR = [
    name
    for name in families("causal")
    if any(
        isinstance(layer, torch.nn.Linear)
        for part in network(name).modules()
        if isinstance(part, torch.nn.ModuleList)
        for layer in part.modules()
    )
]


def test_most_families_have_linear_layers_in_their_blocks() -> None:
    assert {"gpt", "llama", "decoder", "linear_attention"} <= set(LINEAR)
    with pytest.raises(ValueError, match="no linear layer"):
        lora.adapt(network("lstm"), 2, 4.0)


@pytest.mark.parametrize("name", LINEAR)
def test_adapted_trained_and_merged(name: str) -> None:
    module, plain = network(name), network(name)
    names = set(dict(module.named_parameters()))
    lora.adapt(module, 2, 4.0)
    torch.testing.assert_close(logits(module), logits(plain), atol=0, rtol=0)
    trained = {key for key, value in module.named_parameters() if value.requires_grad}
    assert trained
    assert all(".parametrizations.weight.0." in key for key in trained)
    wanted = {}
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, layer in module.named_modules():
            if isinstance(layer, lora.LowRank):
                layer.b.copy_(torch.randn(layer.b.shape, generator=generator) * 0.1)
                wanted[key.removesuffix(".parametrizations.weight.0") + ".weight"] = 4.0 / 2 * layer.b @ layer.a
    before = logits(module)
    assert not torch.equal(before, logits(plain))
    lora.merge(module)
    assert set(dict(module.named_parameters())) == names
    assert all(parameter.requires_grad for parameter in module.parameters())
    torch.testing.assert_close(logits(module), before, atol=1e-5, rtol=1e-5)
    first = dict(plain.named_parameters())
    for key, value in module.named_parameters():
        torch.testing.assert_close(value, first[key] + wanted.get(key, 0.0), atol=1e-6, rtol=1e-6)
