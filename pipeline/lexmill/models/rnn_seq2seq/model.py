"""A recurrent encoder-decoder, with attention in each step of the decoder, or with one vector for the whole source.

Global attention of Luong et al. (2015): with s_t the state of the decoder's last layer after the target's token t,

    a_t = softmax over i of score(s_t, h_i),   c_t = sum of a_ti h_i,   o_t = tanh(W [c_t; s_t]),

and the logits are o_t times the embedding. Without attention c_t is the source's final state in every step (Cho et al.
2014). The decoder starts in tanh(V h), h the final state (Bahdanau et al. 2015). With input feeding the next step reads
o_t beside the token; then target positions are computed one after another, otherwise together.

Cost of a training step: `RNNSeq2Seq.training_flops`, and the score's (see `scores`).

Shape letters: B rows, S source length, T target length, D width of the states, E width of the embedding.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from lexmill.models.common.attention import softmax_at
from lexmill.models.common.bidirectional import Bidirectional, Cell, in_order, reverse_order
from lexmill.models.common.encoder_decoder import EncoderDecoder
from lexmill.models.common.mixer import Layout
from lexmill.models.common.recurrent import Memory
from lexmill.models.rnn_seq2seq.cache import RecurrentCache
from lexmill.models.rnn_seq2seq.scores import score
from lexmill.models.rnn_seq2seq.shape import Shape


class RNNSeq2Seq(EncoderDecoder):
    """Maps source sentences to target sentences.

    Args:
        shape: the sizes.
        vocab_size: entries of the joint vocabulary.
    """

    def __init__(self, shape: Shape, vocab_size: int) -> None:
        super().__init__(vocab_size, shape.d_embedding, shape.dropout, shape.max_positions)
        self.shape, width = shape, shape.d_model
        one: type[Cell | Bidirectional] = Bidirectional if shape.bidirectional else Cell
        half, rate = (width // 2 if shape.bidirectional else width), shape.dropout
        inputs = [shape.d_embedding] + [width] * (shape.encoder_layers - 1)
        self.encoder = nn.ModuleList(one(shape.cell, size, half, rate) for size in inputs)
        inputs = [shape.d_embedding * (2 if shape.input_feeding else 1)] + [width] * (shape.decoder_layers - 1)
        self.decoder = nn.ModuleList(Cell(shape.cell, size, width, rate) for size in inputs)
        self.parts = shape.decoder_layers * (2 if shape.cell == "lstm" else 1)
        self.bridge = nn.Linear(width, self.parts * width)
        self.score = score(shape.attention, width, shape.max_positions)
        self.combine = nn.Linear(2 * width, shape.d_embedding)

    def fused_parts(self) -> dict[str, Layout]:
        """Return the first state of each layer."""
        return {"bridge.weight": (1, self.parts)} if self.parts > 1 else {}

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderDecoder`; the memory has the width of the states."""
        self.check_source(source, source_mask)
        turned = reverse_order(source_mask)
        hidden: Tensor = self.dropout(self.embedding(source))
        if self.shape.reverse_source:
            hidden = in_order(hidden, turned)
        for layer in self.encoder:
            hidden = layer(hidden, turned) if isinstance(layer, Bidirectional) else cast(Cell, layer).along(hidden)
        return in_order(hidden, turned) if self.shape.reverse_source else hidden

    def final(self, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Return the encoder's state (B, D) after all that it has read, of each direction where that ended."""
        last = (source_mask.sum(dim=1) - 1).clamp(min=0)
        if self.shape.reverse_source:
            last = torch.zeros_like(last)
        end = memory[torch.arange(len(last), device=last.device), last]
        if not self.shape.bidirectional:
            return end
        half = self.shape.d_model // 2
        return torch.cat([end[:, :half], memory[:, 0, half:]], dim=1)

    def new_cache(self, memory: Tensor, source_mask: Tensor) -> RecurrentCache:
        """See `EncoderDecoder`: the decoder's first state, and the keys of the score."""
        final = self.final(memory, source_mask)
        parts = torch.tanh(self.bridge(final)).chunk(self.parts, dim=1)  # (B, D) each
        each = self.parts // self.shape.decoder_layers
        states: list[Memory] = [
            tuple(part[None].contiguous() for part in parts[i : i + each]) for i in range(0, self.parts, each)
        ]
        fed = memory.new_zeros(len(memory), self.shape.d_embedding)
        if self.score is None:
            return RecurrentCache(final[:, None], final[:, None], source_mask[:, :1], states, fed)
        return RecurrentCache(memory, self.score.keys(memory), source_mask, states, fed)

    def decode_cached(self, target_in: Tensor, cache: RecurrentCache, *, growing: bool) -> Tensor:
        """See `EncoderDecoder`."""
        return self._steps(target_in, cache)[0]

    def alignment(self, source: Tensor, source_mask: Tensor, target_in: Tensor) -> Tensor:
        """See `EncoderDecoder`; without attention (B, T, 1): there is one vector."""
        return self._steps(target_in, self.new_cache(self.encode(source, source_mask), source_mask))[1]

    def _steps(self, target_in: Tensor, cache: RecurrentCache) -> tuple[Tensor, Tensor]:
        """Return what the output projection reads (B, T, E), and the weights of the source (B, T, S)."""
        cache.spread(len(target_in))
        hidden = self.dropout(self.embedding(target_in))
        cache.length += target_in.size(1)
        if not self.shape.input_feeding:
            out, shares = self._attentional(self._read(hidden, cache), cache)
            return self.dropout(out), shares
        found = []
        for one in hidden.split(1, dim=1):
            out, shares = self._attentional(self._read(torch.cat([one, cache.fed[:, None]], dim=2), cache), cache)
            out = self.dropout(out)
            cache.fed = out[:, 0]
            found.append((out, shares))
        outs, weights = zip(*found, strict=True)
        return torch.cat(outs, dim=1), torch.cat(weights, dim=1)

    def _read(self, hidden: Tensor, cache: RecurrentCache) -> Tensor:
        """Map inputs (B, T, ...) to the last layer's states (B, T, D)."""
        for i, layer in enumerate(self.decoder):
            cell = cast(Cell, layer)
            hidden, cache.states[i] = cell.read(hidden, cache.states[i])
            if i + 1 < len(self.decoder):
                hidden = cell.dropout(hidden)
        return hidden

    def _attentional(self, states: Tensor, cache: RecurrentCache) -> tuple[Tensor, Tensor]:
        """Return o (B, T, E) of states (B, T, D), and the weights of the source (B, T, S)."""
        rows, time, width = states.shape
        # The rows of one source attend as one long row, so the source is not copied.
        joined = states.reshape(cache.sources, -1, width)
        if self.score is None:
            shares = joined.new_ones(cache.sources, joined.size(1), 1)
        else:
            shares = softmax_at(self.score(joined, cache.keys), cache.real[:, None])
        context = (shares @ cache.memory).view(rows, time, width)
        return torch.tanh(self.combine(torch.cat([context, states], dim=2))), shares.view(rows, time, -1)

    def training_flops(self, source_tokens: int, target_tokens: int) -> int:
        """See `EncoderDecoder`."""

        def cells(stack: nn.ModuleList) -> int:
            return sum(value.numel() for value in stack.parameters() if value.ndim == 2)

        of_score = 0 if self.score is None else sum(value.numel() for value in self.score.parameters())
        outputs = self.combine.weight.numel() + self.embedding.weight.numel()
        return 6 * (source_tokens * cells(self.encoder) + target_tokens * (cells(self.decoder) + outputs + of_score))
