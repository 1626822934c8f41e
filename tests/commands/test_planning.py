"""`lexmill plan`: its formulas against hand-worked numbers and against what torch really allocates."""

import contextlib
import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from lexmill.base.errors import UserError
from lexmill.commands.plan import duration, planning
from lexmill.commands.plan import plan as command
from lexmill.commands.plan.planning import Machine, Memory, Plan
from lexmill.config.compose import compose
from lexmill.kinds.language_model import Data, Evaluate, LanguageModel
from lexmill.models import build
from lexmill.models.common.state import weights
from lexmill.models.elman.shape import Shape as ElmanShape
from lexmill.models.gpt.shape import Shape as GPTShape
from lexmill.models.gru.shape import Shape as GRUShape
from lexmill.models.llama.shape import Shape as LlamaShape
from lexmill.models.lstm.shape import Shape as LSTMShape
from lexmill.models.reservoir.shape import Shape as ReservoirShape
from lexmill.params import Params, parse
from lexmill.params.length import Length
from lexmill.params.optimizers import SGD, AdaDelta, AdaGrad, Adam, AdamW, CosineSchedule, Muon, Optimizer, RMSprop
from lexmill.params.recipe import Recipe
from lexmill.training import optimizers

ROOT = Path(__file__).parents[2]
V, T = 97, 64
SHAPES: dict[str, Any] = {
    "gpt": GPTShape(n_layer=3, n_head=4, d_model=64, context=T),
    "llama": LlamaShape(n_layer=3, n_head=4, n_kv_head=2, d_model=64, d_ffn=160, context=T),
    "lstm": LSTMShape(n_layer=3, d_model=64, context=T),
    "gru": GRUShape(n_layer=3, d_model=64, context=T),
    "elman": ElmanShape(n_layer=3, d_model=64, context=T),
    "reservoir": ReservoirShape(n_layer=3, d_model=64, context=T, train_embedding=True),
}
OPTIMIZERS = [
    SGD("sgd", lr=0.1),
    SGD("sgd", lr=0.1, momentum=0.9, nesterov=True),
    AdaGrad("adagrad", lr=0.1),
    AdaDelta("adadelta", lr=1.0),
    RMSprop("rmsprop", lr=0.1),
    RMSprop("rmsprop", lr=0.1, momentum=0.9),
    Adam("adam", lr=0.1),
    AdamW("adamw", lr=0.1),
    Muon("muon", lr=0.1),
]


def entry(family: str, **changes: Any) -> LanguageModel:
    shape = changes.pop("shape", SHAPES[family])
    shape = dataclasses.replace(shape, **{key: changes.pop(key) for key in ("dropout", "n_layer") if key in changes})
    recipe = {
        "method": "gradient",
        "optimizer": AdamW("adamw", lr=0.1),
        "schedule": CosineSchedule("cosine"),
        "length": Length(10, "steps"),
        "batch": 8 * T,
    }
    return LanguageModel(
        kind="language_model",
        family=family,
        shape=shape,
        data=Data(corpus="c", train="c", tokenizer="t"),
        start="conf/initialization/gpt2.yaml",
        recipe=Recipe(**{**recipe, **changes}),
        evaluate=Evaluate(),
    )


def network(model: LanguageModel) -> nn.Module:
    config = {"family": model.family, "shape": dataclasses.asdict(model.shape), "vocab_size": V}
    return build(config).train()


def loss_of(module: nn.Module, model: LanguageModel, rows: int) -> torch.Tensor:
    tokens = torch.randint(V, (rows, T))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=model.recipe.precision == "bf16-mixed"):
        return module.loss(tokens, tokens.roll(1, 0))  # type: ignore[operator,no-any-return]


@contextlib.contextmanager
def kept_for_the_way_back(module: nn.Module) -> Iterator[dict[int, int]]:
    """The bytes of each storage that autograd keeps, parameters and buffers left out."""
    own = {one.untyped_storage().data_ptr() for one in (*module.parameters(), *module.buffers())}
    alive, found = [], {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            alive.append(storage)
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield found


@pytest.mark.parametrize("family", SHAPES)
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_activations_are_what_autograd_keeps(family: str, precision: Any, dropout: float) -> None:
    model = entry(family, precision=precision, dropout=dropout)
    module, rows = network(model), 32
    sizes = planning.measure(module)
    wanted = planning.activations(model, module, sizes, V, tokens=rows * T, on_cpu=True, checkpointing=False)
    with kept_for_the_way_back(module) as found:
        loss = loss_of(module, model, rows)
    assert loss.requires_grad
    assert wanted is not None
    passing = rows * T * module.blocks[0].gradient_bytes(planning.low_bytes(model))  # type: ignore[operator,index,union-attr]
    # The loss's gradient where an Elman layer, which keeps least, gives its output in bf16.
    rounded = 2.1 * rows * T * 64 if (family, precision) == ("elman", "bf16-mixed") else 0.0
    assert sum(found.values()) == pytest.approx(wanted - passing, rel=0.03, abs=rounded)


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda one: one.name)
@pytest.mark.parametrize("family", SHAPES)
def test_weights_gradients_and_optimizer_are_exact(family: str, optimizer: Optimizer) -> None:
    model = entry(family, optimizer=optimizer, keep="ema")
    module = network(model)
    if family == "reservoir" and optimizer.name == "muon":
        with pytest.raises(UserError, match="no matrix in a stack of blocks"):
            optimizers.build(module, optimizer)
        return
    built = optimizers.build(module, optimizer)
    loss_of(module, model, 1).backward()  # type: ignore[no-untyped-call]
    built.step()
    row = only(model).memory[0]
    parameters = list(module.parameters())
    assert row.weights == row.running_mean == sum(value.nbytes for value in weights(module).values())
    assert row.gradients == sum(p.grad.nbytes for p in parameters if p.grad is not None)
    assert row.optimizer == sum(value.nbytes for value in built.named_state().values())


def only(model: LanguageModel, **changes: Any) -> Plan:
    machine = Machine(**{"devices": 1, "micro_batch": 0, "peak": None, "utilisation": 0.5, "on_cpu": True, **changes})
    params = Params.__new__(Params)  # nothing else of it is read
    object.__setattr__(params, "models", {"m": model})
    return planning.plan(params, "m", machine, V)


def peak_of_a_step(module: nn.Module, built: Any, model: LanguageModel, rows: int) -> int:
    """The most bytes that a second step, whose gradients are there already, takes beside what it finds."""
    loss_of(module, model, rows).backward()  # type: ignore[no-untyped-call]
    built.step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        loss_of(module, model, rows).backward()  # type: ignore[no-untyped-call]
        built.step()
    now = most = 0
    events = profile.profiler.kineto_results.events()  # type: ignore[union-attr]
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("family", SHAPES)
def test_a_small_training_takes_what_was_planned(family: str, precision: Any) -> None:
    """Weights, gradients and optimizer to the byte; with what a step allocates beside them, within 5 %."""
    torch.manual_seed(0)
    model, rows = entry(family, n_layer=6, batch=32 * T, precision=precision, dropout=0.1), 32
    module = network(model)
    built = optimizers.build(module, model.recipe.optimizer)
    beside = peak_of_a_step(module, built, model, rows)
    tensors = [*weights(module).values(), *built.named_state().values()]
    gradients = [parameter.grad for parameter in module.parameters() if parameter.grad is not None]
    row = only(model).memory[0]
    assert row.total is not None
    assert sum(t.nbytes for t in [*tensors, *gradients]) == row.weights + row.gradients + row.optimizer
    assert beside + row.weights + row.gradients + row.optimizer == pytest.approx(row.total, rel=0.05)


def test_the_175_billion_are_planned_by_hand() -> None:
    shape = GPTShape(n_layer=96, n_head=96, d_model=12288, context=2048, d_head=128)
    model = entry(
        "gpt",
        shape=shape,
        precision="bf16-mixed",
        batch=3276800,
        length=Length(300e9, "tokens"),
    )
    params = Params.__new__(Params)
    object.__setattr__(params, "models", {"m": model})
    machine = Machine(devices=8, micro_batch=2048, peak=989.4e12, utilisation=0.4, on_cpu=False)
    found = planning.plan(params, "m", machine, 50257)
    p, d = 174_604_259_328, 12288
    assert found.sizes.parameters == p
    # 6 for each weight of a product: all but positions, biases and norms (13 D a block and 2 D at the end).
    products = p - 2048 * d - 96 * 13 * d - 2 * d
    assert found.sizes.flops_per_token == 6 * products + 12 * 96 * 2048 * d
    assert found.tokens == pytest.approx(300e9, rel=1e-4)
    assert found.seconds == pytest.approx(found.tokens * found.sizes.flops_per_token / (8 * 0.4 * 989.4e12))  # type: ignore[operator]
    rows = {(row.strategy, row.checkpointing): row for row in found.memory}
    single, fsdp, shared = (rows[name, True] for name in ("single", "fsdp", "tensor_parallel"))
    assert single.weights == single.gradients == 4 * p
    assert single.optimizer == 8 * p + 4 * (96 * 12 + 4)
    block = 12 * d * d + 13 * d
    assert fsdp.weights == -(-4 * p // 8)
    assert fsdp.exchange == 8 * (p - 96 * block) + 12 * block
    # What is not shared out: embedding, positions, norms, and the biases of the two projections that end a branch.
    whole = (50257 + 2048) * d + 2 * d + 96 * (4 + 2) * d
    assert shared.weights == pytest.approx(4 * (whole + (p - whole) / 8), rel=1e-12)
    once = 2048 * (8 * d + 16) + 4 * 50257 * d + 2048 * 24 * d
    a_block = 2048 * (8 * d + 2 * (2 * d + 4 * d + 8 * d) + 4 * 96 + 16)
    assert single.activations == 2048 * 96 * 4 * d + a_block + once + 2 * 96 * 12 * d * d
    assert rows["single", False].activations == 96 * a_block + once + 2 * 96 * 12 * d * d
    a_shared_block = 2048 * (8 * d + 2 * 2 * d + (2 * 12 * d + 4 * 96) / 8 + 16)
    assert shared.activations == 2048 * 96 * 4 * d + a_shared_block + once + 2 * 96 * 12 * d * d / 8


def test_a_share_of_the_batch_bounds_the_micro_batch() -> None:
    model = entry("gpt")
    assert only(model, devices=2).micro_batch == {"single": 512, "ddp": 256, "fsdp": 256, "tensor_parallel": 512}
    assert only(model, devices=2, micro_batch=64).micro_batch["ddp"] == 64
    assert [row.strategy for row in only(model).memory] == ["single", "single"]


def test_what_tensor_parallelism_cannot_do_is_reported() -> None:
    assert only(entry("gpt"), devices=3).cannot == {"tensor_parallel": "3 devices do not divide 4 heads"}
    assert only(entry("llama"), devices=4).cannot == {"tensor_parallel": "4 devices do not divide 2 heads"}
    assert "use strategy: ddp or fsdp" in only(entry("lstm"), devices=2).cannot["tensor_parallel"]


def test_a_family_without_a_formula_has_unknown_activations() -> None:
    model = entry("gpt")
    module = network(model)
    sizes = planning.measure(module)
    module.blocks = nn.ModuleList([nn.Linear(1, 1)])
    assert planning.activations(model, module, sizes, V, tokens=64, on_cpu=True, checkpointing=False) is None
    assert Memory("single", 1, False, 1, 1, 1, 0, 0, None).total is None


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "conf", tmp_path / "conf")
    (tmp_path / "params.yaml").write_text(compose((), ROOT), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(models: list[str], **options: Any) -> None:
    given = {
        "devices": None,
        "device_name": None,
        "tflops": None,
        "utilisation": 0.4,
        "micro_batch": None,
        "vocab_size": 0,
        "as_json": False,
    }
    command(models, **{**given, **options})


def test_the_command_prints_a_table_and_json(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["gpt"], devices=2, tflops=0.25)
    message = capsys.readouterr().out
    assert "gpt (decoder): 8,013,120 parameters over a vocabulary of 2,048" in message
    assert "tensor parallel x2, checkpointing" in message
    assert "40% of the peak" in message
    run(["gpt"], devices=2, as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert found["sizes"]["parameters"] == 8_013_120
    row = found["memory"][0]
    assert row["total"] == sum(row[k] for k in ("weights", "gradients", "optimizer", "exchange", "activations"))


def test_the_time_on_a_cpu_is_by_what_check_has_measured(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lexmill.commands.plan.kept_rates", lambda _: (100e9, 400e9))
    (project / "execution.yaml").write_text("accelerator: cpu\nthreads: 3\n", encoding="utf-8")
    monkeypatch.setenv("LEXMILL_EXECUTION", str(project / "execution.yaml"))
    run(["gpt"], as_json=True)
    (found,) = json.loads(capsys.readouterr().out)
    assert found["seconds"] == pytest.approx(found["flops"] / (3 * 100e9 * 0.4))
    (project / "execution.yaml").write_text("accelerator: cuda\n", encoding="utf-8")
    run(["gpt"], as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["seconds"] is None


def test_errors_of_the_command_are_sentences(project: Path) -> None:
    with pytest.raises(UserError, match=r"models\.gtp is not in params\.yaml, did you mean 'gpt'"):
        run(["gtp"])
    with pytest.raises(UserError, match=r"models\.en_de: only language models are planned, and this is a translator"):
        run(["en_de"])
    with pytest.raises(UserError, match="peak of 'abacus' in 32-true is not known here; give it with --tflops"):
        run(["gpt"], device_name="abacus")
    data = yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8"))
    data["tokenizers"]["shakespeare_bpe"].update(kind="character", vocab_size=0)
    (project / "params.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    with pytest.raises(UserError, match="vocabulary of tokenizer shakespeare_bpe is known once it is made"):
        run(["gpt"])
    run(["gpt"], vocab_size=70)


def test_an_encoded_corpus_gives_the_vocabulary_and_the_length_of_an_epoch(project: Path) -> None:
    data = yaml.safe_load((project / "params.yaml").read_text(encoding="utf-8"))
    data["models"]["gpt"]["recipe"]["length"] = "3 epochs"
    params = parse(data)
    model = params.models["gpt"]
    assert planning.tokens_of(params, model) is None
    folder = project / "artifacts" / "tokens" / "shakespeare-shakespeare_bpe"
    folder.mkdir(parents=True)
    manifest = {"vocab_size": 1999, "splits": {"train": {"text": {"tokens": 100_000}}}}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert planning.vocabulary(params, model) == 1999
    # 781 windows of 128 tokens, 16 a step: 49 steps an epoch.
    assert planning.tokens_of(params, model) == 3 * 49 * 2048


def test_durations_have_a_fitting_unit() -> None:
    given = (0.41, 45, 75, 3600 * 3.4, 3600 * 40, 86400 * 3554)
    assert [duration(seconds) for seconds in given] == ["0.4 s", "45 s", "1.2 min", "3.4 h", "40 h", "3,554 days"]


def test_a_chat_model_is_not_planned(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = compose(["+model@models.chat=chat_tiny", "corpora.conversations.source.paths=[x.jsonl]"], ROOT)
    (project / "params.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"models\.chat: only language models are planned, and this is a chat model"):
        run(["chat"])
    run([], as_json=True)
    assert {one["name"] for one in json.loads(capsys.readouterr().out)} == {"gpt", "lstm"}
