"""A causal network whose mask is lifted, as an encoder.

Shape letters: B texts, T tokens, D width.
"""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor, nn

from lexmill.models.common.text_encoder import TextEncoder


class BothDirections(TextEncoder):
    """Hidden states of texts in which each token sees all others (Charpentier and Samuel 2024).

    Args:
        network: of a family with `both_directions`.

    Raises:
        UserError: its positions or window look back only.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.shape = network, network.shape
        self._network.check_both_directions()

    @property
    def _network(self) -> Any:
        return cast(Any, self.network)

    @property
    def max_positions(self) -> int:
        """The longest text, in tokens."""
        return int(self._network.context)

    def hidden(self, tokens: Tensor, mask: Tensor, segments: Tensor | None = None) -> Tensor:
        """See `TextEncoder.hidden`."""
        self.check(tokens)
        found: Tensor = self._network.both_directions(tokens, mask)
        return found
