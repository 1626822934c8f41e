"""`lexmill neighbours`: the words nearest to a word, or to a sum of words, in a model's input embeddings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from lexmill import params
from lexmill.base import layout
from lexmill.base.errors import UserError
from lexmill.base.progress import say
from lexmill.base.quiet import quieten
from lexmill.base.shown import value_text
from lexmill.compute.execution import load_execution
from lexmill.evaluation.word_vectors import Signed

_USAGE = "write words with + or - between them: lexmill neighbours king - man + woman"


def parsed(arguments: Sequence[str]) -> list[Signed]:
    """Return the query's words with their signs; `king - man` may come as one argument or three.

    Raises:
        UserError: there is no word, or words and signs do not alternate.
    """
    parts = ["+", *" ".join(arguments).split()]
    signs, words = parts[::2], parts[1::2]
    if len(parts) == 1:
        raise UserError(f"the word is empty; {_USAGE}")
    if len(signs) != len(words) or not {"+", "-"}.issuperset(signs) or not {"+", "-"}.isdisjoint(words):
        raise UserError(f"{value_text(' '.join(arguments))} is no sum of words; {_USAGE}")
    return [(1 if sign == "+" else -1, word) for sign, word in zip(signs, words, strict=True)]


def neighbours(
    arguments: Sequence[str], name: str | None, *, count: int = 10, as_json: bool = False, root: Path = Path()
) -> list[str]:
    """Return one line for each of the nearest words: the word, a tab, its cosine.

    Args:
        arguments: the query.
        name: a model of any kind; None: the only one.
        count: how many words.
        as_json: one JSON object instead.
        root: the workspace.

    Raises:
        UserError: errors in the query, an unknown word, or no such model; it is not trained, or has no embeddings.
        RetryableError: the tracking server does not answer.
    """
    query = parsed(arguments)
    quieten(offline=True)
    choices = params.load(root / "params.yaml")
    from lexmill import tokenizers
    from lexmill.corpora.prepared import PreparedCorpus
    from lexmill.evaluation.word_vectors import WordVectors
    from lexmill.evaluation.words import frequent_words, vocabulary_words
    from lexmill.models import folder as model_folder
    from lexmill.models import pretrained
    from lexmill.models.input_embeddings import input_embeddings
    from lexmill.registry.use import choose

    name = choose(name, None, choices)
    folder = _model_folder(name, root)
    tokenizer = tokenizers.load(folder / model_folder.TOKENIZER)
    corpus = root / layout.corpus(choices.models[name].data.corpus)
    if (corpus / "manifest.json").is_file():
        words, origin = frequent_words(PreparedCorpus(corpus)), f"the most frequent words of {corpus}"
    else:
        words, origin = vocabulary_words(tokenizer), f"the words of the vocabulary ({corpus} is not prepared)"
    found = WordVectors(words, tokenizer, input_embeddings(pretrained.read(folder).state))
    nearest = found.neighbours(query, count)
    say(f"{folder}, among {len(found.words):,} words: {origin}")
    if as_json:
        asked = [{"word": word, "sign": sign} for sign, word in query]
        answers = [{"word": word, "cosine": cosine} for word, cosine in nearest]
        return [json.dumps({"model": name, "query": asked, "neighbours": answers}, ensure_ascii=False)]
    return [f"{word}\t{cosine:.4f}" for word, cosine in nearest]


def _model_folder(name: str, root: Path) -> Path:
    """Return the model folder of the registered champion, or else that of the workspace's trained model."""
    from lexmill.models import folder as model_folder
    from lexmill.registry import lookup, package
    from lexmill.registry.download import registered_package

    uri = load_execution(root).tracking_uri
    if (champion := lookup.champion(uri, name, root)) is not None:
        found = registered_package(champion, uri, root)
        package.verify(found)
        return found / package.MODEL
    folder = root / layout.model(name)
    if not (folder / model_folder.CONFIG).is_file():
        raise UserError(f"the model '{name}' is not trained yet; `lexmill run` trains it")
    return folder
