"""`python -m benchmarks.recurrences`, beside loops in the peer's layout written from the equations."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import recurrences

LOOP = '''
import torch


def loop(q, k, v, decay=None, beta=None):
    """(B, T, H, K) and decays that multiply, (B, T, H, K or 1) or None."""
    state, found = torch.zeros(*q.shape[:1], *q.shape[2:], v.shape[-1]), []
    for t in range(q.shape[1]):
        if decay is not None:
            state = state * decay[:, t, :, :, None]
        value = v[:, t] if beta is None else beta[:, t, :, None] * (v[:, t] - (k[:, t, :, :, None] * state).sum(-2))
        state = state + k[:, t, :, :, None] * value[:, :, None]
        found.append(((q[:, t] / q.shape[-1] ** 0.5)[..., None] * state).sum(-2))
    return torch.stack(found, 1), None
'''
PEERS = {
    "gla": "naive_recurrent_gla = lambda q, k, v, g: loop(q, k, v, g.exp())",
    "simple_gla": "naive_recurrent_simple_gla = lambda q, k, v, g: loop(q, k, v, g.exp()[..., None])",
    "delta_rule": """
def delta_rule_recurrence(*parts):
    q, k, v, beta = (part.transpose(1, 2) for part in parts)
    return loop(q, k, v, None, beta)[0].transpose(1, 2), None
""",
    "gated_delta_rule": """
naive_recurrent_gated_delta_rule = lambda q, k, v, beta, g: loop(q, k, v, g.exp()[..., None], beta)
""",
}


def checkout(folder: Path, wrong: str = "") -> Path:
    for name, code in PEERS.items():
        (folder / "fla" / "ops" / name).mkdir(parents=True)
        query = "1.001 * q" if name == wrong else "q"
        lines = code.replace("beta, g: loop(q,", f"beta, g: loop({query},")
        (folder / "fla" / "ops" / name / "naive.py").write_text(LOOP + "\n\n" + lines + "\n")
    return folder


def test_outputs_and_gradients_are_equal_and_both_sides_are_timed(tmp_path: Path) -> None:
    found = recurrences.compare(checkout(tmp_path), repetitions=1, tokens=70)
    assert [one.what.split(",")[0] for one in found[::2]] == ["Mamba-2", "GLA", "DeltaNet", "Gated DeltaNet"]
    assert all(len(one.ours[1]) == len(one.peer[1]) == 1 for one in found)


def test_other_outputs_are_not_measured(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"Gated DeltaNet: 1\.0e-03 apart"):
        recurrences.compare(checkout(tmp_path, "gated_delta_rule"), repetitions=1, tokens=20)
    with pytest.raises(FileNotFoundError, match="no checkout of flash-linear-attention"):
        recurrences.compare(tmp_path / "nowhere", repetitions=1)
