"""Export a Transformer that translates as a folder for CTranslate2: the same translations without lexmill and torch.

    <folder>/
        model.bin, config.json, shared_vocabulary.json    as CTranslate2 reads them
        tokenizer.json    of the library `tokenizers`; adds the end token and cuts what is too long
        README.md         lines of Python that translate

The weights are those of the Pegasus or Marian that the model is in Hugging Face format. Before the folder is there,
CTranslate2 has scored texts of several lengths from the ids of the exported tokenizer, and given each token lexmill's
log-probability.

In int8 the matrices, the embedding among them, are 8-bit numbers with a scale for each row, and so is what they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as library
import torch
from torch import Tensor, nn

from lexmill import kinds, tokenizers
from lexmill.base import storage
from lexmill.base.errors import UserError
from lexmill.base.progress import say
from lexmill.models import family, pretrained
from lexmill.models import folder as model_folder
from lexmill.registry.export_checks import TEXTS, TOLERANCE, check_packages, new_or_empty, refuse_tags
from lexmill.tokenizers.saving import save_adding, serialized

TOKENIZER, CARD = "tokenizer.json", "README.md"


def export_ctranslate2(model: Path, target: Path, name: str, *, int8: bool = False) -> None:
    """Write a model folder for CTranslate2.

    Args:
        model: a model folder of lexmill.
        target: a new or empty folder.
        name: of the model, for the card.
        int8: round the matrices.

    Raises:
        UserError: it is no Transformer that translates, its scores differ, the target is not empty, or the package of
            the extra `ctranslate2` is missing.
    """
    new_or_empty(target)
    check_packages("CTranslate2", "ctranslate2", "ctranslate2")
    config, module = model_folder.load(model)
    what, declared = f"'{name}' is {kinds.find(config['kind']).one}", family(config["family"])
    if declared.libraries:
        raise UserError(
            f"{what} that {' and '.join(declared.libraries)} compute; export it --to transformers, and convert that"
            " folder with ct2-transformers-converter"
        )
    if declared.role != "encoder_decoder" or not declared.model_types:
        raise UserError(
            f"{what} of family '{config['family']}'; CTranslate2 takes Transformers of an encoder and a decoder"
        )
    refuse_tags(config, what)
    mapping = pretrained.mapping(config["family"])
    mapping.write_config(config["shape"], config["vocab_size"])  # refuses other shapes than those written here
    tokenizer = tokenizers.load(model / model_folder.TOKENIZER)
    longest = config["shape"]["max_positions"]
    with storage.new_folder(target) as folder:
        save_adding(tokenizer, folder / TOKENIZER, begins=())
        backend = library.Tokenizer.from_file(str(folder / TOKENIZER))
        backend.enable_truncation(longest)
        storage.write_text(folder / TOKENIZER, serialized(backend))
        tensors = mapping.write_tensors(config["shape"], pretrained.read(model).state)
        _write(config["shape"], tensors, tokenizer, folder, int8=False)
        difference = _difference(module, tokenizer, folder, longest)
        if not difference <= TOLERANCE:
            raise UserError(f"{what} whose tokens CTranslate2 would score otherwise, by {difference:.1e}")
        if int8:
            _write(config["shape"], tensors, tokenizer, folder, int8=True)
            difference = _difference(module, tokenizer, folder, longest)
            say(f"{name}: in int8 the log-probabilities of {len(TEXTS)} made texts differ by up to {difference:.3f}")
        storage.write_text(folder / CARD, _card(name, config, tokenizer, int8=int8))


def _write(
    shape: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tokenizer: tokenizers.Tokenizer,
    folder: Path,
    *,
    int8: bool,
) -> None:
    """Write model.bin, config.json and the vocabulary."""
    from ctranslate2.specs import common_spec, transformer_spec

    values = {key: value.numpy() for key, value in tensors.items()}

    def fill(layer: Any, *names: str) -> None:
        """Set a linear layer or a norm; several are put on top of each other."""
        weight, bias = (np.concatenate([values[f"model.{one}.{of}"] for one in names]) for of in ("weight", "bias"))
        if isinstance(layer, common_spec.LayerNormSpec):
            layer.gamma, layer.beta = weight, bias
        else:
            layer.weight, layer.bias = weight, bias

    pre = shape["norm"] == "pre"
    stacks: dict[str, Any] = {
        "encoder": transformer_spec.TransformerEncoderSpec(shape["encoder_layers"], shape["n_head"], pre_norm=pre),
        "decoder": transformer_spec.TransformerDecoderSpec(shape["decoder_layers"], shape["n_head"], pre_norm=pre),
    }
    embedding = values["model.shared.weight"]
    for stack, spec in stacks.items():
        for one in spec.embeddings if stack == "encoder" else [spec.embeddings]:
            one.weight = embedding
        spec.position_encodings.encodings = values[f"model.{stack}.embed_positions.weight"]
        if pre:
            fill(spec.layer_norm, f"{stack}.layer_norm")
        for i, layer in enumerate(spec.layer):
            at = f"{stack}.layers.{i}"
            fill(layer.self_attention.layer_norm, f"{at}.self_attn_layer_norm")
            fill(layer.self_attention.linear[0], *(f"{at}.self_attn.{one}_proj" for one in "qkv"))
            fill(layer.self_attention.linear[1], f"{at}.self_attn.out_proj")
            if stack == "decoder":
                fill(layer.attention.layer_norm, f"{at}.encoder_attn_layer_norm")
                fill(layer.attention.linear[0], f"{at}.encoder_attn.q_proj")
                fill(layer.attention.linear[1], *(f"{at}.encoder_attn.{one}_proj" for one in "kv"))
                fill(layer.attention.linear[2], f"{at}.encoder_attn.out_proj")
            fill(layer.ffn.layer_norm, f"{at}.final_layer_norm")
            fill(layer.ffn.linear_0, f"{at}.fc1")
            fill(layer.ffn.linear_1, f"{at}.fc2")
    stacks["decoder"].projection.weight = embedding
    model = transformer_spec.TransformerSpec(**stacks)
    tokens = _tokens(tokenizer, range(tokenizer.vocab_size))
    model.register_source_vocabulary(tokens)
    model.register_target_vocabulary(tokens)
    begin, end = _tokens(tokenizer, (tokenizer.bos_id, tokenizer.eos_id))
    model.config.bos_token = model.config.decoder_start_token = begin
    model.config.eos_token, model.config.layer_norm_epsilon = end, 1e-5
    model.validate()
    model.optimize(quantization="int8" if int8 else None)
    model.save(str(folder))


def _tokens(tokenizer: tokenizers.Tokenizer, ids: Sequence[int]) -> list[str]:
    return [str(tokenizer.backend.id_to_token(one)) for one in ids]


def _difference(module: nn.Module, tokenizer: tokenizers.Tokenizer, folder: Path, longest: int) -> float:
    """Return the largest difference of the log-probabilities of tokens, of numbers above 1 in proportion.

    Each text is scored as the translation of each.
    """
    import ctranslate2

    backend = library.Tokenizer.from_file(str(folder / TOKENIZER))
    backend.encode_special_tokens = True
    ids = [one.ids for one in backend.encode_batch(list(TEXTS))]
    pairs = [(source, target[:-1]) for source in ids for target in ids]
    there = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1).score_batch(
        *([_tokens(tokenizer, side) for side in sides] for sides in zip(*pairs, strict=True)), max_input_length=0
    )
    differences = [0.0]
    for (source, target), scored in zip(pairs, there, strict=True):
        read = torch.tensor([source])
        with torch.inference_mode():
            logits = module(read, torch.ones_like(read, dtype=torch.bool), torch.tensor([[tokenizer.bos_id, *target]]))
        wanted = torch.tensor([*target, tokenizer.eos_id])[:, None]
        ours = logits[0].log_softmax(dim=1).gather(1, wanted)[:, 0].numpy()
        differences.append(float((np.abs(ours - np.array(scored.log_probs)) / np.maximum(np.abs(ours), 1)).max()))
    return float(np.max(differences))


def _card(name: str, config: Mapping[str, Any], tokenizer: tokenizers.Tokenizer, *, int8: bool) -> str:
    longest, made = config["shape"]["max_positions"], kinds.find(config["kind"]).one.capitalize()
    unwritten = _tokens(tokenizer, sorted({*tokenizer.never_written} - {tokenizer.eos_id}))
    lines = [
        f"# {name}",
        "",
        f"{made} made with lexmill, for CTranslate2{', in int8' if int8 else ''}.",
        "",
        "```python",
        "import ctranslate2, tokenizers",
        "",
        'folder = "."  # this one',
        f'tokenizer = tokenizers.Tokenizer.from_file(f"{{folder}}/{TOKENIZER}")',
        "tokenizer.encode_special_tokens = True  # one typed in a text stays text",
        'model = ctranslate2.Translator(folder, device="cpu")',
        'sources = [one.tokens for one in tokenizer.encode_batch(["a text", "another, longer one"])]',
        "found = model.translate_batch(",
        "    sources,",
        "    beam_size=4,",
        f"    max_input_length={longest},",
        f"    max_decoding_length={longest - 1},",
        f"    suppress_sequences={[[one] for one in unwritten]!r},",
        ")",
        "for one in found:",
        "    print(tokenizer.decode([tokenizer.token_to_id(token) for token in one.hypotheses[0]]))",
        "```",
        "",
        f"Texts are cut to {longest} tokens. Greedy translations (`beam_size=1`) are lexmill's; beam search there ends"
        " earlier, and ranks by `length_penalty` as `average` does here.",
    ]
    return "\n".join(lines) + "\n"
