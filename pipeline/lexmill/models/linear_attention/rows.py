"""The seventeen rows of the family, each a class: what a token writes, how the state decays, what is read.

The state S_t of a head is V x K as in the papers; (.) is the element-wise product. Where a paper's form differs from
the equation here, the docstring says so. Gates are computed as logs.

Shape letters: B batch, H heads, T time, D width, K and V a head's keys and values (both K wide here), M slots,
I = H * K channels, N states of a channel.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, logsigmoid, normalize, pad, softplus

from lexmill.models.common.diagonal_scan import scan
from lexmill.models.common.matrix_state import Terms
from lexmill.models.common.rotary import rotate
from lexmill.models.common.running_max import running_max
from lexmill.models.linear_attention.layer import Attention, FamilyMixer, LayerState, LinearMixer, Shared, precise
from lexmill.models.linear_attention.shape import Shape


def positive(rows: Tensor) -> Tensor:
    """phi(x) = elu(x) + 1 (Katharopoulos et al. 2020)."""
    return elu(rows) + 1


def with_ones(value: Tensor) -> Tensor:
    """Return the values and a column of ones, which sums the keys: (..., V) -> (..., V + 1)."""
    return pad(value, (0, 1), value=1.0)


def spread(low: float, high: float, count: int) -> nn.Parameter:
    """Return `count` numbers from `low` to `high`."""
    return nn.Parameter(torch.linspace(low, high, count))


class Linear(LinearMixer):
    """S_t = S_{t-1} + v_t k_t^T, o_t = S_t q_t (Katharopoulos et al. 2020, without kernel and normaliser)."""

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        return self.run(Terms(query * query.shape[-1] ** -0.5, key, value), shared, state)


class LinearKernel(LinearMixer):
    """S_t = S_{t-1} + v_t phi(k_t)^T, o_t = S_t phi(q_t), phi = elu + 1."""

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        return self.run(Terms(positive(query), positive(key), value), shared, state)


class LinearNormalized(LinearMixer):
    """As `LinearKernel`, z_t = z_{t-1} + phi(k_t), o_t = S_t phi(q_t) / (z_t^T phi(q_t)) (Katharopoulos et al. 2020)."""

    normed = False

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        out = self.run(Terms(positive(query), positive(key), with_ones(value)), shared, state)
        return out[..., :-1] / out[..., -1:]


class DeltaNet(LinearMixer):
    """S_t = S_{t-1} (I - b_t k_t k_t^T) + b_t v_t k_t^T, o_t = S_t q_t (Schlag et al. 2021; Yang et al. 2024).

    b_t = sigmoid(W x_t) for each head; queries and keys have length 1, which keeps the state bounded.
    """

    convolved = True

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.beta = nn.Linear(shape.d_model, shape.n_head, bias=False)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        beta = precise(self.beta(hidden)).sigmoid().mT[..., None]  # (B, H, T, 1)
        terms = Terms(normalize(query, dim=-1), normalize(key, dim=-1), value, self.decay(hidden), beta=beta)
        return self.run(terms, shared, state)

    def decay(self, hidden: Tensor) -> Tensor | None:
        """Return the state's decay, logs (B, H, T, 1); None: none."""
        return None


class GatedRFA(LinearMixer):
    """S_t = g_t S_{t-1} + (1 - g_t) v_t k_t^T, z_t the same of k_t, o_t = S_t q_t / (z_t^T q_t) (Peng et al. 2021).

    Queries and keys are random features of vectors of length 1: relu(R x), the paper's arc-cosine kernel. R is drawn
    from a fixed seed and not stored.
    """

    normed = False

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.forget = nn.Linear(shape.d_model, shape.n_head, bias=False)
        self.bias = spread(1.0, 6.0, shape.n_head)
        self.features: Tensor
        seeded = torch.Generator("cpu").manual_seed(0)
        drawn = torch.randn(shape.head_width, shape.head_width, generator=seeded, device="cpu")
        self.register_buffer("features", drawn, persistent=False)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key = ((normalize(part, dim=-1) @ self.features.to(part.dtype)).relu() for part in heads[:2])
        forget = (precise(self.forget(hidden)) + self.bias).mT[..., None]  # (B, H, T, 1)
        terms = Terms(query, key * (-forget).sigmoid(), with_ones(heads[2]), logsigmoid(forget))
        out = self.run(terms, shared, state)
        return out[..., :-1] / out[..., -1:].clamp_min(1e-6)


class S4(LinearMixer):
    """S_t = S_{t-1} (.) exp(-(a 1^T) (.) exp(A)) + B (.) (v_t 1^T), o_t = (S_t (.) C) 1 + d (.) v_t, all fixed in time.

    Diagonal and real (Gu et al. 2022, S4D-Real); each channel has N states. B starts so that each is a moving average.
    """

    parts, normed = 1, False

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        channels, states = self.output.in_features, shape.d_state
        self.log_a = spread(-6.9, -2.3, channels)  # steps of 0.001 to 0.1
        self.log_rate = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(channels))  # A, (I * N)
        rates = torch.arange(1.0, states + 1) * self.log_a.detach().exp()[:, None]
        self.write = nn.Parameter(-torch.expm1(-rates).flatten())  # B
        self.read = nn.Parameter(torch.randn(channels * states) * states**-0.5)  # C
        self.skip = nn.Parameter(torch.ones(channels))  # d

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        value = by_time(heads[0])
        rates, write, read = (one.view(value.shape[-1], -1) for one in (self.log_rate, self.write, self.read))
        decay = torch.exp(-self.log_a.exp()[:, None] * rates.exp()).expand(*value.shape, -1)
        states = scanned(decay, write * value[..., None], shared, state)
        return by_head((states * read).sum(-1) + self.skip * value, heads[0])


class ABC(LinearMixer):
    """K_t = K_{t-1} + k_t f_t^T, V_t = V_{t-1} + v_t f_t^T, o_t = V_t softmax(K_t^T q_t) (Peng et al. 2022).

    f_t = softmax(W x_t) over the slots. As in the paper, a slot holds an average: both are divided by the sum of f.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.control = nn.Linear(shape.d_model, shape.n_head * shape.n_slot, bias=False)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        write = precise(self.control(hidden)).unflatten(-1, (-1, self.shape.n_slot)).transpose(1, 2).softmax(-1)
        one = torch.ones_like(write[..., :1])
        total = self.run(Terms(one, one, write), shared, state, "total").clamp_min(1e-6)  # (B, H, T, M)
        scores = self.run(Terms(query * query.shape[-1] ** -0.5, key, write), shared, state, "keys") / total
        return self.run(Terms(scores.softmax(-1) / total, write, value), shared, state, "values")


class DFW(LinearMixer):
    """S_t = S_{t-1} (.) (b_t a_t^T) + v_t k_t^T, o_t = S_t q_t, a and b sigmoids (Mao 2022, decaying fast weights)."""

    parts = 5

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.bias = spread(1.0, 6.0, shape.head_width)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value, by_key, by_value = heads
        decays = (logsigmoid(part + self.bias) for part in (by_key, by_value))
        return self.run(Terms(query * query.shape[-1] ** -0.5, key, value, *decays), shared, state)


class RetNet(LinearMixer):
    """S_t = g S_{t-1} + v_t k_t^T, o_t = S_t q_t, g = 1 - 2^(-5 - h) for head h; rotary (Sun et al. 2023)."""

    gated = True

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        if shared.rotation is not None:
            query, key = (rotate(part.transpose(1, 2), shared.rotation).transpose(1, 2) for part in (query, key))
        each = torch.arange(query.shape[1], dtype=value.dtype, device=value.device)
        decay = torch.log1p(-torch.exp2(-5 - each)).view(1, -1, 1, 1).expand(*value.shape[:3], 1)
        return self.run(Terms(query * query.shape[-1] ** -0.5, key, value, decay), shared, state)


class Mamba(LinearMixer):
    """S_t = S_{t-1} (.) exp(-(a_t 1^T) (.) exp(A)) + (a_t (.) v_t) k_t^T, o_t = S_t q_t + d (.) v_t (Gu and Dao 2023).

    a_t = softplus(W x_t + b) for each channel, of low rank; all channels share q_t and k_t, N wide.
    """

    parts, normed, gated, convolved = 1, False, True, True

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        channels, states = self.output.in_features, shape.d_state
        rank = max(1, channels // 16)
        self.selection = nn.Linear(channels, rank + 2 * states, bias=False)
        self.step = nn.Linear(rank, channels, bias=False)
        self.bias = nn.Parameter(inverse_softplus(torch.logspace(-3, -1, channels)))
        self.log_rate = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(channels))  # A, (I * N)
        self.skip = nn.Parameter(torch.ones(channels))  # d

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        value = by_time(heads[0])
        selected = self.selection(value.to(self.selection.weight.dtype))
        low, query, key = selected.split([self.step.in_features, *2 * [self.shape.d_state]], -1)
        step = softplus(precise(self.step(low)) + self.bias)  # (T, B, I)
        rates = self.log_rate.view(value.shape[-1], -1).exp()
        decay = torch.exp(-step[..., None] * rates)
        states = scanned(decay, (step * value)[..., None] * precise(key)[..., None, :], shared, state)
        return by_head((states @ precise(query)[..., None]).squeeze(-1) + self.skip * value, heads[0])


class GLA(LinearMixer):
    """S_t = S_{t-1} Diag(a_t) + v_t k_t^T, o_t = S_t q_t, a_t = sigmoid(W x_t)^(1/16), of low rank (Yang et al. 2024)."""

    gated = True
    rank = 16

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.narrow = nn.Linear(shape.d_model, self.rank, bias=False)
        self.forget = nn.Linear(self.rank, self.output.in_features)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        decay = logsigmoid(precise(self.heads(self.forget(self.narrow(hidden))))) / 16
        return self.run(Terms(query * query.shape[-1] ** -0.5, key, value, decay), shared, state)


class RWKV6(LinearMixer):
    """S_t = S_{t-1} Diag(a_t) + v_t k_t^T, o_t = (S_{t-1} + v_t (d (.) k_t)^T) q_t (Peng et al. 2024).

    log a_t = -exp(w + W tanh(W' x_t)), bounded below at -e^5, where exp underflows in float32. The bonus d stands on
    the keys, as in the paper. A short convolution takes the place of its shift by one token.
    """

    gated, convolved = True, True
    rank = 32

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.narrow = nn.Linear(shape.d_model, self.rank, bias=False)
        self.forget = nn.Linear(self.rank, self.output.in_features, bias=False)
        self.bias = spread(-6.0, -1.0, shape.head_width)
        self.bonus = nn.Parameter(torch.ones(self.output.in_features))

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        rate = precise(self.heads(self.forget(self.narrow(hidden).tanh()))) + self.bias
        bonus = self.bonus.view(-1, 1, self.shape.head_width)
        terms = Terms(query * query.shape[-1] ** -0.5, key, value, -rate.clamp_max(5.0).exp(), bonus=bonus)
        return self.run(terms, shared, state)


class HGRN2(LinearMixer):
    """S_t = S_{t-1} Diag(a_t) + v_t (1 - a_t)^T, o_t = S_t q_t, a_t = sigmoid(W x_t + b) (Qin et al. 2024).

    The biases are spread over a head's keys, in place of the paper's lower bound of each layer.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.bias = spread(1.0, 6.0, shape.head_width)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, forget, value = heads[0], heads[1] + self.bias, heads[2]
        return self.run(Terms(query, (-forget).sigmoid(), value, logsigmoid(forget)), shared, state)


class MLSTM(LinearMixer):
    """S_t = f_t S_{t-1} + i_t v_t k_t^T, z_t the same of k_t, o_t = S_t q_t / max(1, |z_t^T q_t|) (Beck et al. 2024).

    i_t = exp(W x_t), f_t = sigmoid(W x_t). All are held relative to the running maximum m_t of i's decayed logs.
    """

    gated = True

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.gates = nn.Linear(shape.d_model, 2 * shape.n_head, bias=False)
        self.bias = nn.Parameter(torch.cat([torch.zeros(shape.n_head), torch.linspace(3, 6, shape.n_head)]))

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        write, forget = (precise(self.gates(hidden)) + self.bias).mT[..., None].chunk(2, 1)  # (B, H, T, 1)
        forget = logsigmoid(forget)
        before = None if state is None else state.parts.get("maximum")
        highest, decay = running_max(forget, write, before, shared.starts)
        if state is not None:
            state.parts["maximum"] = highest[:, :, -1:]
        key = key * key.shape[-1] ** -0.5 * (write - highest).exp()
        out = self.run(Terms(query, key, with_ones(value), decay), shared, state)
        return out[..., :-1] / torch.maximum(out[..., -1:].abs(), (-highest).exp())


class Mamba2(LinearMixer):
    """S_t = g_t S_{t-1} + v_t k_t^T, o_t = S_t q_t + d v_t, g_t = exp(-a_t exp(A)) (Dao and Gu 2024).

    a_t = softplus(W x_t + b), one for each head, also multiplies v_t. Each head has its own queries and keys.
    """

    gated, convolved = True, True

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.step = Step(shape)
        self.skip = nn.Parameter(torch.ones(shape.n_head))

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        step, decay = self.step(hidden)
        out = self.run(Terms(query, key, step * value, decay), shared, state)
        return out + self.skip[:, None, None] * value


class GSA(LinearMixer):
    """K_t = K_{t-1} Diag(a_t) + k_t f_t^T, V_t the same of v_t, f_t = 1 - a_t, o_t = V_t softmax(K_t^T q_t).

    a_t = sigmoid(W x_t)^(1/8), one for each slot (Zhang et al. 2024).
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.forget = nn.Linear(shape.d_model, shape.n_head * shape.n_slot, bias=False)

    def mix(self, hidden: Tensor, heads: list[Tensor], shared: Shared, state: LayerState | None) -> Tensor:
        query, key, value = heads
        forget = self.forget(hidden).unflatten(-1, (-1, self.shape.n_slot)).transpose(1, 2)
        decay = logsigmoid(precise(forget)) / 8  # (B, H, T, M)
        write = -torch.expm1(decay)
        terms = Terms(query * query.shape[-1] ** -0.5, key, write, value_decay=decay)
        weights = self.run(terms, shared, state, "keys").softmax(-1)
        return self.run(Terms(weights, write, value, decay), shared, state, "values")


class GatedDeltaNet(DeltaNet):
    """S_t = S_{t-1} (a_t (I - b_t k_t k_t^T)) + b_t v_t k_t^T, o_t = S_t q_t, a_t as Mamba-2's g_t (Yang et al. 2025)."""

    gated = True

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.step = Step(shape)

    def decay(self, hidden: Tensor) -> Tensor:
        """Return the state's decay, logs (B, H, T, 1)."""
        decay: Tensor = self.step(hidden)[1]
        return decay


class Step(nn.Module):
    """A step a_t = softplus(W x_t + b) for each head, and the decay -a_t exp(A) that it makes, (B, H, T, 1) each."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.linear = nn.Linear(shape.d_model, shape.n_head, bias=False)
        self.bias = nn.Parameter(inverse_softplus(torch.logspace(-3, -1, shape.n_head)))
        self.log_rate = nn.Parameter(torch.linspace(1, 16, shape.n_head).log())  # A

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, D) -> steps and logs of decays."""
        step = softplus(precise(self.linear(hidden)) + self.bias)
        return step.mT[..., None], (-step * self.log_rate.exp()).mT[..., None]


def inverse_softplus(values: Tensor) -> Tensor:
    """Return x with softplus(x) = values."""
    return values + torch.log(-torch.expm1(-values))


def by_time(heads: Tensor) -> Tensor:
    """(B, H, T, K) -> (T, B, I)."""
    return heads.permute(2, 0, 1, 3).flatten(2)


def by_head(rows: Tensor, like: Tensor) -> Tensor:
    """(T, B, I) -> (B, H, T, K), the widths of `like`."""
    return rows.unflatten(-1, (like.shape[1], -1)).permute(1, 2, 0, 3)


def scanned(decay: Tensor, write: Tensor, shared: Shared, state: LayerState | None) -> Tensor:
    """Return all states of a scan, (T, B, I, N), zero before a document's start; keeps the last one."""
    if shared.starts is not None:
        decay = decay.masked_fill(shared.starts.mT[..., None, None], 0.0)
    before = None if state is None else state.parts.get("states")
    states = scan(decay, write, torch.zeros_like(write[0]) if before is None else before)
    if state is not None:
        state.parts["states"] = states[-1]
    return states


ROWS: dict[str, type[FamilyMixer]] = {
    "linear": Linear,
    "linear_kernel": LinearKernel,
    "linear_normalized": LinearNormalized,
    "deltanet": DeltaNet,
    "gated_rfa": GatedRFA,
    "s4": S4,
    "abc": ABC,
    "dfw": DFW,
    "retnet": RetNet,
    "mamba": Mamba,
    "gla": GLA,
    "rwkv6": RWKV6,
    "hgrn2": HGRN2,
    "mlstm": MLSTM,
    "mamba2": Mamba2,
    "gsa": GSA,
    "gated_deltanet": GatedDeltaNet,
    "attention": Attention,
}
