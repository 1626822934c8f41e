"""Which source tokens a translator attends to as it writes, for a picture beside its translations.

Letters: T target tokens, S source tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from lexmill.decoding.batching import pad_sources

if TYPE_CHECKING:
    from lexmill.models.common.encoder_decoder import EncoderDecoder
    from lexmill.tokenizers import Tokenizer

PICTURED, LONGEST = 4, 24  # pairs, and the tokens of either side: more cannot be read

Pictured = tuple[list[str], list[str], tuple[NDArray[np.float32]]]


@torch.inference_mode()
def alignments(
    module: EncoderDecoder, tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]], begin: Sequence[int] = ()
) -> list[Pictured]:
    """Return of the first short pairs of source and translation the tokens written, those read, and the weights (T, S).

    A row has the weights by which its token was chosen; the end tokens are shown too. Nothing for a network whose
    decoder sees the source as one vector.

    Args:
        module: in eval mode.
        begin: ids before those of each source.
    """
    device, found = next(module.parameters()).device, list[Pictured]()
    for pair in pairs:
        [own], [written] = tokenizer.encode_batch(pair[:1]), tokenizer.target.encode_batch(pair[1:])
        read = [*begin, *own]
        if len(found) == PICTURED:
            break
        if not (own and written and max(len(read), len(written)) < min(LONGEST, module.max_positions)):
            continue
        source, mask = pad_sources([read], device, tokenizer.special)
        target = torch.tensor([[tokenizer.bos_id, *written]], device=device)
        weights = module.alignment(source, mask, target)[0].float().cpu().numpy()
        if weights.shape[1] != source.size(1):
            return []
        rows, columns = (
            [tokenizer.decode([one], skip_special=False).strip() for one in (*side, tokenizer.eos_id)]
            for side in (written, read)
        )
        found.append((rows, columns, (weights,)))
    return found
