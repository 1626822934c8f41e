"""Training a chat model: what it reads, which of its two tasks, the metrics of its training."""

from __future__ import annotations

from typing import Any

from lexmill import tokenizers
from lexmill.base import layout, progress
from lexmill.base.errors import UserError
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.data.conversations import CHAT_TEMPLATE, ConversationBatches, encode, messages_of, windows
from lexmill.data.preferences import PairBatches, pairs
from lexmill.kinds.chat_model import ChatModel
from lexmill.kinds.chat_model.answers import AnswerTask
from lexmill.kinds.chat_model.preferences import PreferenceTask
from lexmill.models.common import lora
from lexmill.params import Params
from lexmill.training.engine import FitResult
from lexmill.training.production import Training, config_of, new_network, produce


def train(name: str, choices: Params) -> None:
    """Train `models.<name>`.

    Raises:
        UserError: nothing to learn from, preferences without rejected answers, or a tokenizer that loses white space.
    """
    model = choices.models[name]
    assert isinstance(model, ChatModel)
    corpus = PreparedCorpus(layout.corpus(model.data.corpus))
    folder = layout.tokenizer(model.data.tokenizer)
    tokenizer = tokenizers.load(folder)
    if not tokenizer.keeps_text:
        raise UserError("this tokenizer does not give texts back; a chat model needs one that does", folder)
    config = config_of(model, tokenizer, tokenizer.vocab_size, chat_template=CHAT_TEMPLATE)
    module: Any = new_network(model, config, choices.training_seed)
    parameters, flops = module.count_parameters(), module.flops_per_token()
    if model.recipe.lora_rank:
        lora.adapt(module, model.recipe.lora_rank, model.recipe.lora_alpha)
    context, seed, pad = model.shape.context, choices.data_seed, tokenizer.pad_id
    task: AnswerTask | PreferenceTask
    if model.recipe.objective == "preferences":
        train_pairs, valid_pairs = (pairs(corpus, split, tokenizer, context) for split in ("train", "valid"))
        batches_of_pairs = PairBatches(train_pairs, model.recipe.batch, seed)
        task = PreferenceTask(module, batches_of_pairs, valid_pairs, model.recipe.beta)
    else:
        encoded = {
            split: encode(tokenizer, [messages_of(record) for record in corpus.records(split)])
            for split in ("train", "valid")
        }
        batches = ConversationBatches(encoded["train"], context, model.recipe.batch, pad, seed)
        if batches.windows.cut:
            progress.say(f"train {name}: {batches.windows.cut:,} conversations are longer than {context} tokens; cut")
        task = AnswerTask(module, batches, windows(encoded["valid"], context, pad))
    produce(
        Training(
            name=name,
            model=model,
            config=config,
            task=task,
            steps_per_epoch=task.steps_per_epoch,
            metrics=lambda result: metrics(result, parameters, task.epochs(result.step)),
            speed=lambda result: speed(result, task.counted),
            flops_per_token=flops if task.counted == "tokens" else 0,
            finish=(lambda: lora.merge(module)) if model.recipe.lora_rank else (lambda: None),
        ),
        choices,
    )


def metrics(result: FitResult, parameters: int, epochs: float) -> dict[str, float]:
    """Return the stage's metrics: the loss, the metrics of validation, counts, no times."""
    return {
        "train_loss": result.train_loss,
        **result.metrics,
        "best_step": result.best_step,
        "steps": result.step,
        "epochs": epochs,
        "parameters": parameters,
    }


def speed(result: FitResult, counted: str) -> tuple[dict[str, float], str]:
    """Return targets per second, as metrics and as a sentence."""
    words = f"valid loss {result.metrics['valid_loss']:.3f}, {result.rate:,.0f} {counted}/s"
    return {f"{counted}_per_second": result.rate}, words
