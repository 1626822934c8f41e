"""Score or time packaged models in a separate process.

    python -m lexmill.registry.trial REQUEST RESULT      (two JSON files)

Publishing needs no torch; work that needs it runs here, with the threads and device of an evaluation, and frees its
memory at its end. It also ends when its standard input closes: then its parent is gone.

| request | result |
|---|---|
| `what: score`, a package, a prepared corpus, the evaluation's settings | the rows, in a file of their own |
| `what: time`, two packages, texts, params | seconds of each text's answer, for each of the two |
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lexmill import kinds
from lexmill.base import storage
from lexmill.base.errors import EXIT_TERMINATED, LexmillError
from lexmill.base.shown import print_line
from lexmill.compute.execution import Execution
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.decoding.predictor import Predictor
from lexmill.evaluation.rows import Row, write_rows
from lexmill.evaluation.subject import Subject
from lexmill.params import Evaluation

ROUNDS, MOST_ROUNDS = 3, 25
_ENOUGH_SECONDS = 2.0  # of timing, after which the least number of rounds will do
_WARM_UPS = 2


class TrialFailed(LexmillError):
    """The process ended without a result; says why in a few words."""


def score(package: Path, corpus: Path, evaluation: Evaluation, execution: Execution, target: Path) -> None:
    """Score a packaged model on the test split of a prepared corpus and write its rows to a file.

    Raises:
        TrialFailed: the model cannot be loaded or run by the present code.
    """
    request = {"what": "score", "package": str(package.absolute()), "corpus": str(corpus.absolute())}
    _run({**request, "evaluation": asdict(evaluation), "rows": str(target.absolute())}, execution)


def times(
    champion: Path, challenger: Path, texts: Sequence[str], params: dict[str, Any], execution: Execution
) -> dict[str, list[float]]:
    """Return seconds of each text's answer, {"champion": [...], "challenger": [...]}, or who "failed" to answer.

    Raises:
        TrialFailed: the process failed.
    """
    request = {"what": "time", "champion": str(champion.absolute()), "challenger": str(challenger.absolute())}
    found: dict[str, list[float]] = _run({**request, "texts": list(texts), "params": params}, execution)
    return found


def interleaved(
    first: Callable[[str], object],
    second: Callable[[str], object],
    texts: Sequence[str],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[list[float], list[float]]:
    """Return seconds of each text's answer by both models: the minimum of several rounds, in turns.

    The order alternates, so that caches and other load affect both alike; the minimum is the undisturbed time. Quick
    answers are repeated more often, for a disturbance weighs more on them.
    """
    both = (first, second)
    least = [[float("inf")] * len(texts) for _ in both]
    for model in both:
        for text in texts[:_WARM_UPS]:
            model(text)
    begun = clock()
    for number in range(MOST_ROUNDS):
        if number >= ROUNDS and clock() - begun > _ENOUGH_SECONDS:
            break
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for i, text in enumerate(texts):
            for which in order:
                start = clock()
                both[which](text)
                least[which][i] = min(least[which][i], clock() - start)
    return least[0], least[1]


def _run(request: dict[str, Any], execution: Execution) -> Any:
    with tempfile.TemporaryDirectory(prefix="lexmill-trial-") as folder:
        asked, answer, said = (Path(folder) / name for name in ("request.json", "result.json", "said.txt"))
        storage.write_json(asked, {**request, "accelerator": execution.accelerator, "threads": execution.threads})
        command = [sys.executable, "-m", "lexmill.registry.trial", str(asked), str(answer)]
        with open(said, "wb") as log, subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log) as child:
            try:
                code = child.wait()
            except BaseException:
                child.kill()
                raise
        if code or not answer.is_file():
            last = said.read_text(encoding="utf-8", errors="replace").strip().split("\n")[-1]
            raise TrialFailed(last or f"its process ended with code {code}")
        return storage.read_json(answer)


def _score(request: dict[str, Any]) -> dict[str, Any]:
    from lexmill.evaluation.device import evaluation_device
    from lexmill.registry.loader import load_package

    model = load_package(request["package"])
    corpus = PreparedCorpus(request["corpus"])
    evaluation = Evaluation(**request["evaluation"])
    device = evaluation_device(Execution(accelerator=request["accelerator"], threads=request["threads"]))
    model.module.to(device)
    write_rows(request["rows"], rows_on_test(model, corpus, evaluation))
    return {}


def rows_on_test(model: Predictor, corpus: PreparedCorpus, evaluation: Evaluation) -> list[Row]:
    """Return a model's rows on the test split of a corpus, as in its evaluate stage, on the model's device."""
    rows: list[Row] = kinds.find(model.config["kind"]).module("evaluate").rows(subject_of(model, corpus, evaluation))
    return rows


def subject_of(model: Predictor, corpus: PreparedCorpus, evaluation: Evaluation, seed: int = 0) -> Subject:
    """Return a packaged model and the corpus that it is to be scored on; no row depends on the seed."""
    return Subject(
        name=model.name,
        config=model.config,
        settings=kinds.find(model.config["kind"]).evaluate_settings(model.config["evaluate"]),
        module=model.module,
        tokenizer=model.tokenizer,
        corpus=corpus,
        evaluation=evaluation,
        seed=seed,
    )


def _time(request: dict[str, Any]) -> dict[str, Any]:
    from lexmill.evaluation.device import evaluation_device
    from lexmill.registry.loader import load_package

    execution = Execution(accelerator=request["accelerator"], threads=request["threads"])
    models, texts, params = {}, request["texts"], request["params"]
    for name in ("champion", "challenger"):
        try:
            models[name] = load_package(request[name])
            models[name].module.to(evaluation_device(execution))
            models[name].predict(texts[:1], params)
        except Exception as error:  # of any kind: the result is that this model does not answer
            return {"failed": name, "why": f"{type(error).__name__}: {error}".split("\n")[0]}
    champion, challenger = (
        lambda text, model=models[name]: model.predict([text], params) for name in ("champion", "challenger")
    )
    found = interleaved(champion, challenger, texts)
    return {"champion": found[0], "challenger": found[1]}


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the other end is closed
    os._exit(EXIT_TERMINATED)


def main() -> None:
    """Answer one request."""
    from lexmill.base.quiet import quieten

    threading.Thread(target=_end_with_parent, daemon=True).start()
    quieten(offline=True)
    request = storage.read_json(sys.argv[1])
    try:
        storage.write_json(sys.argv[2], {"score": _score, "time": _time}[request["what"]](request))
    except LexmillError as error:
        print_line(" ".join(str(error).split()), sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
