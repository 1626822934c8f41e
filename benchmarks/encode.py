"""From JSON lines on disk to token ids on disk: `lexmill.data.encoding` beside `datasets.Dataset.map`.

Both sides: one trained byte-level BPE tokenizer and one file of made text, whose words are as unevenly frequent as
those of a language (Zipf's law); each repetition in a process of its own, that reads the file, encodes and writes.
The peer: `datasets` with its JSON reader, `map` in batches of 1,000, and the same tokenizer as `transformers` loads it.
Once in one process each, and, where there are two cores, once with two working processes each (`processes=2`,
`num_proc=2`) on more text, their start counted. MB of text a second, start-up and imports not counted; peak memory of
the whole process (mapped files counted), and what of it was taken by the imports. Both must give the same number of
ids. Ours also writes an end token after each document, hashes and a manifest.

`python -m benchmarks.encode memory [MB ...]` prints the peak memory of our side for texts of 10 MB, 100 MB and 1 GB, in
which each line has a word that comes nowhere else.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.measure import Comparison, child, cores, in_turn

_KINDS_OF_WORDS = 60_000
_WORDS_A_LINE = 40
_LINES = 500  # made at once
_NAMES = str.maketrans("01", "xz")
_MORE = 8  # times as much text for two processes
VOCABULARY = 8000


def made_text(megabytes: float, path: Path, *, new_words: bool = False) -> int:
    """Write about so many MB as JSON lines with a field `text`; gives the exact number of bytes of text.

    Args:
        megabytes: how much.
        path: the file.
        new_words: each line has one word that no other has.
    """
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    lengths = 2 + random.poisson(5, _KINDS_OF_WORDS)
    words = np.array(["".join(random.choice(letters, n)) for n in lengths], dtype=object)
    up_to = np.cumsum(1 / np.arange(1, _KINDS_OF_WORDS + 1))
    ends, total, line = np.array([" "] * 17 + [", ", ". ", "; "], dtype=object), 0, 0
    with path.open("w", encoding="utf-8") as stream:
        while total < megabytes * 1e6:
            picked = np.searchsorted(up_to, random.random((_LINES, _WORDS_A_LINE)) * up_to[-1])
            for row in words[picked] + random.choice(ends, picked.shape):
                text = "".join(row.tolist()).strip()
                line += 1
                if new_words:
                    text += f" {line * 7919:b}".translate(_NAMES)
                stream.write(json.dumps({"text": text}) + "\n")
                total += len(text)
                if total >= megabytes * 1e6:
                    break
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
    """Measure both sides on so many MB of text; with two cores also two processes each."""
    found = _compare(repetitions, megabytes, 1)
    return found if cores() < 2 else found + _compare(repetitions, _MORE * megabytes, 2)


def _compare(repetitions: int, megabytes: float, processes: int) -> list[Comparison]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = made_text(megabytes, folder / "text.jsonl")
        make_tokenizer(folder / "text.jsonl", folder / "tokenizer")
        tokens: set[float] = set()

        def side(which: str) -> dict[str, float]:
            found = child("encode", which, folder, processes)
            tokens.add(found["tokens"])
            return {"rate": size / 1e6 / found["seconds"], "peak": found["peak_mib"], "before": found["before_mib"]}

        ours, peer = in_turn(lambda: side("lexmill"), lambda: side("datasets"), repetitions)
    if len(tokens) != 1:
        raise RuntimeError(f"the sides gave different numbers of ids: {tokens}")
    names = ("lexmill", "Dataset.map")
    what = f"{size / 1e6:.1f} MB, BPE of {VOCABULARY}, " + (
        "one process" if processes == 1 else f"{processes} processes"
    )
    rows = [("rate", "MB/s", what)]
    if processes == 1:  # the memory of the others is not seen
        rows += [("peak", "MiB", f"{what}, peak memory"), ("before", "MiB", "of it before the work")]
    return [Comparison("encode", text, unit, (names[0], ours[key]), (names[1], peer[key])) for key, unit, text in rows]


def memory(sizes: Sequence[float]) -> list[dict[str, float]]:
    """The peak memory of our side, in MiB, for texts of so many MB, with MB/s and what the imports took."""
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for megabytes in sizes:
            size = made_text(megabytes, folder / "text.jsonl", new_words=True) / 1e6
            if not (folder / "tokenizer").exists():
                make_tokenizer(folder / "text.jsonl", folder / "tokenizer")
            one = child("encode", "lexmill", folder, 1)
            found.append({"megabytes": size, "rate": size / one["seconds"], **one})
    return found


def _lexmill(folder: Path, target: Path, processes: int) -> Callable[[], int]:
    """Encode; gives what counts the ids afterwards."""
    from lexmill.compute.workers.processes import Processes
    from lexmill.corpora.prepared import PreparedCorpus
    from lexmill.data.encoding import encode_corpus
    from lexmill.data.encoding_pieces import encode_pieces
    from lexmill.tokenizers import load

    shards = {"train": {"records": 0, "shards": [{"path": "text.jsonl"}]}}
    corpus = {"kind": "text", "unit": "line", "languages": ["en"], "splits": shards}
    (folder / "manifest.json").write_text(json.dumps(corpus), encoding="utf-8")
    texts, tokenizer = PreparedCorpus(folder), folder / "tokenizer"
    if processes == 1:
        splits = {"train": texts.records("train")}
        manifest = encode_corpus(target, "text", splits, load(tokenizer), "0" * 64)
    else:
        with Processes(processes) as pool, tempfile.TemporaryDirectory(dir=folder) as scratch:
            manifest = encode_pieces(target, texts, tokenizer, "0" * 64, executor=pool, scratch=Path(scratch))
    side = manifest["splits"]["train"]["text"]
    return lambda: int(side["tokens"] - side["documents"])


def _datasets(folder: Path, target: Path, processes: int) -> Callable[[], int]:
    """Encode; gives what counts the ids afterwards."""
    import pyarrow.compute
    from datasets import Dataset
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {"ids": tokenizer(batch["text"], add_special_tokens=False, return_attention_mask=False)["input_ids"]}

    texts = Dataset.from_json(str(folder / "text.jsonl"), cache_dir=str(target))
    encoded = texts.map(
        encode,
        batched=True,
        remove_columns=["text"],
        cache_file_name=str(target / "ids.arrow"),
        num_proc=None if processes == 1 else processes,
    )
    return lambda: int(pyarrow.compute.sum(pyarrow.compute.list_value_length(encoded.data.column("ids"))).as_py())


def main(side: str, folder: Path, processes: int) -> dict[str, float]:
    """One side, once: seconds, ids without end tokens, and memory in MiB."""
    if side == "lexmill":
        import tokenizers  # noqa: F401

        import lexmill.data.encoding_pieces  # noqa: F401
    else:
        import datasets
        from transformers import AutoTokenizer  # noqa: F401

        datasets.disable_progress_bars()
    before = _peak_mib()
    with tempfile.TemporaryDirectory(dir=folder) as target:
        begun = time.perf_counter()
        count = (_lexmill if side == "lexmill" else _datasets)(folder, Path(target), processes)
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
    if sys.argv[1] == "memory":
        for metrics in memory([float(size) for size in sys.argv[2:]] or [10, 100, 1000]):
            print(
                f"{metrics['megabytes']:,.0f} MB: peak {metrics['peak_mib']:.0f} MiB, {metrics['before_mib']:.0f} of it"
                f" before the work, {metrics['rate']:.1f} MB/s"
            )
    else:
        print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))))
