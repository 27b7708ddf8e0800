"""Both operators as PyTorch custom operators, which is what the wrappers call while torch.compile traces them.

A custom operator returns the outputs that exist, in the order of the wrapper's results. It changes none of its arguments,
because torch.compile can handle an operator with a list of outputs only then: dprob starts at 0 and is added afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _operators

LOW_PRECISION = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2")
DTYPES = {
    getattr(torch, name): name
    for name in (
        "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2", "uint8", "float8_e8m0fnu",
    )
    if hasattr(torch, name)
}  # fmt: skip


def name_of(dtype: Any, default: str | None) -> str | None:
    """dtype_name() that torch.compile can trace."""
    if dtype is None:
        return default
    return dtype.removeprefix("torch.") if isinstance(dtype, str) else DTYPES[dtype]


def _matrix(a: Tensor, width: int, dtype: str) -> Tensor:
    columns = width // 2 if dtype == "float4_e2m1fn_x2" else width
    rows = a.shape[0]
    return a.new_empty_strided((rows, columns, 1), (columns, 1, rows * columns), dtype=getattr(torch, dtype))


def _scales(a: Tensor, rows: Any, length: Any, dtype: torch.dtype) -> Tensor:
    shape = (1, (rows + 127) // 128, (length + 127) // 128, 32, 4, 4)  # blocks of 32 by fours
    return a.new_empty(shape, dtype=dtype).permute(3, 4, 1, 5, 2, 0)


def _present(a: Tensor, d_dtype: str) -> tuple[bool, bool]:
    """Whether there are output scale factors, and amax."""
    fp8 = a.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)
    return fp8 and d_dtype in LOW_PRECISION, a.dtype != torch.bfloat16 and d_dtype in ("float16", "bfloat16")


@torch.library.custom_op("gemmule::grouped_gemm_srelu", mutates_args=())
def _srelu(
    a: Tensor, b: Tensor | None, sfa: Tensor, sfb: Tensor | None, padded_offsets: Tensor, alpha: Tensor, bias: Tensor | None,
    b_ptrs: Tensor | None, sfb_ptrs: Tensor | None, n: int | None, b_dtype: str | None, b_major: str,
    norm_const: Tensor | None, prob: Tensor, acc_dtype: str, c_dtype: str, d_dtype: str, cd_major: str,
    mma_tiler_mn: Sequence[int], cluster_shape_mn: Sequence[int] | None, sf_vec_size: int, vector_f32: bool, m_aligned: int,
    discrete_col_sfd: bool, use_dynamic_sched: bool, tanh_clamp_scale: float | None, deterministic: bool, sm_limit: int,
    programmatic_launch: bool,
) -> list[Tensor]:  # fmt: skip
    out = _operators.grouped_gemm_srelu_wrapper_sm100(
        a, b, sfa, sfb, padded_offsets, alpha, bias, b_ptrs, sfb_ptrs, n, b_dtype, b_major, norm_const, prob, acc_dtype,
        c_dtype, d_dtype, cd_major, tuple(mma_tiler_mn), None if cluster_shape_mn is None else tuple(cluster_shape_mn),  # type: ignore[arg-type]
        sf_vec_size, vector_f32, m_aligned, discrete_col_sfd, use_dynamic_sched, tanh_clamp_scale,
        deterministic=deterministic, sm_limit=sm_limit, programmatic_launch=programmatic_launch,
    )  # fmt: skip
    return [x for x in out.values() if x is not None]


@_srelu.register_fake
def _(
    a: Tensor, b: Tensor | None, sfa: Tensor, sfb: Tensor | None, padded_offsets: Tensor, alpha: Tensor, bias: Tensor | None,
    b_ptrs: Tensor | None, sfb_ptrs: Tensor | None, n: int | None, b_dtype: str | None, b_major: str,
    norm_const: Tensor | None, prob: Tensor, acc_dtype: str, c_dtype: str, d_dtype: str, *options: Any,
) -> list[Tensor]:  # fmt: skip
    width: Any = n if b is None else b.shape[0]
    out = [_matrix(a, width, c_dtype), _matrix(a, width, d_dtype)]
    scales, amax = _present(a, d_dtype)
    if scales:
        out.append(_matrix(a, width, d_dtype))
    if amax:
        out.append(a.new_empty((alpha.shape[0], 1), dtype=torch.float32))
    if scales:
        out += [_scales(a, a.shape[0], width, sfa.dtype), _scales(a, width, a.shape[0], sfa.dtype)]
    return out


@torch.library.custom_op("gemmule::grouped_gemm_dglu", mutates_args=())
def _dglu(
    a: Tensor, c: Tensor, sfa: Tensor | None, padded_offsets: Tensor, alpha: Tensor, beta: Tensor, prob: Tensor | None,
    want_dprob: bool, b: Tensor | None, sfb: Tensor | None, generate_dbias: bool, b_ptrs: Tensor | None,
    sfb_ptrs: Tensor | None, n: int | None, b_dtype: str | None, b_major: str, norm_const: Tensor | None, acc_dtype: str,
    d_dtype: str, cd_major: str, mma_tiler_mn: Sequence[int], cluster_shape_mn: Sequence[int] | None, sf_vec_size: int,
    vector_f32: bool, m_aligned: int, discrete_col_sfd: bool, act_func: str, linear_offset: float | None, geglu_alpha: float,
    glu_clamp_max: float, glu_clamp_min: float, situ_beta1: float, situ_beta2: float, epilogue_op: str | None,
    use_dynamic_sched: bool, use_single_group_runtime_offsets: bool, geglu_filter: str | None, deterministic: bool,
    sm_limit: int, programmatic_launch: bool,
) -> list[Tensor]:  # fmt: skip
    dprob = a.new_zeros((a.shape[0], 1, 1), dtype=torch.float32) if want_dprob else None
    out = _operators.grouped_gemm_dglu_wrapper_sm100(
        a, c, sfa, padded_offsets, alpha, beta, prob, dprob, b, sfb, generate_dbias, b_ptrs, sfb_ptrs, n, b_dtype, b_major,
        norm_const, acc_dtype, d_dtype, cd_major, tuple(mma_tiler_mn),  # type: ignore[arg-type]
        None if cluster_shape_mn is None else tuple(cluster_shape_mn),  # type: ignore[arg-type]
        sf_vec_size, vector_f32, m_aligned, discrete_col_sfd, act_func, linear_offset, geglu_alpha, glu_clamp_max,
        glu_clamp_min, situ_beta1, situ_beta2, epilogue_op, use_dynamic_sched, use_single_group_runtime_offsets,
        geglu_filter=geglu_filter, deterministic=deterministic, sm_limit=sm_limit, programmatic_launch=programmatic_launch,
    )  # fmt: skip
    d_row, d_col, _, dbias, amax, sfd_row, sfd_col = out
    own_d_col = None if sfd_row is None else d_col  # else None, or d_row itself
    return [x for x in (d_row, own_d_col, dprob, dbias, amax, sfd_row, sfd_col) if x is not None]


@_dglu.register_fake
def _(
    a: Tensor, c: Tensor, sfa: Tensor | None, padded_offsets: Tensor, alpha: Tensor, beta: Tensor, prob: Tensor | None,
    want_dprob: bool, b: Tensor | None, sfb: Tensor | None, generate_dbias: bool, b_ptrs: Tensor | None,
    sfb_ptrs: Tensor | None, n: int | None, b_dtype: str | None, b_major: str, norm_const: Tensor | None, acc_dtype: str,
    d_dtype: str, *options: Any,
) -> list[Tensor]:  # fmt: skip
    width: Any = 2 * (n if b is None else b.shape[0])  # type: ignore[operator]
    experts = alpha.shape[0]
    out = [_matrix(a, width, d_dtype)]
    scales, amax = _present(a, d_dtype)
    if scales:
        out.append(_matrix(a, width, d_dtype))
    if want_dprob:
        out.append(a.new_empty((a.shape[0], 1, 1), dtype=torch.float32))
    if generate_dbias:
        out.append(a.new_empty((experts, width, 1), dtype=torch.bfloat16))
    if amax:
        out.append(a.new_empty((experts, 2, 1), dtype=torch.float32))
    if scales and sfa is not None:
        out += [_scales(a, a.shape[0], width, sfa.dtype), _scales(a, width, a.shape[0], sfa.dtype)]
    return out


def srelu(a: Tensor, *rest: Any) -> tuple[Any, ...]:
    """The values of grouped_gemm_srelu_wrapper's result. Arguments of the custom operator, with dtypes of any kind."""
    rest = (*rest[:9], name_of(rest[9], None), *rest[10:13], *_named(rest[13:16]), *rest[16:])
    with torch.no_grad():
        out = _srelu(a, *rest)
    scales, amax = _present(a, rest[15])
    c, d = out[:2]
    if scales:
        return c, d, out[2], None, out[3], out[4]
    return c, d, None, out[2] if amax else None, None, None


def dglu(a: Tensor, *rest: Any) -> tuple[Any, ...]:
    """The same for grouped_gemm_dglu_wrapper."""
    generate_dbias, dprob = rest[9], rest[6]
    rest = (
        *rest[:6], dprob is not None, *rest[7:13], name_of(rest[13], None), *rest[14:16], name_of(rest[16], "float32"), name_of(rest[17], "bfloat16"),
        *rest[18:],
    )  # fmt: skip
    with torch.no_grad():
        out = list(_dglu(a, *rest))
    scales, has_amax = _present(a, rest[17])
    d_row = out.pop(0)
    d_col = out.pop(0) if scales else (None if a.dtype == torch.bfloat16 else d_row)
    if dprob is not None:
        with torch.no_grad():
            dprob.add_(out.pop(0))
    dbias = out.pop(0) if generate_dbias else None
    amax = out.pop(0) if has_amax else None
    sfd_row, sfd_col = (out[0], out[1]) if scales else (None, None)
    return d_row, d_col, dprob, dbias, amax, sfd_row, sfd_col


def _named(dtypes: Sequence[Any]) -> tuple[Any, ...]:
    return name_of(dtypes[0], "float32"), name_of(dtypes[1], "bfloat16"), name_of(dtypes[2], "bfloat16")
