"""The network: an encoder-decoder of `transformers`, built from its configuration, with the interface of those here.

Only the library's own code runs; a checkpoint gives sizes and weights. The ids of `begins` are read before a source,
and after the first token of a target, by this network itself: nothing outside counts or sees them.

Cost: as the library computes it; a training step is `training_flops`. LayerDrop is off.

Shape letters: B rows, S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from lexmill.base.errors import UserError
from lexmill.models.common.encoder_decoder import EncoderDecoder, linear_weights
from lexmill.models.hugging_face_translator.cache import HuggingFaceCache
from lexmill.models.hugging_face_translator.hugging_face import configuration, separate_head, write_config
from lexmill.models.hugging_face_translator.places import Places
from lexmill.models.hugging_face_translator.shape import Shape

_NONE: Mapping[str, Sequence[int]] = MappingProxyType({})


class HuggingFaceTranslator(EncoderDecoder):
    """Maps source sentences to target sentences.

    Args:
        shape: the sizes.
        vocab_size: entries of the joint vocabulary.
        begins: the ids of the prefixes, by side: `source`, `target`.

    Raises:
        UserError: the padding token is none of the vocabulary.
    """

    def __init__(self, shape: Shape, vocab_size: int, begins: Mapping[str, Sequence[int]] = _NONE) -> None:
        from transformers import AutoModel

        nn.Module.__init__(self)  # the embeddings are the library's
        if shape.pad_token_id >= vocab_size:
            raise UserError(f"shape.pad_token_id is {shape.pad_token_id}, but the vocabulary has {vocab_size} tokens")
        self.shape, self.vocab_size, self.max_positions = shape, vocab_size, shape.max_positions
        self.begins = {side: list(begins.get(side, ())) for side in ("source", "target")}
        sizes = asdict(shape)
        values = write_config(
            {**sizes, "max_positions": shape.max_positions + max(map(len, self.begins.values()))}, vocab_size
        )
        del values["model_type"], values["architectures"]
        self.network: Any = AutoModel.from_config(configuration(shape.model_type, values))
        if shape.model_type == "marian":
            for stack in (self.network.encoder, self.network.decoder):
                stack.embed_positions = Places(stack.embed_positions.weight.detach())
        self.head = nn.Linear(shape.d_model, vocab_size, bias=False) if separate_head(sizes) else None
        self.register_buffer("output_bias", torch.zeros(vocab_size) if shape.model_type == "marian" else None)

    @property
    def embedding(self) -> nn.Embedding:  # type: ignore[override]
        """The target's; the source's has the same weight."""
        found: nn.Embedding = self.network.decoder.embed_tokens
        return found

    @property
    def source_embedding(self) -> nn.Embedding:  # type: ignore[override]
        """The source's."""
        found: nn.Embedding = self.network.encoder.embed_tokens
        return found

    def _after(self, side: str, tokens: Tensor, place: int) -> Tensor:
        """(B, T) -> (B, T + prefix), with the prefix of a side before the token at a place."""
        begin = tokens.new_tensor(self.begins[side]).expand(tokens.size(0), -1)
        return torch.cat([tokens[:, :place], begin, tokens[:, place:]], dim=1) if self.begins[side] else tokens

    def _seen(self, source_mask: Tensor) -> Tensor:
        """Return the mask of a memory; a source of padding alone is read, as attention over nothing is no number."""
        seen = source_mask | ~source_mask.any(dim=1, keepdim=True)
        more = len(self.begins["source"])
        return torch.cat([seen.new_ones(len(seen), more), seen], dim=1) if more else seen

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderDecoder`; the memory has the prefix's states first."""
        self.check_source(source, source_mask)
        tokens = self._after("source", source.masked_fill(~source_mask, self.shape.pad_token_id), 0)
        found: Tensor = self.network.encoder(tokens, attention_mask=self._seen(source_mask)).last_hidden_state
        return found

    def new_cache(self, memory: Tensor, source_mask: Tensor) -> HuggingFaceCache:
        """See `EncoderDecoder`."""
        return HuggingFaceCache(memory, self._seen(source_mask), len(self.begins["target"]))

    def decode_cached(self, target_in: Tensor, cache: HuggingFaceCache, *, growing: bool) -> Tensor:
        """See `EncoderDecoder`."""
        return self._decoded(target_in, cache, growing=growing).last_hidden_state * self._scale

    def _decoded(self, target_in: Tensor, cache: HuggingFaceCache, *, growing: bool, **more: Any) -> Any:
        """Return the decoder's output, with states (B, T, D) of `target_in` alone."""
        cache.spread(target_in.size(0))
        first = cache.state.get_seq_length() == 0
        found = self.network.decoder(
            self._after("target", target_in, 1) if first else target_in,
            encoder_hidden_states=cache.memory,
            encoder_attention_mask=cache.mask,
            cache=cache.state if growing else None,
            use_cache=growing,
            **more,
        )
        found.last_hidden_state = found.last_hidden_state[:, -target_in.size(1) :]
        return found

    @property
    def _scale(self) -> float:
        """What a T5 multiplies its states with where the output has the embedding's weight."""
        scaled = self.shape.model_type == "t5" and self.shape.option("scale_decoder_outputs")
        return float(self.shape.d_model**-0.5) if scaled else 1.0

    def alignment(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """See `EncoderDecoder`: the mean over the heads of the decoder's last layer, without the prefix."""
        cache = self.new_cache(self.encode(source, source_mask), source_mask)
        kept = self.network.config._attn_implementation
        self.network.set_attn_implementation("eager")  # others do not keep the weights
        try:
            output = self._decoded(target_in, cache, growing=False, output_attentions=True)
        finally:
            self.network.set_attn_implementation(kept)
        found = output.cross_attentions[-1].mean(dim=1)  # (B, T, S)
        shares = found[:, -target_in.size(1) :, -source.size(1) :]
        out: Tensor = shares / shares.sum(dim=2, keepdim=True).clamp_min(1e-10)
        return out

    def training_flops(self, source_tokens: int, target_tokens: int) -> int:
        """Return the FLOPs of the matrix products forward and backward, without attention's scores and sums."""
        names = ("encoder_attn.k_proj", "encoder_attn.v_proj", "EncDecAttention.k", "EncDecAttention.v")
        of_source = sum(
            linear_weights(one) for name, one in self.network.decoder.named_modules() if name.endswith(names)
        )
        source = linear_weights(self.network.encoder) + of_source
        target = linear_weights(self.network.decoder) - of_source + self.output_matrix.numel()
        return 6 * (source_tokens * source + target_tokens * target)
