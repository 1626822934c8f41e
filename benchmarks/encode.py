"""From JSON lines on disk to token ids on disk: `lexmill.data.encoding` beside `datasets.Dataset.map`.

Both sides: one trained byte-level BPE tokenizer and one file of made text, whose words are as unevenly frequent as
those of a language (Zipf's law); each repetition in a process of its own, that reads the file, encodes and writes.
The peer: `datasets` with its JSON reader, `map` in batches of 1,000 in one process, and the same tokenizer as
`transformers` loads it. MB of text a second, start-up and imports not counted; peak memory of the whole process
(mapped files counted), and what of it was taken by the imports. Both must give the same number of ids. Ours also
writes an end token after each document, hashes and a manifest.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.measure import Comparison, child, in_turn

_KINDS_OF_WORDS = 60_000
_WORDS_A_LINE = 40
VOCABULARY = 8000


def made_text(megabytes: float, path: Path) -> int:
    """Write about so many MB as JSON lines with a field `text`; gives the exact number of bytes of text."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    lengths = 2 + random.poisson(5, _KINDS_OF_WORDS)
    words = ["".join(random.choice(letters, n)) for n in lengths]
    frequency = 1 / np.arange(1, _KINDS_OF_WORDS + 1)
    ends, total = np.array([" "] * 17 + [", ", ". ", "; "]), 0
    with path.open("w", encoding="utf-8") as stream:
        while total < megabytes * 1e6:
            picked = random.choice(_KINDS_OF_WORDS, _WORDS_A_LINE, p=frequency / frequency.sum())
            text = "".join(
                words[i] + end for i, end in zip(picked, random.choice(ends, _WORDS_A_LINE), strict=True)
            ).strip()
            stream.write(json.dumps({"text": text}) + "\n")
            total += len(text)
    return total


def make_tokenizer(text: Path, folder: Path) -> None:
    """Train and save the tokenizer that both sides use."""
    from lexmill.tokenizers.saving import save
    from lexmill.tokenizers.training import train

    def texts() -> list[str]:
        with text.open(encoding="utf-8") as stream:
            return [json.loads(line)["text"] for _, line in zip(range(4000), stream, strict=False)]

    folder.mkdir()
    save(train("bpe", texts, vocab_size=VOCABULARY), folder)


def compare(repetitions: int, megabytes: float = 8.0) -> list[Comparison]:
    """Measure both sides on so many MB of text."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = made_text(megabytes, folder / "text.jsonl")
        make_tokenizer(folder / "text.jsonl", folder / "tokenizer")
        tokens: set[float] = set()

        def side(which: str) -> dict[str, float]:
            found = child("encode", which, folder)
            tokens.add(found["tokens"])
            return {"rate": size / 1e6 / found["seconds"], "peak": found["peak_mib"], "before": found["before_mib"]}

        ours, peer = in_turn(lambda: side("lexmill"), lambda: side("datasets"), repetitions)
    if len(tokens) != 1:
        raise RuntimeError(f"the sides gave different numbers of ids: {tokens}")
    names, what = ("lexmill", "Dataset.map"), f"{size / 1e6:.1f} MB, BPE of {VOCABULARY}"
    rows = (("rate", "MB/s", what), ("peak", "MiB", f"{what}, peak memory"), ("before", "MiB", "of it before the work"))
    return [Comparison("encode", text, unit, (names[0], ours[key]), (names[1], peer[key])) for key, unit, text in rows]


def _lexmill(folder: Path, target: Path) -> Callable[[], int]:
    """Encode; gives what counts the ids afterwards."""
    from lexmill.data.encoding import encode_corpus
    from lexmill.tokenizers import load

    with (folder / "text.jsonl").open(encoding="utf-8") as stream:
        manifest = encode_corpus(
            target, "text", {"train": map(json.loads, stream)}, load(folder / "tokenizer"), "0" * 64
        )
    side = manifest["splits"]["train"]["text"]
    return lambda: int(side["tokens"] - side["documents"])


def _datasets(folder: Path, target: Path) -> Callable[[], int]:
    """Encode; gives what counts the ids afterwards."""
    import pyarrow.compute
    from datasets import Dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": tokenizer(batch["text"], add_special_tokens=False, return_attention_mask=False)["input_ids"]}

    texts = Dataset.from_json(str(folder / "text.jsonl"), cache_dir=str(target))
    encoded = texts.map(encode, batched=True, remove_columns=["text"], cache_file_name=str(target / "ids.arrow"))
    return lambda: int(pyarrow.compute.sum(pyarrow.compute.list_value_length(encoded.data.column("ids"))).as_py())


def main(side: str, folder: Path) -> dict[str, float]:
    """One side, once: seconds, ids without end tokens, and memory in MiB."""
    if side == "lexmill":
        import tokenizers  # noqa: F401

        import lexmill.data.encoding  # noqa: F401
    else:
        import datasets
        from transformers import AutoTokenizer  # noqa: F401

        datasets.disable_progress_bars()
    before = _peak_mib()
    with tempfile.TemporaryDirectory(dir=folder) as target:
        begun = time.perf_counter()
        count = (_lexmill if side == "lexmill" else _datasets)(folder, Path(target))
        seconds, peak = time.perf_counter() - begun, _peak_mib()
        return {"seconds": seconds, "tokens": count(), "peak_mib": peak, "before_mib": before}


def _peak_mib() -> float:
    """The most memory this process has held."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux's ru_maxrss counts what the parent held when it forked
        return int(status.read_text(encoding="utf-8").split("VmHWM:")[1].split()[0]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
