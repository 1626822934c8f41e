"""A network mixed with n-grams: beside a slow twin, its weights, and the stage."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import yaml

from lexmill import models, params
from lexmill.base import layout, storage
from lexmill.base.errors import UserError, UserErrors
from lexmill.commands import plan
from lexmill.commands.compare import subjects
from lexmill.data.encoding import encode_corpus
from lexmill.decoding.sampling import continue_tokens
from lexmill.decoding.settings import Sampling
from lexmill.evaluation.scoring import NetworkScorer
from lexmill.kinds.language_model.mixing import improve, nats
from lexmill.kinds.language_model.ngrams.kneser_ney import KneserNey
from lexmill.kinds.language_model.predict import Predictor
from lexmill.kinds.language_model.sentences import log_probabilities
from lexmill.models import folder as model_folder
from lexmill.models.common.mixture import Mixture
from lexmill.models.common.window import window_start
from lexmill.models.pretrained import read
from lexmill.registry import hugging_face
from lexmill.stages import train
from lexmill.tokenizers import kinds, load, saving
from tests.support.small_project import MODEL, params_of, whole

V, EOS, K = 7, 0, 3
TRAIN = [[1, 2, 3, 1, 2, 3, 4, 5], [5, 4, 1, 2, 6], [1, 2, 3, 3, 2, 1]]
SHAPE = {"n_layer": 1, "n_head": 2, "d_model": 8, "context": 64}


def mixture(order: int, context: int = 64) -> tuple[Mixture, KneserNey]:
    """A mixture with drawn weights, and its n-grams."""
    ngrams = KneserNey(order, V, EOS)
    ngrams.fit(TRAIN)
    sizes = [[len(level.keys), len(level.rest)] for level in ngrams.levels]
    config = {"family": "decoder", "shape": SHAPE | {"context": context}, "vocab_size": V}
    torch.manual_seed(3)
    module = cast(Mixture, models.build(config | {"mixture": {"ngrams": sizes, "document_order": K, "eos_id": EOS}}))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.5)
    for number, level in enumerate(ngrams.levels, start=1):
        for part in ("keys", "share", "rest"):
            module.tables.get_buffer(f"{part}_{number}").copy_(torch.from_numpy(getattr(level, part)))
    drawn = torch.rand(K + 1, 2 + K, dtype=torch.float64).tril(diagonal=1)
    module.weights.copy_(drawn / drawn.sum(dim=1, keepdim=True))
    return module.eval(), ngrams


@torch.no_grad()
def twin(module: Mixture, ngrams: KneserNey, tokens: list[int]) -> np.ndarray[Any, Any]:
    """The equation of `models.common.mixture`, token by token, (T, V)."""
    network = module.network(torch.tensor([tokens]))[0].double().softmax(-1).numpy()
    found = []
    for t in range(len(tokens)):
        parts = np.zeros((2 + K, V))
        parts[0], parts[1] = network[t], ngrams.distribution(tokens[1 : t + 1] if tokens[0] == EOS else tokens[: t + 1])
        longest = 0
        for k in range(1, K + 1):
            context = tokens[t + 1 - (k - 1) : t + 1]
            if len(context) < k - 1:
                continue
            earlier = [u for u in range(k - 2, t) if tokens[u + 1 - (k - 1) : u + 1] == context and u >= 0]
            followers = Counter(tokens[u + 1] for u in earlier)
            if followers:
                longest = k
                for token, count in followers.items():
                    parts[1 + k, token] = count / len(earlier)
        found.append(module.weights[longest].numpy() @ parts)
    return np.array(found)


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("first", [EOS, 4])
@torch.no_grad()
def test_the_logits_are_the_logarithms_of_the_equation(order: int, first: int) -> None:
    module, ngrams = mixture(order)
    tokens = [first, 1, 2, 3, 1, 2, 5, 1, 2, 3, 6, 6, 6, 1, 2]
    found = module(torch.tensor([tokens]))[0].double().exp()
    assert found.sum(dim=-1).numpy() == pytest.approx(np.ones(len(tokens)), abs=1e-6)
    assert found.numpy() == pytest.approx(twin(module, ngrams, tokens), rel=1e-5)


@torch.no_grad()
def test_the_targets_of_a_document_have_the_probabilities_of_the_logits() -> None:
    module, _ = mixture(3)
    stream = torch.tensor([EOS, 1, 2, 1, 2, 3, 1, 2, 3, 1, 5, EOS])
    whole = module(stream[None, :-1])[0].double().gather(1, stream[1:, None])[:, 0]
    network = module.network(stream[None, :-1])[0].double().softmax(-1).gather(1, stream[1:, None])[:, 0]
    parts, longest = module.parts(network, stream)
    assert longest.tolist() == [0, 1, 1, 2, 3, 1, 2, 3, 3, 3, 1]
    assert (module.weights[longest] * parts).sum(dim=1).log().numpy() == pytest.approx(whole.numpy(), rel=1e-5)


@torch.no_grad()
def test_decoding_with_a_cache_gives_what_a_whole_row_gives() -> None:
    module, _ = mixture(3)
    rows = torch.tensor([[EOS, 1, 2, 3, 1, 2, 3], [EOS, 5, 5, 5, 4, 5, 5]])
    expected = module(rows)
    cache = module.new_cache(2)
    assert torch.allclose(module.next_logits(rows[:, :3], cache), expected[:, 2], atol=1e-5)
    assert torch.allclose(module.next_logits(rows[:, 3:4], cache), expected[:, 3], atol=1e-5)
    cache.reorder(torch.tensor([1, 0, 1]))
    assert torch.allclose(module.next_logits(rows[[1, 0, 1], 4:], cache), expected[[1, 0, 1], 6], atol=1e-5)


@torch.no_grad()
def test_behind_the_networks_window_the_document_still_counts() -> None:
    """A window of 8 moves on by 4; the n-grams see all 30 tokens."""
    module, _ = mixture(3, context=8)
    tokens = torch.randint(1, V, (1, 30), generator=torch.Generator().manual_seed(1))
    cache = module.new_cache(1)
    for length in range(1, 31):
        found = module.next_logits(tokens[:, length - 1 : length], cache)
        start = window_start(length, 8)
        network = module.network(tokens[:, start:length])[:, -1:]
        assert torch.allclose(found, module._mixed(network, tokens[:, :length])[:, 0], atol=1e-5)


@torch.no_grad()
def test_a_later_token_changes_no_earlier_logit() -> None:
    module, _ = mixture(4)
    tokens = torch.tensor([[EOS, 1, 2, 3, 1, 2, 3, 4]])
    other = tokens.clone()
    other[0, 5:] = torch.tensor([6, 6, 1])
    assert torch.equal(module(tokens)[:, :5], module(other)[:, :5])


def test_texts_are_written_as_by_any_language_model() -> None:
    module, _ = mixture(3, context=8)
    sampling = Sampling(max_tokens=20, temperature=0.0)
    (found,) = continue_tokens(module, [[EOS, 1, 2]], sampling, eos=EOS, never_written=[])
    stream = [EOS, 1, 2]
    cache = module.new_cache(1)
    new = torch.tensor([stream])
    while len(stream) < 23:
        best = int(module.next_logits(new, cache).argmax())
        if best == EOS:
            break
        stream.append(best)
        new = torch.tensor([[best]])
    assert found == stream[3:]


@pytest.mark.parametrize("length", range(5))
@torch.no_grad()
def test_a_short_document_is_scored(length: int) -> None:
    module, _ = mixture(3)
    stream = torch.tensor([EOS, *[1, 2, 1, 2][:length], EOS])
    whole = module(stream[None, :-1])[0].double().gather(1, stream[1:, None])[:, 0]
    network = module.network(stream[None, :-1])[0].double().softmax(-1).gather(1, stream[1:, None])[:, 0]
    parts, longest = module.parts(network, stream)
    assert (module.weights[longest] * parts).sum(dim=1).log().numpy() == pytest.approx(whole.numpy(), rel=1e-5)


@torch.no_grad()
def test_bfloat16_rounds_the_network_alone() -> None:
    module, _ = mixture(3)
    tokens = torch.tensor([[EOS, 1, 2, 3, 1, 2]])
    before, share = module(tokens), module.tables.get_buffer("share_2").clone()
    low = module.bfloat16()
    assert low is module
    assert {parameter.dtype for parameter in module.parameters()} == {torch.bfloat16}
    assert torch.equal(module.tables.get_buffer("share_2"), share)
    assert torch.allclose(module(tokens), before, atol=0.05)


def test_a_sentence_is_scored_as_a_document_of_the_evaluation(workspace: Path) -> None:
    train.main("toy")
    train.main("mixed")
    config, module = model_folder.load(layout.model("mixed"))
    tokenizer = load(layout.model("mixed") / "tokenizer")
    text = TEXTS[0]["text"]  # several windows
    (found,) = log_probabilities(Predictor("mixed", config, module, tokenizer), [text])
    scorer = NetworkScorer(module.network, module.context, tokenizer.eos_id, 1000, 0.5)
    stream = torch.tensor([tokenizer.eos_id, *tokenizer.encode(text), tokenizer.eos_id])
    (network,) = scorer.log_probabilities([tokenizer.encode(text)])
    parts, longest = module.parts(torch.from_numpy(network).exp(), stream)
    assert found == pytest.approx(float((module.weights[longest] * parts).sum(dim=1).log().sum()), rel=1e-9)


def test_each_step_of_the_fit_is_no_worse_and_finds_the_shares_of_a_drawn_mixture() -> None:
    """Two parts that never give the same token anything: their weights are the shares of tokens that each gives."""
    torch.manual_seed(0)
    longest = torch.randint(0, 2, (6000,))
    of_first = torch.rand(6000) < torch.tensor([0.2, 0.7])[longest]
    parts = torch.zeros(6000, 3, dtype=torch.float64)
    parts[:, 0] = torch.where(of_first, 0.5, 1e-9)
    parts[:, 1] = torch.where(of_first, 1e-9, 0.5)
    weights = torch.zeros(2, 3, dtype=torch.float64)
    before = [improve(weights, parts, longest) for _ in range(20)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(before))
    assert nats(weights, parts, longest) <= before[-1]
    for length in (0, 1):
        share = float(of_first[longest == length].double().mean())
        assert weights[length].tolist() == pytest.approx([share, 1 - share, 0], abs=1e-6)


def test_a_length_that_few_tokens_have_takes_the_weights_of_all() -> None:
    parts = torch.rand(3000, 4, dtype=torch.float64)
    longest = torch.where(torch.arange(3000) < 10, 0, 2)  # 10 tokens after a new context
    weights = torch.zeros(3, 4, dtype=torch.float64)
    for _ in range(3):
        improve(weights, parts, longest)
    assert weights.sum(dim=1).tolist() == pytest.approx([1, 1, 1])
    assert weights[0, 2:].tolist() == [0, 0], "what it has not seen has no part"
    assert weights[1, 3] == 0
    assert float(weights[0, 0] / weights[0, 1]) == pytest.approx(float(weights[2, 0] / weights[2, 1]), rel=0.05)


MIXED = {
    **MODEL,
    "start": "artifacts/models/toy",
    "recipe": {"method": "mixture", "ngram_order": 3, "document_order": 2},
}
TEXTS = [{"text": ("abcd" * 40)[start : start + 100]} for start in range(4)]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEXMILL_EXECUTION", "execution.yaml")
    Path("execution.yaml").write_text("threads: 1\n")
    Path("gpt2.yaml").write_text("name: gpt2\nstd: 0.02\n")
    folder = layout.tokenizer("letters")
    folder.mkdir(parents=True)
    saving.save(kinds.assemble("character", kinds.character_model(list("abcd")), lowercase=False), folder)
    with storage.new_folder(layout.tokens("rows", "letters")) as shards:
        encode_corpus(shards, "text", {"train": TEXTS * 5, "valid": TEXTS[:2]}, load(folder), "0" * 64)
    choose(toy=MODEL, mixed=MIXED)
    return tmp_path


def choose(**entries: Any) -> None:
    Path("params.yaml").write_text(yaml.safe_dump(whole({**params_of(steps=2), "models": entries})))


def test_the_stage_keeps_the_network_and_beats_it(workspace: Path) -> None:
    train.main("toy")
    train.main("mixed")
    metrics = storage.read_json(layout.metrics("train", "mixed"))
    assert metrics["valid_loss"] < metrics["network_valid_loss"]
    assert metrics["valid_loss"] <= metrics["ngram_valid_loss"]
    toy = storage.read_json(layout.metrics("train", "toy"))
    assert metrics["parameters"] == toy["parameters"]
    _, network = model_folder.load(layout.model("toy"))
    _, module = model_folder.load(layout.model("mixed"))
    assert isinstance(module, Mixture)
    for name, value in network.state_dict().items():
        assert torch.equal(module.network.state_dict()[name], value)
    tokenizer = load(layout.model("mixed") / "tokenizer")
    stream = torch.tensor([tokenizer.eos_id, *tokenizer.encode(TEXTS[0]["text"])])
    again = read(layout.model("mixed"))
    assert again.state.keys() == read(layout.model("toy")).state.keys(), "a training that starts here takes the network"
    with torch.no_grad():
        assert module(stream[None, :16]).exp().sum(dim=-1).tolist()[0] == pytest.approx([1.0] * 16, abs=1e-5)
    layout.curve("mixed").unlink()
    first = storage.sha256_folder(layout.model("mixed"))
    train.main("mixed")
    assert storage.sha256_folder(layout.model("mixed")) == first
    assert len(layout.curve("mixed").read_text().splitlines()) == 1 + metrics["steps"]


def test_what_a_mixture_cannot_be_is_refused(workspace: Path, tmp_path: Path) -> None:
    choose(toy=MODEL, mixed=MIXED | {"start": "gpt2.yaml"})
    with pytest.raises(UserErrors, match=r"models\.mixed\.start: a mixture takes a trained network, such as"):
        params.load()
    choose(toy=MODEL, mixed=MIXED)
    with pytest.raises(UserError, match=r"models\.mixed: a mixture with n-grams is fitted"):
        plan.plan(
            ["mixed"],
            devices=None,
            device_name=None,
            tflops=None,
            utilisation=0.4,
            micro_batch=None,
            vocab_size=9,
            as_json=False,
        )
    train.main("toy")
    train.main("mixed")
    config = model_folder.read_config(layout.model("mixed"))
    with pytest.raises(UserError, match="with n-grams beside the network, which transformers does not have"):
        hugging_face._refuse_heads(config, "causal", "'mixed' is a language model")


def test_a_comparison_refuses_it(workspace: Path) -> None:
    with pytest.raises(UserError, match="the preset mixture is trained by no steps"):
        subjects.load(["mixture"], None, Path(__file__).parents[3])
