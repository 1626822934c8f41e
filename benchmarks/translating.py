"""Translating with a beam beside Hugging Face `generate` and CTranslate2, from the same weights.

python -m benchmarks.translating MODEL CORPUS [--sentences N] [--beam K] [--repetitions N]

MODEL is a model folder of a translator of family `transformer` (`artifacts/models/en_de`), CORPUS its prepared corpus.
Ours: `translate_lines`, texts in and texts out. The peers read what `lexmill export` writes of the same model:
`generate` of transformers with its default cache in inference mode, in float32, and CTranslate2 in float32 and in int8.
Each side has its own way of batching: ours by tokens, transformers 64 sentences of like length at a time, CTranslate2
64 that it sorts itself. All rank by the mean log-probability of a token; where a search stops is each library's own, so
with the BLEU of each beside its speed.

Sentences per second of processor time on one thread, which a busy machine does not distort as it does wall time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks.measure import Comparison, machine, show
from lexmill import tokenizers
from lexmill.base.quiet import quieten
from lexmill.corpora.prepared import PreparedCorpus
from lexmill.decoding.predictor import BATCH_TOKENS
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator.metrics import score_sums, splitter_of, statistics
from lexmill.kinds.translator.predict import translate_lines
from lexmill.models import folder as model_folder
from lexmill.registry.ctranslate2_export import export_ctranslate2
from lexmill.registry.hugging_face import export
from lexmill.tokenizers.tokenizer import NEVER_WRITTEN, SPECIAL_TOKENS

_BATCH = 64  # sentences
_SUPPRESSED = [[SPECIAL_TOKENS[one]] for one in NEVER_WRITTEN]

Side = Callable[[Sequence[str]], list[str]]


def ours(model: Path, beam: int) -> Side:
    """Return lexmill's side."""
    config, module = model_folder.load(model)
    tokenizer = tokenizers.load(model / model_folder.TOKENIZER)
    assert config["kind"] == "translator"
    search = BeamSearch(beam_size=beam, ranking="average", length_penalty=1.0)
    return lambda lines: [one.text for one in translate_lines(module, tokenizer, lines, search, BATCH_TOKENS)]


def transformers_side(exported: Path, beam: int) -> Side:
    """Return the side of transformers."""
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    model = AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
    tokenizer = AutoTokenizer.from_pretrained(exported)

    def translate(lines: Sequence[str]) -> list[str]:
        order = sorted(range(len(lines)), key=lambda i: len(lines[i]))
        found = [""] * len(lines)
        for start in range(0, len(order), _BATCH):
            own = order[start : start + _BATCH]
            batch = tokenizer([lines[i] for i in own], padding=True, return_tensors="pt")
            with torch.inference_mode():
                written = model.generate(**batch, num_beams=beam, do_sample=False, length_penalty=1.0)
            for i, text in zip(own, tokenizer.batch_decode(written, skip_special_tokens=True), strict=True):
                found[i] = text
        return found

    return translate


def ctranslate2_side(exported: Path, beam: int, longest: int) -> Side:
    """Return the side of CTranslate2; `longest` tokens in and out."""
    import ctranslate2
    import tokenizers as library

    translator = ctranslate2.Translator(str(exported), device="cpu", intra_threads=1, inter_threads=1)
    tokenizer = library.Tokenizer.from_file(str(exported / "tokenizer.json"))
    tokenizer.encode_special_tokens = True

    def translate(lines: Sequence[str]) -> list[str]:
        found = translator.translate_batch(
            [one.tokens for one in tokenizer.encode_batch(list(lines))],
            beam_size=beam,
            max_batch_size=_BATCH,
            max_input_length=longest,
            max_decoding_length=longest - 1,
            suppress_sequences=_SUPPRESSED,
        )
        return [tokenizer.decode([tokenizer.token_to_id(token) for token in one.hypotheses[0]]) for one in found]

    return translate


def compare(model: Path, corpus: Path, repetitions: int, *, sentences: int, beam: int) -> list[Comparison]:
    """Measure all sides in turn on the first sentences of the test split."""
    torch.set_num_threads(1)
    prepared = PreparedCorpus(corpus)
    records = list(prepared.records("test"))[:sentences]
    lines, references = ([record[side] for record in records] for side in ("source", "target"))
    longest = model_folder.read_config(model)["shape"]["max_positions"]
    with tempfile.TemporaryDirectory() as scratch:
        there = Path(scratch)
        export(model, there / "transformers", "model")
        export_ctranslate2(model, there / "float32", "model")
        export_ctranslate2(model, there / "int8", "model", int8=True)
        sides = {
            "lexmill": ours(model, beam),
            "transformers": transformers_side(there / "transformers", beam),
            "CTranslate2": ctranslate2_side(there / "float32", beam, longest),
            "CTranslate2 int8": ctranslate2_side(there / "int8", beam, longest),
        }
        rates: dict[str, list[float]] = {}
        names: dict[str, str] = {}
        for side in sides.values():
            side(lines[:_BATCH])  # what a first call costs is not measured
        for _ in range(repetitions):
            for name, side in sides.items():
                begun = time.process_time()
                found = side(lines)
                rates.setdefault(name, []).append(len(lines) / (time.process_time() - begun))
                stats = statistics("bleu", found, references, splitter_of(prepared))
                sums = [sum(column) for column in zip(*stats, strict=True)]
                names[name] = f"{name} (BLEU {score_sums('bleu', sums):.2f})"
    first, *peers = ((names[name], values) for name, values in rates.items())
    what = f"beam {beam}, {len(lines)} sentences"
    return [Comparison("translating", what, "sentences/s", first, peer) for peer in peers]


def main() -> None:
    """Print the machine and the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.translating")
    parser.add_argument("model", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--sentences", type=int, default=500)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    quieten(offline=True)
    here = machine()
    found = compare(options.model, options.corpus, options.repetitions, sentences=options.sentences, beam=options.beam)
    show(found, here, options.repetitions, None)


if __name__ == "__main__":
    main()
