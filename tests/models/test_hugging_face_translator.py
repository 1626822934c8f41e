"""Translators of every shape against `transformers`: logits, searches, tokens, sizes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lexmill import models, tokenizers
from lexmill.base.errors import UserError, UserErrors
from lexmill.decoding.batching import pad_sources
from lexmill.decoding.beam_search import beam_search
from lexmill.decoding.settings import BeamSearch
from lexmill.kinds.translator.losses import smoothed_sum
from lexmill.kinds.translator.prefixes import begins_of
from lexmill.models import pretrained
from lexmill.models.start import start
from lexmill.tokenizers.imported import import_tokenizer
from tests.support.tiny_translators import KINDS, PREFIXES, make_tiny_translator, pieces

SOURCES, TARGETS = ["the", "mill", "turns", "slowly", "water", "good"], ["die", "Mühle", "dreht", "langsam", "Wasser"]
LINES = ["the mill turns", "water", "good water turns the mill slowly", "mills turn"]
LONGEST = 12  # tokens of a translation


def started(folder: Path, kind: str, rows: int = 3, steps: int = 0) -> tuple[Any, Any, tokenizers.Tokenizer]:
    """A network that starts from a checkpoint as a training makes it, the model there, and the tokenizer."""
    theirs = make_tiny_translator(folder / "checkpoint", kind, SOURCES, TARGETS, rows=rows, steps=steps)
    (folder / "tokenizer").mkdir()
    tokenizer = import_tokenizer(folder / "checkpoint", folder / "tokenizer")
    family, shape, _ = pretrained.read_shape(folder / "checkpoint", "hugging_face_translator")
    shape |= PREFIXES.get(kind, {})
    config: dict[str, Any] = {"family": family, "shape": shape, "vocab_size": tokenizer.vocab_size}
    if begins := begins_of(models.family(family).shape(**shape), tokenizer):
        config["begins"] = begins
    module = models.build(config)
    start(module, config, folder / "checkpoint", folder / "tokenizer")
    return module.eval(), theirs, tokenizer


def given(module: Any, tokenizer: tokenizers.Tokenizer, lines: list[str]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Sources and mask as here, and as the model there reads them."""
    ids = tokenizer.encode_batch(lines)
    source, mask = pad_sources(ids, torch.device("cpu"), tokenizer.special)
    there, real = pad_sources([[*module.begins["source"], *row] for row in ids], torch.device("cpu"), tokenizer.special)
    return source, mask, {"input_ids": there, "attention_mask": real.long()}


@pytest.mark.parametrize("kind", list(KINDS))
@torch.no_grad()
def test_forced_decoding_gives_the_logits_of_transformers(tmp_path: Path, kind: str) -> None:
    module, theirs, tokenizer = started(tmp_path, kind)
    source, mask, there = given(module, tokenizer, LINES)
    targets = tokenizer.target.encode_batch(["die Mühle", "Wasser", "dreht die Mühle langsam", "die"])
    written = [[tokenizer.bos_id, *row] for row in targets]
    rows = [[row[0], *module.begins["target"], *row[1:]] for row in written]
    width = max(map(len, rows))
    decoder = torch.tensor([[*row, *[tokenizer.pad_id] * (width - len(row))] for row in rows])
    wanted = theirs(**there, decoder_input_ids=decoder).logits[
        :, len(module.begins["target"]) :, : tokenizer.vocab_size
    ]
    more = width - len(module.begins["target"])
    target_in = torch.tensor([[*row, *[tokenizer.pad_id] * (more - len(row))] for row in written])
    found = module(source, mask, target_in)
    for row, ids in enumerate(written):
        torch.testing.assert_close(found[row, : len(ids)], wanted[row, : len(ids)], atol=1e-4, rtol=0)


def generated(theirs: Any, there: dict[str, Tensor], module: Any, tokenizer: tokenizers.Tokenizer, **more: Any) -> Any:
    """What the model there writes, by the same rules: what is never written here is not there either."""
    theirs.generation_config.forced_eos_token_id = None
    begin = module.begins["target"]
    never = {*tokenizer.special.never_written, *range(tokenizer.vocab_size, theirs.config.vocab_size)}
    if begin:
        more["forced_bos_token_id"] = begin[0]
    return theirs.generate(
        **there,
        bad_words_ids=[[one] for one in sorted(never)],
        max_new_tokens=LONGEST + 1 + len(begin),
        return_dict_in_generate=True,
        output_scores=True,
        **more,
    )


def written(row: Tensor, module: Any, tokenizer: tokenizers.Tokenizer) -> tuple[int, ...]:
    """The tokens of a generated row: without the first ones, and before the end token."""
    ids = row[1 + len(module.begins["target"]) :].tolist()
    return tuple(ids[: ids.index(tokenizer.eos_id)] if tokenizer.eos_id in ids else ids)[:LONGEST]


@pytest.mark.parametrize("kind", list(KINDS))
@torch.no_grad()
def test_searches_find_what_generate_finds(tmp_path: Path, kind: str) -> None:
    """By log P alone, both rules end a beam alike; a forced language token counts nothing in either."""
    module, theirs, tokenizer = started(tmp_path, kind, rows=0, steps=60)
    lines = [*LINES, *(f"{one} {other}" for one in SOURCES for other in SOURCES)]
    source, mask, there = given(module, tokenizer, lines)
    for size in (1, 8):
        search = BeamSearch(beam_size=size, length_penalty=0.0, max_length_ratio=0.001, max_length_extra=LONGEST)
        found = [best for best, *_ in beam_search(module, source, mask, search, special=tokenizer.special)]
        more: dict[str, Any] = {"length_penalty": 0.0, "early_stopping": "never"} if size > 1 else {}
        out = generated(theirs, there, module, tokenizer, num_beams=size, **more)
        assert [one.tokens for one in found] == [written(row, module, tokenizer) for row in out.sequences]
        if size > 1:
            assert [one.log_probability for one in found] == pytest.approx(out.sequences_scores.tolist(), abs=1e-4)
        assert len({one.tokens for one in found}) > 1
        assert min(len(one.tokens) for one in found) < LONGEST, "some end by themselves"


@pytest.mark.parametrize("kind", list(PREFIXES))
@torch.no_grad()
def test_with_prefixes_a_cache_changes_nothing_and_neither_does_a_batch(tmp_path: Path, kind: str) -> None:
    module, _, tokenizer = started(tmp_path, kind)
    source, mask, _ = given(module, tokenizer, LINES)
    target = torch.randint(5, 20, (len(LINES), 6))
    whole = module(source, mask, target)
    memory = module.encode(source, mask)
    cache = module.new_cache(memory, mask)
    parts = [module.decode(part, memory, mask, cache) for part in target.split([1, 2, 3], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, atol=1e-4, rtol=0)
    assert cache.length == 6
    for row in range(len(LINES)):
        real = mask[row]
        alone = module(source[row : row + 1, real], mask[row : row + 1, real], target[row : row + 1])[0]
        torch.testing.assert_close(alone, whole[row], atol=1e-4, rtol=0)
    shares = module.alignment(source, mask, target)
    assert shares.shape == (len(LINES), 6, source.size(1))
    torch.testing.assert_close(shares.sum(dim=2), torch.ones(len(LINES), 6))
    longest = torch.full((1, module.max_positions), 5)
    assert module(longest, torch.ones_like(longest, dtype=torch.bool), longest).isfinite().all()


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_loss_is_that_of_transformers(tmp_path: Path, kind: str) -> None:
    module, theirs, tokenizer = started(tmp_path, kind, rows=0)
    source, mask, there = given(module, tokenizer, LINES)
    rows = [
        [*row, tokenizer.eos_id] for row in tokenizer.target.encode_batch(["die Mühle", "Wasser", "langsam", "die"])
    ]
    width = max(map(len, rows))
    target = torch.tensor([[*row, *[tokenizer.pad_id] * (width - len(row))] for row in rows])
    real = torch.tensor([[i < len(row) for i in range(width)] for row in rows])
    begin = torch.full((len(rows), 1), tokenizer.bos_id)
    batch = {
        "source": source,
        "source_mask": mask,
        "target_in": torch.cat([begin, target[:, :-1]], dim=1),
        "target_out": target,
        "target_mask": real,
    }
    found, count = smoothed_sum(module, batch, 0.0)
    prefix = torch.tensor(module.begins["target"], dtype=torch.int64).expand(len(rows), -1)
    ids = torch.cat([begin, prefix, target[:, :-1]], dim=1)
    labels = torch.cat([torch.full_like(prefix, -100), target.masked_fill(~real, -100)], dim=1)
    wanted = theirs(**there, decoder_input_ids=ids, labels=labels).loss * count
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=0)
    smoothed, _ = smoothed_sum(module, batch, 0.1)
    logits = module(source, mask, batch["target_in"])[real]
    plain = nn.functional.cross_entropy(logits, target[real], reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(smoothed, plain, atol=1e-3, rtol=1e-5)
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    ours = torch.autograd.grad(smoothed, [module.get_parameter(name) for name in names])
    for name, one, other in zip(
        names, ours, torch.autograd.grad(plain, [*map(module.get_parameter, names)]), strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3, msg=name)
    assert module.training_flops(10, 10) > 60 * 1000
    assert module.count_parameters() == sum(one.numel() for one in theirs.parameters() if one.requires_grad)


@pytest.mark.parametrize("kind", ["nllb", "t5", "mt5"])
def test_the_tokens_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    module, _, tokenizer = started(tmp_path, kind)
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "checkpoint")
    for line in [*LINES, "Über die  Mühle"]:
        text = f"{PREFIXES['t5']['source_prefix']}{line}" if kind == "t5" else line
        assert [*module.begins["source"], *tokenizer.encode(line), tokenizer.eos_id] == there(text)["input_ids"]
    assert tokenizer.bos_id == {"nllb": 2, "t5": 0, "mt5": 0}[kind]
    assert tokenizer.target is tokenizer
    assert tokenizer.decode(tokenizer.encode("die Mühle dreht")) == "die Mühle dreht"


def test_a_marian_segments_its_sides_by_their_own_models(tmp_path: Path) -> None:
    _, _, tokenizer = started(tmp_path, "marian")
    numbers = json.loads((tmp_path / "checkpoint" / "vocab.json").read_text())

    def ids(*pieces: str) -> list[int]:
        return [numbers[piece] for piece in pieces]

    assert tokenizer.encode("the mill") == ids("▁the", "▁mill")
    assert tokenizer.target.encode("die  Mühle ") == ids("▁die", "▁Mühle")
    # The source has no word of the target: letters it knows, one that the target knows, one that neither does.
    assert tokenizer.encode("die") == ids("▁", "d", "i", "e")
    assert tokenizer.encode("ü東") == ids("▁", "ü", "<unk>")
    assert tokenizer.target.encode("water") == ids("▁", "w", "a", "t", "e", "r")
    assert tokenizer.encode("\ue000▁die") == tokenizer.encode("▁die")
    assert tokenizer.encode("</s>") == ids("▁", "<", "/", "s", ">")
    for side in (tokenizer, tokenizer.target):
        assert side.decode(ids("▁die", "▁Mühle", "</s>")) == "die Mühle"
        assert side.decode(ids("▁the", "▁mill", "s")) == "the mills"
    special = (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id)
    assert special == (len(numbers) - 1, len(numbers) - 1, 0, 1)
    again = tokenizers.load(tmp_path / "tokenizer")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.target.encode("die Mühle") == ids("▁die", "▁Mühle")
    shape = models.family("hugging_face_translator").shape
    tiny = models.family("hugging_face_translator").tiny
    assert begins_of(shape(**tiny, source_prefix=">>deu<<"), tokenizer) == {"source": ids(">>deu<<"), "target": []}
    with pytest.raises(UserError, match=r"shape.source_prefix: the tokenizer has no token '>>ger<<'.*'>>deu<<'"):
        begins_of(shape(**tiny, source_prefix=">>ger<<"), tokenizer)


def test_what_a_unigram_model_writes_is_its_best_path(tmp_path: Path) -> None:
    """Against all paths of a line, by hand."""
    _, _, tokenizer = started(tmp_path, "marian")
    scores = dict(pieces(SOURCES))
    text = "▁the▁mills▁turn"

    def best(end: int) -> tuple[float, tuple[str, ...]]:
        ways = [(0.0, ())] if end == 0 else []
        for begin in range(end):
            if text[begin:end] in scores:
                value, path = best(begin)
                ways.append((value + scores[text[begin:end]], (*path, text[begin:end])))
        return max(ways)

    numbers = json.loads((tmp_path / "checkpoint" / "vocab.json").read_text())
    assert tokenizer.encode("the mills turn") == [numbers[piece] for piece in best(len(text))[1]]


def test_prefixes_that_are_missing_or_unknown_are_refused(tmp_path: Path) -> None:
    _, _, tokenizer = started(tmp_path, "nllb")
    declared = models.family("hugging_face_translator")
    sizes = {**declared.tiny, "model_type": "m2m_100", "activation": "relu"}
    missing = declared.shape(**sizes).entry_errors()
    assert [error.partition(":")[0] for error in missing] == ["source_prefix", "target_prefix"]
    assert "write its token, as eng_Latn (NLLB)" in missing[0]
    shape = declared.shape(**sizes, source_prefix="eng_Latn", target_prefix="deu_Lat")
    assert shape.entry_errors() == []
    with pytest.raises(
        UserError, match=r"shape.target_prefix: the tokenizer has no token 'deu_Lat', did you mean 'deu_L"
    ):
        begins_of(shape, tokenizer)
    text = declared.shape(**{**declared.tiny, "model_type": "t5", "activation": "relu"}, source_prefix="東京:")
    with pytest.raises(UserError, match=r"shape.source_prefix: the tokenizer does not know all characters"):
        begins_of(text, tokenizer)
    broken = {"family": "hugging_face_translator", "shape": dict(declared.tiny), "vocab_size": 23}
    for begins in ({"source": [23], "target": []}, {"source": []}, [], {"source": [], "target": ["a"]}):
        with pytest.raises(UserErrors, match="begins: ids below vocab_size"):
            models.build({**broken, "begins": begins})
    gpt = models.family("gpt")
    with pytest.raises(UserErrors, match="begins: family 'gpt' reads no prefixes"):
        models.build(
            {"family": "gpt", "shape": dict(gpt.tiny), "vocab_size": 23, "begins": {"source": [], "target": []}}
        )


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("marian", {"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False"),
        ("marian", {"decoder_ffn_dim": 25}, "decoder_ffn_dim is 25; only 24 is computed here"),
        ("t5", {"d_kv": 1}, "options.d_kv: 1 is no whole number from 2"),
        ("t5", {"feed_forward_proj": "gated-tanh"}, "activation: 'gated-tanh'"),
        ("nllb", {"num_experts": "x", "encoder_layers": "two"}, "config.json cannot be read"),
        ("nllb", {"model_type": "nllb-moe"}, "model_type 'nllb-moe' cannot be read; one of: .*m2m_100"),
    ],
)
def test_a_configuration_that_is_not_computed_here_is_refused(
    tmp_path: Path, kind: str, changes: dict[str, Any], message: str
) -> None:
    make_tiny_translator(tmp_path / "checkpoint", kind, SOURCES, TARGETS)
    path = tmp_path / "checkpoint" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=message):
        pretrained.read_shape(tmp_path / "checkpoint", "hugging_face_translator")


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    make_tiny_translator(tmp_path / "checkpoint", "t5", SOURCES, TARGETS)
    path = tmp_path / "checkpoint" / "model.safetensors"
    tensors = load_file(path)
    save_file({**tensors, "lm_head.weight": tensors["shared.weight"] + 1}, path)
    with pytest.raises(UserError, match=r"'lm_head.weight' differs from the embedding"):
        pretrained.read(tmp_path / "checkpoint", "hugging_face_translator")
    save_file({name: one for name, one in tensors.items() if "shared" not in name}, path)
    with pytest.raises(UserError, match=r"'shared.weight' is missing"):
        pretrained.read(tmp_path / "checkpoint", "hugging_face_translator")
    path.rename(path.with_name("pytorch_model.bin"))
    with pytest.raises(UserError, match="safetensors"):
        pretrained.read(tmp_path / "checkpoint", "hugging_face_translator")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("source.spm", b"not a model\xff", "not a SentencePiece model"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1, "<pad>": 7}', "its ids are not 0, 1, 2 ... without holes"),
        ("vocab.json", b'{"</s>": 0, "<unk>": 1}', "it has no <pad>"),
    ],
)
def test_a_marians_damaged_files_are_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    make_tiny_translator(tmp_path / "checkpoint", "marian", SOURCES, TARGETS)
    (tmp_path / "checkpoint" / name).write_bytes(content)
    (tmp_path / "tokenizer").mkdir()
    with pytest.raises(UserError, match=message):
        import_tokenizer(tmp_path / "checkpoint", tmp_path / "tokenizer")


def test_a_checkpoint_without_a_first_token_is_refused(tmp_path: Path) -> None:
    make_tiny_translator(tmp_path / "checkpoint", "t5", SOURCES, TARGETS)
    for name in ("config.json", "generation_config.json"):
        path = tmp_path / "checkpoint" / name
        found = json.loads(path.read_text())
        path.write_text(json.dumps({key: one for key, one in found.items() if key != "decoder_start_token_id"}))
    (tmp_path / "tokenizer").mkdir()
    with pytest.raises(UserError, match=r"config.json has no decoder_start_token_id"):
        import_tokenizer(tmp_path / "checkpoint", tmp_path / "tokenizer")
