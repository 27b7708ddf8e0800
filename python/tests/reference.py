"""Both operators in float64 NumPy, written from the equations of docs/operators.md and the layouts of docs/formats.md.

Nothing of the package is used here. Values of 8-bit types are converted by ml_dtypes, those of e2m1 by a table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float64)
ML = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
    "float16": np.float16,
    "float32": np.float32,
}
# name: element type, scale type, values per scale
FORMATS = {
    "bf16": ("bfloat16", None, 16),
    "mxfp8": ("float8_e4m3fn", "float8_e8m0fnu", 32),
    "mxfp8_e5m2": ("float8_e5m2", "float8_e8m0fnu", 32),
    "mxfp4": ("float4_e2m1fn_x2", "float8_e8m0fnu", 32),
    "mxfp4_16": ("float4_e2m1fn_x2", "float8_e8m0fnu", 16),
    "nvfp4": ("float4_e2m1fn_x2", "float8_e4m3fn", 16),
}
RCP_MAX = {"float8_e4m3fn": 1 / 448, "float8_e5m2": 1 / 128, "float4_e2m1fn_x2": 1 / 6}
# relative half ulp, absolute half step of the smallest values
HALF_ULP = {
    "float32": (2.0**-24, 0.0),
    "float16": (2.0**-11, 2.0**-25),
    "bfloat16": (2.0**-8, 0.0),
    "float8_e4m3fn": (2.0**-4, 2.0**-10),
    "float8_e5m2": (2.0**-3, 2.0**-17),
    "float4_e2m1fn_x2": (0.25, 0.25),
}


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def decode(codes: np.ndarray, dtype: str) -> np.ndarray:
    """Stored elements as float64; e2m1 doubles the last extent."""
    if dtype == "float4_e2m1fn_x2":
        low, high = E2M1[codes & 15], E2M1[codes >> 4]
        return np.stack([low, high], -1).reshape(*codes.shape[:-1], 2 * codes.shape[-1])
    return codes.astype(np.float64)


def swizzle(linear: np.ndarray, padding: int) -> np.ndarray:
    """(L, rows, blocks) scale bytes -> (L, R, B, 32, 4, 4); bytes without a scale are ``padding``."""
    experts, rows, blocks = linear.shape
    out = np.full((experts, ceil_div(rows, 128), ceil_div(blocks, 4), 32, 4, 4), padding, np.uint8)
    r, b = np.meshgrid(np.arange(rows), np.arange(blocks), indexing="ij")
    out[:, r // 128, b // 4, r % 32, r % 128 // 32, b % 4] = linear
    return out


def unswizzle(memory: np.ndarray, rows: int, blocks: int) -> np.ndarray:
    """(R, B, 32, 4, 4) -> (rows, blocks)."""
    r, b = np.meshgrid(np.arange(rows), np.arange(blocks), indexing="ij")
    return memory[r // 128, b // 4, r % 32, r % 128 // 32, b % 4]


def column_scales(memory: np.ndarray, columns: int, offsets: np.ndarray, per_expert: bool) -> np.ndarray:
    """SFD_col memory -> (m/32, columns) codes in either layout."""
    rows = int(offsets[-1])
    if not per_expert:
        return unswizzle(memory, columns, rows // 32).T
    flat, out, start = memory.reshape(-1), np.empty((rows // 32, columns), np.uint8), 0
    for end in offsets.tolist():
        for block in range(start // 32, end // 32):
            n, m = np.arange(columns), block * 32 - start
            atom = start // 128 * ceil_div(columns, 128) + n // 128 * ((end - start) // 128) + m // 128
            out[block] = flat[atom * 512 + n % 32 * 16 + n % 128 // 32 * 4 + m // 32 % 4]
        start = end
    return out


@dataclass
class Problem:
    """Arrays in memory order (codes and row-major scales beside them), and what they mean in float64."""

    op: str
    format: str
    n: int
    k: int
    offsets: np.ndarray
    a: np.ndarray
    b: np.ndarray  # (L, N, K)
    sfa: np.ndarray | None
    sfb: np.ndarray | None
    alpha: np.ndarray
    prob: np.ndarray
    beta: np.ndarray
    c: np.ndarray | None
    a_values: np.ndarray = field(repr=False)
    b_values: np.ndarray = field(repr=False)
    norm_const: float = 0.5

    @property
    def element(self) -> str:
        return FORMATS[self.format][0]

    @property
    def vec(self) -> int:
        return FORMATS[self.format][2]

    @property
    def m(self) -> int:
        return len(self.a)

    @property
    def experts(self) -> int:
        return len(self.offsets)

    def groups(self) -> list[tuple[int, slice]]:
        ends = self.offsets.tolist()
        return [(g, slice(s, e)) for g, (s, e) in enumerate(zip([0, *ends[:-1]], ends, strict=True))]


def _operand(rng: np.random.Generator, shape: tuple[int, ...], format: str) -> tuple[Any, Any, np.ndarray]:
    """Codes, scale bytes (L, rows, blocks) and values of random (L, rows, K) data."""
    element, scale, vec = FORMATS[format]
    if element == "float4_e2m1fn_x2":
        codes = rng.integers(0, 256, (*shape[:-1], shape[-1] // 2), dtype=np.uint8)
    else:
        codes = (rng.standard_normal(shape) * (1 if scale else 0.5)).astype(ML[element])
    values = decode(codes, element)
    if scale is None:
        return codes, None, values
    blocks = ceil_div(shape[-1], vec)
    if scale == "float8_e8m0fnu":
        scales = rng.integers(124, 129, (*shape[:-1], blocks), dtype=np.uint8)
        factors = 2.0 ** (scales.astype(np.float64) - 127)
    else:
        drawn = rng.uniform(0.25, 2, (*shape[:-1], blocks)).astype(ML[scale])
        scales, factors = drawn.view(np.uint8), drawn.astype(np.float64)
    return codes, scales, values * np.repeat(factors, vec, -1)[..., : shape[-1]]


def make_problem(op: str, format: str, rows: list[int], n: int, k: int, tail: int = 0, seed: int = 0, c_dtype: str = "bfloat16") -> Problem:
    """Random operands; ``tail`` rows of A belong to no expert. Bytes that pad scale factors decode to NaN."""
    rng = np.random.default_rng(seed)
    m, experts = sum(rows) + tail, len(rows)
    a, sfa, a_values = _operand(rng, (1, m, k), format)
    b, sfb, b_values = _operand(rng, (experts, n, k), format)
    padding = 0x7F if FORMATS[format][1] == "float8_e4m3fn" else 0xFF
    return Problem(
        op, format, n, k, np.cumsum(rows).astype(np.int32), a[0], b,
        None if sfa is None else swizzle(sfa, padding), None if sfb is None else swizzle(sfb, padding),
        alpha=rng.choice([2.0**-5, -(2.0**-6), 0.02], experts).astype(np.float32), prob=rng.uniform(-1, 1, m).astype(np.float32),
        beta=rng.uniform(0.5, 2, experts).astype(np.float32),
        c=(rng.standard_normal((m, 2 * n)) * 2).astype(ML[c_dtype]) if op == "dglu" else None,
        a_values=a_values[0], b_values=b_values,
    )  # fmt: skip


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _accumulation_error(p: Problem, g: int, s: slice) -> np.ndarray:
    """Bound of the error of an FP32 dot product, generous by 2^2."""
    return 2.0**-20 * (np.abs(p.a_values[s]) @ np.abs(p.b_values[g]).T)


def srelu(p: Problem, clamp: float | None = None, bias: np.ndarray | None = None) -> dict[str, np.ndarray]:
    """C and D before rounding for every row that belongs to an expert, amax, and error bounds of an FP32 evaluation."""
    rows = int(p.offsets[-1])
    x, amax = np.zeros((rows, p.n)), np.full(p.experts, -np.inf)
    y, x_error, y_error = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for g, s in p.groups():
        x[s] = float(p.alpha[g]) * (p.a_values[s] @ p.b_values[g].T)
        if bias is not None:
            x[s] += bias[:, g].astype(np.float64)
        x_error[s] = abs(float(p.alpha[g])) * _accumulation_error(p, g, s) + 1e-6 * np.abs(x[s])
        r = np.maximum(x[s], 0)
        if clamp is not None:
            r = clamp * np.tanh(r / clamp)
        prob = p.prob[s, None].astype(np.float64)
        y[s] = prob * r * r
        y_error[s] = np.abs(prob) * (2 * r + x_error[s]) * x_error[s] + 1e-5 * np.abs(y[s])
        if s.stop > s.start:
            amax[g] = np.abs(y[s]).max()
    return {"c": x, "d": y, "amax": amax[:, None], "c_error": x_error, "d_error": y_error}


def _gradient(act: str, r: np.ndarray, gate: np.ndarray, inp: np.ndarray, prob: np.ndarray, value_filter: bool) -> tuple[Any, Any, Any]:
    """d/dgate, d/dinput, and the summand of dprob."""
    if act == "dswiglu":
        s = _sigmoid(gate)
        return r * prob * inp * s * (1 + gate * (1 - s)), r * prob * gate * s, r * gate * s * inp
    if act == "dgeglu":
        alpha, high, low, offset = 1.702, 7.0, -7.0, 1.0
        yg, yu = np.minimum(gate, high), np.clip(inp, low, high)
        t = _sigmoid(alpha * yg)
        fg = np.where(gate <= high, gate if value_filter else 1, 0)
        fu = np.where((low <= inp) & (inp <= high), inp if value_filter else 1, 0)
        dgate = r * prob * t * (yu + offset) * (1 + alpha * yg * (1 - t)) * fg
        return dgate, r * prob * yg * t * fu, r * yg * t * (yu + offset)
    b1, b2, s = 4.0, 25.0, _sigmoid(gate)
    tg, tu = np.tanh(gate / b1), np.tanh(inp / b2)
    big_g, big_u = b1 * tg * s, b2 * tu
    dgate = r * prob * big_u * ((1 - tg**2) * s + b1 * tg * s * (1 - s))
    return dgate, r * prob * big_g * (1 - tu**2), r * big_g * big_u


def gate_columns(n: int) -> np.ndarray:
    j = np.arange(n)
    return j // 32 * 64 + j % 32


def dglu(p: Problem, act: str = "dswiglu") -> dict[str, np.ndarray]:
    rows = int(p.offsets[-1])
    d, dprob = np.zeros((rows, 2 * p.n)), np.zeros(rows)
    dbias, amax = np.zeros((p.experts, 2 * p.n)), np.full((p.experts, 2), -np.inf)
    d_error, dprob_error, dbias_error = np.zeros_like(d), np.zeros_like(dprob), np.zeros_like(dbias)
    gate_at = gate_columns(p.n)
    assert p.c is not None
    for g, s in p.groups():
        r = float(p.alpha[g]) ** 2 * (p.a_values[s] @ p.b_values[g].T)
        x = float(p.beta[g]) * p.c[s].astype(np.float64)
        prob = p.prob[s, None].astype(np.float64)
        gate, inp, value_filter = x[:, gate_at], x[:, gate_at + 32], p.format == "bf16"
        dgate, dinput, summand = _gradient(act, r, gate, inp, prob, value_filter)
        r_error = float(p.alpha[g]) ** 2 * _accumulation_error(p, g, s) + 1e-5 * np.abs(r)  # all three are linear in r
        gate_error, input_error, summand_error = _gradient(act, r_error, gate, inp, prob, value_filter)
        # Near its zero 1 + gate (1 - s) cancels; the summands of it keep their FP32 rounding errors.
        rounding = 1e-6 * np.abs(r * prob) * (np.abs(inp) + 1) * (np.abs(gate) + 1)
        gate_error = np.abs(gate_error) + rounding * (np.maximum(np.abs(gate), 1) if value_filter else 1)
        d[s, gate_at], d[s, gate_at + 32] = dgate, dinput
        d_error[s, gate_at], d_error[s, gate_at + 32] = np.abs(gate_error), np.abs(input_error)
        dprob[s], dprob_error[s] = summand.sum(1), np.abs(summand_error).sum(1)
        dbias[g], dbias_error[g] = d[s].sum(0), d_error[s].sum(0)
        if s.stop > s.start:
            amax[g] = np.abs(dgate).max(), np.abs(dinput).max()
    return {
        "d": d, "dprob": dprob, "dbias": dbias, "amax": amax,
        "d_error": d_error, "dprob_error": dprob_error, "dbias_error": dbias_error,
    }  # fmt: skip


def scale_codes(y: np.ndarray, axis: int, dtype: str, norm_const: float) -> np.ndarray:
    """e8m0 code of every block of 32 along ``axis``; ``y`` has whole blocks."""
    moved = np.moveaxis(y, axis, -1)
    amax = np.abs(moved.reshape(*moved.shape[:-1], -1, 32)).max(-1)
    with np.errstate(divide="ignore"):
        power = np.ceil(np.log2(amax * RCP_MAX[dtype] * norm_const))
    return np.moveaxis(np.where(amax == 0, 0, np.clip(power + 127, 0, 254)).astype(np.int64), -1, axis)


def assert_values(got: np.ndarray, want: np.ndarray, dtype: str, slack: np.ndarray | float) -> None:
    relative, absolute = HALF_ULP[dtype]
    limit = np.abs(want) * relative * 1.0001 + absolute + slack
    error = np.abs(got - want)
    worst = np.unravel_index(np.argmax(error - limit), error.shape)
    assert (error <= limit).all(), f"at {worst}: {got[worst]}, reference {want[worst]}, limit {limit[worst]}"


def assert_quantized(codes: np.ndarray, scales: np.ndarray, y: np.ndarray, axis: int, dtype: str, norm_const: float, slack: np.ndarray) -> None:
    """Codes (rows, stored columns) and scale codes (one per block along ``axis``) stand for ``y``."""
    want = scale_codes(y, axis, dtype, norm_const)
    off = np.abs(scales.astype(np.int64) - want)
    assert off.max(initial=0) <= 1 and (off != 0).mean() <= 0.01, f"{(off != 0).mean():.4f} of the scale codes differ"
    factor = np.repeat(2.0 ** (scales.astype(np.float64) - 127), 32, axis) / norm_const
    got = decode(codes, dtype) * factor
    relative, absolute = HALF_ULP[dtype]
    limit = np.abs(y) * relative * 1.0001 + absolute * factor + slack
    assert (np.abs(got - y) <= limit).all(), f"worst {np.max(np.abs(got - y) - limit)}"
