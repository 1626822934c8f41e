"""What holds of every encoder-decoder: its cache, its padding, rows that share a source, what a target may see."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from lexmill import models
from lexmill.decoding.beam_search import beam_search
from lexmill.decoding.settings import BeamSearch, Sampling
from lexmill.kinds.translator.predict import translate_lines

from ..decoding.forced import score
from ..decoding.naive import greedy
from ..kinds.translator.test_predict import Letters
from .test_families import V, made, of_role

NAMES = of_role("encoder_decoder")


def pairs(lengths: list[tuple[int, int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Random source (B, S), its mask, target (B, T), padded on the right."""
    torch.manual_seed(5)
    s, t = max(s for s, _ in lengths), max(t for _, t in lengths)
    source, target = torch.randint(5, V, (len(lengths), s)), torch.randint(5, V, (len(lengths), t))
    mask = torch.arange(s)[None, :] < torch.tensor([s for s, _ in lengths])[:, None]
    return source.masked_fill(~mask, 0), mask, target


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_decoding_with_a_cache_gives_the_logits_of_decoding_without(name: str) -> None:
    module = made(name)
    source, mask, target = pairs([(7, 9), (4, 9)])
    memory = module.encode(source, mask)
    whole = module.decode(target, memory, mask)
    cache = module.new_cache(memory, mask)
    parts = [module.decode(part, memory, mask, cache) for part in target.split([1, 3, 1, 4], dim=1)]
    close(torch.cat(parts, dim=1), whole)
    assert cache.length == 9
    close(module(source, mask, target), whole)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_rows_may_share_a_source_and_be_reordered(name: str) -> None:
    module = made(name)
    source, mask, target = pairs([(7, 6), (4, 6), (2, 6)])
    memory = module.encode(source, mask)
    cache = module.new_cache(memory, mask)
    beams = target.repeat_interleave(2, dim=0)  # (6, T): two rows a source
    beams[1::2] = beams[1::2].flip(1)
    module.decode(beams[:, :3], memory, mask, cache)
    rows, sources = torch.tensor([5, 4, 1, 1]), torch.tensor([2, 0])
    cache.reorder(rows, sources)
    found = module.decode(beams[rows, 3:], memory[sources], mask[sources], cache)
    close(found, module(source[[2, 2, 0, 0]], mask[[2, 2, 0, 0]], beams[rows])[:, 3:])
    with pytest.raises(ValueError, match="5 targets are no multiple of 3 sources"):
        module.decode(beams[:5], memory, mask)


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_padding_changes_nothing(name: str) -> None:
    module = made(name)
    source, mask, target = pairs([(7, 5), (4, 3)])
    source[1, 4:] = 9  # whatever is under the mask
    close(module(source, mask, target)[1, :3], module(source[1:, :4], mask[1:, :4], target[1:, :3])[0])


@pytest.mark.parametrize("name", NAMES)
def test_a_row_of_padding_alone_gives_numbers_and_gradients_that_are_numbers(name: str) -> None:
    module = made(name)
    source, mask, target = pairs([(5, 4), (3, 4)])
    mask[1] = False
    logits = module(source, mask, target)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_no_token_sees_one_after_it_and_all_see_the_source(name: str) -> None:
    module = made(name)
    source, mask, target = pairs([(6, 7)])
    inputs = module.embedding(target).detach().requires_grad_()
    logits = with_embeddings(module, source, mask, target, inputs)
    for t in range(7):
        (gradient,) = torch.autograd.grad(logits[0, t].square().sum(), inputs, retain_graph=True)
        assert gradient[0, t].abs().sum() > 0
        assert not gradient[0, t + 1 :].any()
    inputs = (module.source_embedding or module.embedding)(source).detach().requires_grad_()
    logits = with_embeddings(module, source, mask, target, inputs)
    (gradient,) = torch.autograd.grad(logits[0, 0].square().sum(), inputs)
    assert (gradient.abs().sum(dim=2) > 0).all()


def with_embeddings(module: Any, source: Tensor, mask: Tensor, target: Tensor, inputs: Tensor) -> Tensor:
    """The logits where the vectors of one side are `inputs`; the sides differ in length."""

    def replace(_: Any, given: tuple[Tensor], out: Tensor) -> Tensor:
        return inputs if given[0].shape == inputs.shape[:2] else out

    handles = [one.register_forward_hook(replace) for one in (module.embedding, module.source_embedding) if one]
    try:
        found: Tensor = module(source, mask, target)
    finally:
        for handle in handles:
            handle.remove()
    return found


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_an_alignment_is_shares_of_the_source_and_of_nothing_else(name: str) -> None:
    module = made(name)
    source, mask, target = pairs([(7, 5), (4, 5)])
    found = module.alignment(source, mask, target)
    close(found.sum(dim=2), torch.ones(2, 5))
    assert (found >= 0).all()
    if found.size(2) > 1:  # with attention
        assert found.shape == (2, 5, 7)
        assert not found[1, :, 4:].any()
    close(found[:, :3], module.alignment(source, mask, target[:, :3]))
    close(found[1:, :, :4], module.alignment(source[1:, :4], mask[1:, :4], target[1:]))


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_fit_is_refused(name: str) -> None:
    module = made(name)
    source, mask, target = pairs([(5, 4), (3, 4)])
    with pytest.raises(ValueError, match="13 positions, but the model has 12"):
        module(source, mask, torch.ones(2, 13, dtype=torch.int64))
    with pytest.raises(ValueError, match="13 positions, but the model has 12"):
        module.encode(torch.ones(2, 13, dtype=torch.int64), torch.ones(2, 13, dtype=torch.bool))
    with pytest.raises(ValueError, match="source_mask"):
        module.encode(source, mask[:, :3])
    cache = module.new_cache(module.encode(source, mask), mask)
    module.decode(torch.ones(2, 11, dtype=torch.int64), module.encode(source, mask), mask, cache)
    with pytest.raises(ValueError, match="13 positions"):
        module.decode(target[:, :2], module.encode(source, mask), mask, cache)


@pytest.mark.parametrize("name", NAMES)
def test_the_score_of_a_search_is_that_of_forced_decoding_and_independent_of_the_batch(name: str) -> None:
    module, search = made(name), BeamSearch(3, 0.6, 1.0, 3)
    source, mask, _ = pairs([(6, 1), (3, 1), (4, 1)])
    source[torch.arange(3), mask.sum(1) - 1] = 3  # the end token
    together = beam_search(module, source, mask, search, 3)
    for i, found in enumerate(together):
        size = int(mask[i].sum())
        alone = beam_search(module, source[i : i + 1, :size], mask[i : i + 1, :size], search, 3)[0]
        assert [one.tokens for one in alone] == [one.tokens for one in found]
        sources = [tuple(source[i, : size - 1].tolist())] * len(found)
        forced = score(module, sources, [one.tokens for one in found])
        assert [one.log_probability for one in found] == pytest.approx(forced, abs=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_lines_are_decoded_alike_in_every_order_and_batch(name: str) -> None:
    """By a beam, by one place (greedy search), and by draws; an empty line is empty, the last line is as right."""
    module, lines = cast(nn.Module, made(name)), ["abc", "", "ffedcb", "a", "  ", "abc", "cab", "bbbbbe"]
    letters, draws = cast(Any, Letters()), Sampling(temperature=1.0, seed=2)
    beam, one_place = BeamSearch(3), BeamSearch(1)
    ways: list[tuple[BeamSearch, Sampling | None]] = [(beam, None), (one_place, None), (one_place, draws)]
    for search, sampling in ways:
        found = translate_lines(module, letters, lines, search, 60, sampling=sampling)
        assert [one.text for one in found if one.score == 0] == ["", ""]
        for batch_tokens in (1, 10_000):
            again = translate_lines(module, letters, lines[::-1], search, batch_tokens, sampling=sampling)[::-1]
            # Which of two equal lines comes first decides which draws it gets.
            same = [i for i in range(len(lines)) if sampling is None or lines[i] != "abc"]
            assert [again[i].text for i in same] == [found[i].text for i in same]
            assert [again[i].score for i in same] == pytest.approx([found[i].score for i in same], abs=1e-4)
        [alone] = translate_lines(module, letters, lines[-1:], search, 60, sampling=sampling)
        assert alone.text == found[-1].text
    searched = translate_lines(module, letters, lines, one_place, 60)
    expected = [greedy(module, ids, min(2 * len(ids) + 10, 11)) if ids else () for ids in letters.encode_batch(lines)]
    assert [one.text for one in searched] == [letters.decode(row) for row in expected]


@pytest.mark.parametrize("name", NAMES)
def test_its_first_weights_depend_on_the_seed_alone(name: str) -> None:
    family = models.family(name.partition("+")[0])
    config = {"family": name.partition("+")[0], "vocab_size": V, "shape": dict(family.tiny)}
    torch.manual_seed(1)
    one = models.build(config).state_dict()
    torch.manual_seed(1)
    two = models.build(config).state_dict()
    assert all(torch.equal(one[key], two[key]) for key in one)
