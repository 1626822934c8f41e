"""Export a model as a folder for ONNX Runtime, which gives the same answers without lexmill and torch.

    <folder>/
        model.onnx        a graph for batches of any size and length
        tokenizer.json    of the library `tokenizers`; adds the begin and end tokens and cuts what is too long
        config.json       what the outputs mean: labels, tags, thresholds
        README.md         inputs, outputs, and lines of Python that use them

Before the folder is there, ONNX Runtime has answered texts of different lengths as torch does, alone and padded beside
each other, from the ids of the exported tokenizer.

In int8 the matrices of the linear layers are 8-bit numbers with a scale for each output, and what they read is rounded
to 8 bits by one scale for the whole batch (dynamic quantization): a text's answer then depends a little on its batch.
torch's own int8 on the CPU (`torch.ao.quantization`) is deprecated.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lexmill import kinds, tokenizers
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.base.outside import parsing
from lexmill.base.progress import say
from lexmill.data.texts import Text, encode, pad
from lexmill.models import folder as model_folder
from lexmill.registry.export_checks import TEXTS, TOLERANCE, check_packages, new_or_empty
from lexmill.tokenizers.saving import save_adding, serialized

GRAPH, TOKENIZER, CONFIG, CARD = "model.onnx", "tokenizer.json", "config.json", "README.md"
_KEPT = ("kind", "labels", "tags", "scheme", "pieces", "levels", "thresholds", "threshold", "max_tokens")

Arrays = dict[str, NDArray[np.int64]]


@dataclass(frozen=True)
class _Output:
    """What a graph gives.

    Attributes:
        name, axes: of the output.
        finish: from the module's outputs.
        use: a line of Python that prints an answer from `found`.
        note: sentences for the card.
    """

    name: str
    axes: str
    finish: Callable[[Tensor], Tensor]
    use: str
    note: str = ""


class _Graph(nn.Module):
    """A network as its graph is called: masks are numbers, and outputs are finished."""

    def __init__(self, module: nn.Module, finish: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.module, self.finish = module, finish

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None) -> Tensor:
        """Return the output (B, ...) of ids (B, T), 1 at real tokens (B, T), and 1 at tokens of a second text."""
        more = () if token_type_ids is None else (token_type_ids,)
        return self.finish(self.module(input_ids, attention_mask.bool(), *more))


class _OfTokens(nn.Module):
    """The scores of the tags of each token; the network's own are those of words."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = network.get_submodule("encoder"), network.get_submodule("head")

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Map (B, T) and (B, T) to (B, T, L)."""
        logits: Tensor = self.head(self.encoder(tokens, mask))
        return logits


def export_onnx(model: Path, target: Path, name: str, *, int8: bool = False) -> None:
    """Write a model folder for ONNX Runtime.

    Args:
        model: a model folder of lexmill.
        target: a new or empty folder.
        name: of the model, for the card.
        int8: round the matrices of the linear layers.

    Raises:
        UserError: there is no such graph of this model, its answers differ, the target is not empty, or the packages
            of the extra `onnx` are missing.
    """
    new_or_empty(target)
    check_packages("ONNX", "onnx", "onnx", "onnxruntime", "onnxscript")
    config, module = model_folder.load(model)
    what = f"'{name}' is {kinds.find(config['kind']).one}"
    output = _output(config, what)
    graph = _Graph(_OfTokens(module) if "tags" in config else module, output.finish).eval()
    tokenizer = tokenizers.load(model / model_folder.TOKENIZER)
    pairs = "separator" in config or bool(config.get("spans"))
    with storage.new_folder(target) as folder:
        written = _write_tokenizer(tokenizer, folder / TOKENIZER, config["max_tokens"], pairs=pairs)
        one, other = TEXTS[:2]  # of a pair that is too long, the library may cut another token
        texts: list[Text] = [(one, other), (other, one), (one, one)] if pairs else [*TEXTS]
        ours = encode(tokenizer, texts, config["max_tokens"])
        theirs = [_inputs(written, [text], segments=bool(config.get("spans"))) for text in texts]
        if [list(batch["input_ids"][0]) for batch in theirs] != ours:
            raise UserError(f"{what} with a tokenizer that other programs would not read in the same way")
        batches = [*theirs, _inputs(written, texts, segments=bool(config.get("spans")))]
        reason = (
            f"of family '{config['family']}', for which torch cannot write a graph that takes batches of any length"
        )
        with parsing(f"{what} {reason}; it can be used here and served"), _quiet():
            _write_graph(graph, batches[-1], output.name, folder / GRAPH, config["max_tokens"])
        difference = _difference(graph, batches, folder / GRAPH)
        if not difference <= TOLERANCE:
            raise UserError(f"{what} whose answers ONNX Runtime would give otherwise, by {difference:.1e}")
        if int8:
            _round(folder / GRAPH)
            difference = _difference(graph, batches, folder / GRAPH)
            say(f"{name}: in int8 the outputs of {len(texts)} made texts differ by up to {difference:.3f}")
        storage.write_json(folder / CONFIG, {key: config[key] for key in _KEPT if key in config} | {"int8": int8})
        storage.write_text(folder / CARD, _card(name, config, output, batches[-1], int8=int8))


def _output(config: Mapping[str, Any], what: str) -> _Output:
    """Return what a model's graph gives; raise `UserError` where there is none."""
    if "tags" in config:
        if "head" not in config:
            raise UserError(f"{what} that looks whole words up, which ONNX does not do")
        if config["head"] == "crf":
            raise UserError(f"{what} with a chain over its tags (recipe.head: crf), which ONNX does not have")
        of = "the first piece's" if config["pieces"] == "first" else "the mean of its pieces'"
        note = f"A word's scores are {of}. Words are what white space separates; join them by single spaces.\n"
        use = 'print([config["tags"][i] for i in found[0].argmax(-1)])'
        return _Output("logits", "batch, length, tags", nn.Identity(), use, note)
    if config.get("spans"):
        note = "A span's score is the sum of the start of its first token (0) and the end of its last (1).\n"
        return _Output("logits", "batch, length, 2", nn.Identity(), "print(found[0].argmax(0))", note)
    if levels := config.get("levels"):
        steps = torch.diff(torch.tensor(levels))

        def expected(outputs: Tensor) -> Tensor:
            return levels[0] + outputs.sigmoid() @ steps

        return _Output("number", "batch", expected, "print(found)")
    if "levels" in config:
        return _Output("number", "batch", lambda outputs: outputs[:, 0], "print(found)")
    if "thresholds" in config:
        use = 'print([dict(zip(config["labels"], map(float, row))) for row in found])'
        note = "A label is given where its probability is at least its threshold (`thresholds`).\n"
        return _Output("probabilities", "batch, labels", torch.sigmoid, use, note)
    if "labels" in config:
        use = 'print([(config["labels"][row.argmax()], float(row.max())) for row in found])'
        note = "Below `threshold` the model abstains.\n" if "threshold" in config else ""
        return _Output("probabilities", "batch, labels", lambda outputs: outputs.softmax(dim=1), use, note)
    if "embedding" in config:
        return _Output("vectors", "batch, width", nn.Identity(), "print(found @ found.T)", "A vector has length 1.")
    raise UserError(f"{what}; for ONNX there are graphs that read whole texts, no steps of writing or pre-training")


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch's exporter from telling people of its own steps."""
    with warnings.catch_warnings(), redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def _write_tokenizer(tokenizer: tokenizers.Tokenizer, path: Path, longest: int, *, pairs: bool) -> library.Tokenizer:
    """Write tokenizer.json, and return it as another program reads it."""
    save_adding(tokenizer, path, begins=[tokenizer.bos_id])
    backend = library.Tokenizer.from_file(str(path))
    backend.enable_truncation(longest, strategy="longest_first" if pairs else "only_first")
    storage.write_text(path, serialized(backend))
    written = library.Tokenizer.from_file(str(path))
    written.encode_special_tokens = True
    return written


def _inputs(tokenizer: library.Tokenizer, texts: Sequence[Text], *, segments: bool) -> Arrays:
    """Return a batch as the card's lines make it."""
    found = tokenizer.encode_batch(list(texts))
    tokens, mask = pad([one.ids for one in found])
    more = {"token_type_ids": pad([one.type_ids for one in found])[0]} if segments else {}
    return {"input_ids": tokens, "attention_mask": mask.astype(np.int64), **more}


def _write_graph(graph: nn.Module, batch: Arrays, output: str, path: Path, longest: int) -> None:
    sides = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=longest)}
    shapes = dict.fromkeys(batch, sides)
    tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
    with torch.inference_mode():
        program = torch.export.export(graph, (), tensors, dynamic_shapes=shapes, strict=False)
        written = torch.onnx.export(program, (), kwargs=tensors, dynamo=True, output_names=[output], verbose=False)
    assert written is not None
    written.save(str(path))


def _difference(graph: nn.Module, batches: Sequence[Arrays], path: Path) -> float:
    """Return the largest difference between what torch and ONNX Runtime give, of numbers above 1 in proportion."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    differences = [0.0]
    for batch in batches:
        with torch.inference_mode():
            ours = graph(**{name: torch.from_numpy(array) for name, array in batch.items()}).numpy()
        (theirs,) = session.run(None, batch)
        real = batch["attention_mask"].astype(bool) if ours.ndim == 3 else slice(None)
        differences.append(float((np.abs(ours - theirs) / np.maximum(np.abs(ours), 1))[real].max()))
    return float(np.max(differences))


def _round(path: Path) -> None:
    """Round the matrices of a graph's linear layers to int8, in place.

    Those that read a GELU stay: its few large values would leave the others hardly any of the 256 steps.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    nodes = onnx.load(str(path)).graph.node
    made_by = {output: node.op_type for node in nodes for output in node.output}
    with _quiet():
        quantize_dynamic(
            str(path),
            str(path),
            op_types_to_quantize=["MatMul", "Gemm"],
            nodes_to_exclude=[node.name for node in nodes if node.input and made_by.get(node.input[0]) == "Gelu"],
            # Of signed weights, processors without VNNI add two products in 16 bits, which overflow.
            weight_type=QuantType.QUInt8,
            per_channel=True,
        )


def _card(name: str, config: Mapping[str, Any], output: _Output, batch: Arrays, *, int8: bool) -> str:
    inputs = {
        "input_ids": "the ids of the texts, padded at the end with any id",
        "attention_mask": "1 at tokens, 0 at padding",
        "token_type_ids": "0 at the question's tokens, 1 at the context's",
    }
    pair = "separator" in config or bool(config.get("spans"))
    texts = '[("a text", "another one")]' if pair else '["a text", "another, longer one"]'
    segments = ['    "token_type_ids": np.array([one.type_ids for one in encoded]),'] if len(batch) > 2 else []
    lines = [
        f"# {name}",
        "",
        f"{kinds.find(config['kind']).one.capitalize()} made with lexmill, for ONNX Runtime"
        + (", in int8." if int8 else "."),
        "",
        "| input or output | type | axes | holds |",
        "|---|---|---|---|",
        *(f"| `{key}` | int64 | batch, length | {inputs[key]} |" for key in batch),
        f"| `{output.name}` | float32 | {output.axes} | see `config.json` for names |",
        "",
        "```python",
        "import json",
        "import numpy as np, onnxruntime, tokenizers",
        "",
        'folder = "."  # this one',
        f'config = json.load(open(f"{{folder}}/{CONFIG}", encoding="utf-8"))',
        f'tokenizer = tokenizers.Tokenizer.from_file(f"{{folder}}/{TOKENIZER}")',
        "tokenizer.encode_special_tokens = True  # one typed in a text stays text",
        "tokenizer.enable_padding()",
        f'session = onnxruntime.InferenceSession(f"{{folder}}/{GRAPH}")',
        f"encoded = tokenizer.encode_batch({texts})",
        "(found,) = session.run(None, {",
        '    "input_ids": np.array([one.ids for one in encoded]),',
        '    "attention_mask": np.array([one.attention_mask for one in encoded]),',
        *segments,
        "})",
        output.use,
        "```",
        "",
        f"Texts are cut to {config['max_tokens']} tokens. {output.note}",
    ]
    return "\n".join(lines).rstrip() + "\n"
