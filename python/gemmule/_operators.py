"""The documents' names: one-call wrappers and compile-once classes of both operators.

Shapes, strides and dtypes of every tensor, the equations and the rules are in docs/operators.md and docs/formats.md.
Errors: ValueError (an argument breaks a rule), NotImplementedError (a legal request that is not offered), RuntimeError
(device trouble, or execute() before compile()).
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from . import _native
from ._arrays import compiling, dtype_name, framework_of, is_jax


class TupleDict(dict[str, Any]):
    """A result: a dictionary whose iteration yields the values in the documented order, so that it unpacks like a tuple."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values())

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, int):
            if not 0 <= key < len(self):
                raise IndexError(f"index {key}, expected 0..{len(self) - 1}")
            return list(self.values())[key]
        return super().__getitem__(key)


SRELU_RESULTS = ("c_tensor", "d_tensor", "d_col_tensor", "amax_tensor", "sfd_row_tensor", "sfd_col_tensor")
DGLU_RESULTS = (
    "d_row_tensor", "d_col_tensor", "dprob_tensor", "dbias_tensor", "amax_tensor", "sfd_row_tensor", "sfd_col_tensor",
)  # fmt: skip


SRELU_TENSORS = (
    "a_tensor", "b_tensor", "sfa_tensor", "sfb_tensor", "padded_offsets", "alpha_tensor", "bias_tensor", "b_ptrs",
    "sfb_ptrs", "norm_const_tensor", "prob_tensor", "c_tensor", "d_tensor", "d_col_tensor", "sfd_row_tensor",
    "sfd_col_tensor", "amax_tensor",
)  # fmt: skip
DGLU_TENSORS = (
    "a_tensor", "b_tensor", "c_tensor", "sfa_tensor", "sfb_tensor", "padded_offsets", "alpha_tensor", "beta_tensor",
    "prob_tensor", "b_ptrs", "sfb_ptrs", "norm_const_tensor", "dprob_tensor", "d_row_tensor", "d_col_tensor",
    "dbias_tensor", "amax_tensor", "sfd_row_tensor", "sfd_col_tensor",
)  # fmt: skip


NO_SCOPE = contextlib.nullcontext()


def pair(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    if not _is_pair(value):
        raise TypeError("expected two integers")  # check_types() names the argument
    return int(value[0]), int(value[1])


@lru_cache(maxsize=1024)
def srelu_options(*values: Any) -> _native.SreluOptions:
    return _native.SreluOptions(*values)


@lru_cache(maxsize=1024)
def dglu_options(*values: Any) -> _native.DgluOptions:
    return _native.DgluOptions(*values)


_BOOLEANS = frozenset((
    "vector_f32", "discrete_col_sfd", "use_dynamic_sched", "use_single_group_runtime_offsets", "generate_dbias",
    "deterministic", "programmatic_launch",
))  # fmt: skip
_INTEGERS = frozenset(("n", "num_experts", "sf_vec_size", "m_aligned", "sm_limit"))
_NAMES = frozenset(("b_major", "cd_major", "act_func", "geglu_filter", "epilogue_op"))
_NUMBERS = frozenset((
    "tanh_clamp_scale", "linear_offset", "geglu_alpha", "glu_clamp_max", "glu_clamp_min", "situ_beta1", "situ_beta2",
))  # fmt: skip
_PAIRS = frozenset(("mma_tiler_mn", "cluster_shape_mn"))
_OPTIONAL = frozenset((
    "n", "num_experts", "cluster_shape_mn", "tanh_clamp_scale", "linear_offset", "geglu_filter", "epilogue_op",
))  # fmt: skip


def _is_integer(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and -(2**31) <= operator.index(value) < 2**31
    except TypeError:  # also of arrays, and of scalars of a framework that are no integers
        return False


def _is_pair(value: Any) -> bool:
    try:
        return len(value) == 2 and _is_integer(value[0]) and _is_integer(value[1])
    except (TypeError, LookupError):  # without a length or an order
        return False


def is_matrix_shape(value: Any) -> bool:
    """Two integers, or three of which the last is 1."""
    return hasattr(value, "__len__") and (_is_pair(value) or (len(value) == 3 and value[2] == 1 and _is_pair(value[:2])))


def check_types(**options: Any) -> None:
    """ValueError for the first option whose type the extension would not take. Other names are left alone."""
    for name, value in options.items():
        if value is None and name in _OPTIONAL:
            continue
        if name in _BOOLEANS:
            right, kind = isinstance(value, bool), "True or False"
        elif name in _INTEGERS:
            right, kind = _is_integer(value), "a 32-bit integer"
        elif name in _NAMES:
            right, kind = isinstance(value, str), "a string"
        elif name in _NUMBERS:
            right, kind = hasattr(value, "__float__"), "a number"
        elif name in _PAIRS:
            right, kind = _is_pair(value), "two 32-bit integers"
        else:
            continue
        if not right:
            raise ValueError(f"{name}: {value!r}, expected {kind}{' or None' if name in _OPTIONAL else ''}")


def _dtype_or(dtype: Any, default: str) -> str:
    return default if dtype is None else dtype_name(dtype)


def common_options(
    acc_dtype: Any, tile: Any, cluster: Any, sf_vec_size: int, vector_f32: bool, m_aligned: int, discrete_col_sfd: bool
) -> tuple[Any, ...]:
    return _dtype_or(acc_dtype, "float32"), pair(tile), pair(cluster), sf_vec_size, vector_f32, m_aligned, discrete_col_sfd


@lru_cache(maxsize=1024)
def _srelu_call(
    c_dtype: Any, d_dtype: Any, n: int | None, b_dtype: Any, b_major: str, use_dynamic_sched: bool, deterministic: bool,
    sm_limit: int, programmatic_launch: bool, tanh_clamp_scale: float | None, *common: Any,
) -> tuple[_native.SreluOptions, str, str]:  # fmt: skip
    """What the extension takes for the options of a call, which are often the same from call to call."""
    options = srelu_options(
        *common_options(*common), use_dynamic_sched, *_weights(n, b_dtype, b_major), deterministic, sm_limit,
        programmatic_launch, "auto", tanh_clamp_scale,
    )  # fmt: skip
    return options, _dtype_or(c_dtype, "bfloat16"), _dtype_or(d_dtype, "bfloat16")


@lru_cache(maxsize=1024)
def _dglu_call(
    d_dtype: Any, n: int | None, b_dtype: Any, b_major: str, use_dynamic_sched: bool, deterministic: bool, sm_limit: int,
    programmatic_launch: bool, rest: tuple[Any, ...], *common: Any,
) -> tuple[_native.DgluOptions, str]:  # fmt: skip
    options = dglu_options(
        *common_options(*common), use_dynamic_sched, *_weights(n, b_dtype, b_major), deterministic, sm_limit,
        programmatic_launch, "auto", *rest,
    )  # fmt: skip
    return options, _dtype_or(d_dtype, "bfloat16")


def _weights(n: int | None, b_dtype: Any, b_major: str) -> tuple[Any, ...]:
    """num_experts, b_shape, b_dtype, b_major of the one-call form. K of b_shape is 0: as in A."""
    return None, None if n is None else (n, 0), None if b_dtype is None else dtype_name(b_dtype), b_major


def _check_discrete(b_tensor: Any, b_ptrs: Any, n: int | None) -> None:
    if b_ptrs is not None and b_tensor is None and n is None:
        raise ValueError("n: None, expected the number of rows of every expert's weights with b_ptrs")


# What an operator writes comes last: srelu's from c_tensor, dglu's from dprob_tensor.
FIRST_WRITTEN = {SRELU_TENSORS: SRELU_TENSORS.index("c_tensor"), DGLU_TENSORS: DGLU_TENSORS.index("dprob_tensor")}


def described(arrays: Any, names: tuple[str, ...], tensors: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the extension reads for each of ``tensors``; an error names the argument. Samples are not written."""
    if arrays.native:
        return tensors
    first_written = FIRST_WRITTEN.get(names, len(names))
    out = []
    for i, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        try:
            out.append(None if tensor is None else arrays.describe(tensor))
            if tensor is not None and i >= first_written and not arrays.writable(tensor):
                raise ValueError("a read-only array, expected one that can be written")
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return tuple(out)


def grouped_gemm_srelu_wrapper_sm100(
    a_tensor: Any,
    b_tensor: Any = None,
    sfa_tensor: Any = None,
    sfb_tensor: Any = None,
    padded_offsets: Any = None,
    alpha_tensor: Any = None,
    bias_tensor: Any = None,
    b_ptrs: Any = None,
    sfb_ptrs: Any = None,
    n: int | None = None,
    b_dtype: Any = None,
    b_major: str = "k",
    norm_const_tensor: Any = None,
    prob_tensor: Any = None,
    acc_dtype: Any = None,
    c_dtype: Any = None,
    d_dtype: Any = None,
    cd_major: str = "n",
    mma_tiler_mn: tuple[int, int] = (256, 256),
    cluster_shape_mn: tuple[int, int] | None = None,
    sf_vec_size: int = 16,
    vector_f32: bool = False,
    m_aligned: int = 256,
    discrete_col_sfd: bool = False,
    use_dynamic_sched: bool = False,
    tanh_clamp_scale: float | None = None,
    current_stream: Any = None,
    *,
    deterministic: bool = False,
    sm_limit: int = 0,
    programmatic_launch: bool = False,
) -> TupleDict:
    """Grouped GEMM + squared ReLU in one call.

    Args (M rows, K reduction, N columns, L experts; R(x) = ceil(x/128), S(x) = ceil(x/4), v = sf_vec_size):
        a_tensor: (M, K, 1), K contiguous; float8_e4m3fn, float8_e5m2, float4_e2m1fn_x2 or uint8 (packed FP4).
        b_tensor: (N, K, L), K contiguous (FP8 also N); dense weights. Or, discrete: ``b_ptrs`` and ``sfb_ptrs``, int64
            addresses of shape (L,) on a_tensor's device, with ``n``, ``b_dtype`` and ``b_major``.
        sfa_tensor, sfb_tensor: (32, 4, R(rows), 4, S(ceil(K/v)), 1 or L); float8_e8m0fnu or float8_e4m3fn.
        padded_offsets: (L,) int32 ends of the experts' row ranges, multiples of ``m_aligned``.
        alpha_tensor: (L,) float32. prob_tensor: (M, 1, 1) float32. bias_tensor: (N, L), N contiguous.
        norm_const_tensor: (1,) float32; required when D is an 8- or 4-bit type.
        tanh_clamp_scale: s > 0 replaces relu(x) by s*tanh(relu(x)/s).
        current_stream: None (the framework's current stream), an integer or a stream object.
        deterministic, sm_limit, programmatic_launch: see docs/operators.md.

    Returns:
        TupleDict(c_tensor, d_tensor, d_col_tensor, amax_tensor, sfd_row_tensor, sfd_col_tensor); None where the
        configuration has no such output.

    Raises:
        ValueError, NotImplementedError, RuntimeError: as the module says.
    """
    if compiling():
        from ._torch import srelu

        values = srelu(
            a_tensor, b_tensor, sfa_tensor, sfb_tensor, padded_offsets, alpha_tensor, bias_tensor, b_ptrs, sfb_ptrs, n,
            b_dtype, b_major, norm_const_tensor, prob_tensor, acc_dtype, c_dtype, d_dtype, cd_major, mma_tiler_mn,
            cluster_shape_mn, sf_vec_size, vector_f32, m_aligned, discrete_col_sfd, use_dynamic_sched, tanh_clamp_scale,
            deterministic, sm_limit, programmatic_launch,
        )  # fmt: skip
        return TupleDict(zip(SRELU_RESULTS, values, strict=True))
    arrays = framework_of(a_tensor, "grouped_gemm_srelu_wrapper_sm100")
    _check_discrete(b_tensor, b_ptrs, n)
    values = (
        c_dtype, d_dtype, n, b_dtype, b_major, use_dynamic_sched, deterministic, sm_limit, programmatic_launch,
        tanh_clamp_scale, acc_dtype, mma_tiler_mn, cluster_shape_mn, sf_vec_size, vector_f32, m_aligned, discrete_col_sfd,
    )  # fmt: skip
    try:
        options, c_name, d_name = _srelu_call(*values)
    except (TypeError, IndexError):  # a list, which no cache can hold, or a wrong type
        check_types(**locals())
        options, c_name, d_name = _srelu_call.__wrapped__(*values)
    if cd_major.__class__ is not str:
        check_types(cd_major=cd_major)
    tensors = described(arrays, SRELU_TENSORS, (
        a_tensor, b_tensor, sfa_tensor, sfb_tensor, padded_offsets, alpha_tensor, bias_tensor, b_ptrs, sfb_ptrs,
        norm_const_tensor, prob_tensor, None, None, None, None, None, None,
    ))  # fmt: skip
    stream, scope = arrays.launch(a_tensor, current_stream, b_ptrs, sfb_ptrs)
    with scope or NO_SCOPE:
        c, d, d_col, amax, sfd_row, sfd_col = _native.call_srelu(
            tensors, options, c_name, d_name, cd_major, arrays.allocator(a_tensor), arrays.describe, stream
        )
    return TupleDict(
        c_tensor=c, d_tensor=d, d_col_tensor=d_col, amax_tensor=amax, sfd_row_tensor=sfd_row, sfd_col_tensor=sfd_col
    )


def grouped_gemm_dglu_wrapper_sm100(
    a_tensor: Any,
    c_tensor: Any,
    sfa_tensor: Any,
    padded_offsets: Any,
    alpha_tensor: Any,
    beta_tensor: Any,
    prob_tensor: Any,
    dprob_tensor: Any,
    b_tensor: Any = None,
    sfb_tensor: Any = None,
    generate_dbias: bool = False,
    b_ptrs: Any = None,
    sfb_ptrs: Any = None,
    n: int | None = None,
    b_dtype: Any = None,
    b_major: str = "k",
    norm_const_tensor: Any = None,
    acc_dtype: Any = None,
    d_dtype: Any = None,
    cd_major: str = "n",
    mma_tiler_mn: tuple[int, int] = (256, 256),
    cluster_shape_mn: tuple[int, int] | None = None,
    sf_vec_size: int = 16,
    vector_f32: bool = False,
    m_aligned: int = 256,
    discrete_col_sfd: bool = False,
    act_func: str = "dswiglu",
    linear_offset: float | None = None,
    geglu_alpha: float = 1.702,
    glu_clamp_max: float = 7.0,
    glu_clamp_min: float = -7.0,
    situ_beta1: float = 4.0,
    situ_beta2: float = 25.0,
    epilogue_op: str | None = None,
    use_dynamic_sched: bool = False,
    use_single_group_runtime_offsets: bool = False,
    current_stream: Any = None,
    *,
    geglu_filter: str | None = None,
    deterministic: bool = False,
    sm_limit: int = 0,
    programmatic_launch: bool = False,
) -> TupleDict:
    """Grouped GEMM + dGLU (dSwiGLU, dGeGLU, dSiTU-GLU backward) in one call, BF16 or block-scaled.

    Args (M rows, K reduction, N compact columns, L experts):
        a_tensor: (M, K, 1), K contiguous; bfloat16, float8_e4m3fn, float8_e5m2, float4_e2m1fn_x2 or uint8.
        c_tensor: (M, 2N, 1), alternating 32-column gate and input blocks, gate first.
        b_tensor: (N, K, L), or b_ptrs (and sfb_ptrs), n, b_dtype, b_major.
        sfa_tensor, sfb_tensor, padded_offsets, alpha_tensor, norm_const_tensor: as in grouped_gemm_srelu; None for
            scale factors with BF16. beta_tensor: (L,) float32.
        prob_tensor: (M, 1, 1) float32. dprob_tensor: (M, 1, 1) float32, zeroed by the caller; accumulated into.
        generate_dbias: also return the (L, 2N, 1) bfloat16 sum of D over each expert's rows.
        act_func: "dswiglu", "dgeglu" or "dsituglu", with linear_offset, geglu_alpha, glu_clamp_*, situ_beta*.
        geglu_filter: None, "mask" or "value"; docs/operators.md says which is a gradient.

    Returns:
        TupleDict(d_row_tensor, d_col_tensor, dprob_tensor, dbias_tensor, amax_tensor, sfd_row_tensor, sfd_col_tensor).

    Raises:
        ValueError, NotImplementedError, RuntimeError: as the module says.
    """
    if compiling():
        from ._torch import dglu

        values = dglu(
            a_tensor, c_tensor, sfa_tensor, padded_offsets, alpha_tensor, beta_tensor, prob_tensor, dprob_tensor, b_tensor,
            sfb_tensor, generate_dbias, b_ptrs, sfb_ptrs, n, b_dtype, b_major, norm_const_tensor, acc_dtype, d_dtype,
            cd_major, mma_tiler_mn, cluster_shape_mn, sf_vec_size, vector_f32, m_aligned, discrete_col_sfd, act_func,
            linear_offset, geglu_alpha, glu_clamp_max, glu_clamp_min, situ_beta1, situ_beta2, epilogue_op,
            use_dynamic_sched, use_single_group_runtime_offsets, geglu_filter, deterministic, sm_limit,
            programmatic_launch,
        )  # fmt: skip
        return TupleDict(zip(DGLU_RESULTS, values, strict=True))
    operation = "grouped_gemm_dglu_wrapper_sm100"
    if is_jax(a_tensor):
        from .jax import eager_arrays

        arrays: Any = eager_arrays(operation, a_tensor, b_tensor)
    else:
        arrays = framework_of(a_tensor, operation)
    _check_discrete(b_tensor, b_ptrs, n)
    values = (
        d_dtype, n, b_dtype, b_major, use_dynamic_sched, deterministic, sm_limit, programmatic_launch,
        (act_func, linear_offset, geglu_alpha, glu_clamp_max, glu_clamp_min, geglu_filter, situ_beta1, situ_beta2,
         epilogue_op, use_single_group_runtime_offsets),
        acc_dtype, mma_tiler_mn, cluster_shape_mn, sf_vec_size, vector_f32, m_aligned, discrete_col_sfd,
    )  # fmt: skip
    try:
        options, d_name = _dglu_call(*values)
    except (TypeError, IndexError):
        check_types(**locals())
        options, d_name = _dglu_call.__wrapped__(*values)
    if cd_major.__class__ is not str or generate_dbias.__class__ is not bool:
        check_types(cd_major=cd_major, generate_dbias=generate_dbias)
    tensors = described(arrays, DGLU_TENSORS, (
        a_tensor, b_tensor, c_tensor, sfa_tensor, sfb_tensor, padded_offsets, alpha_tensor, beta_tensor,
        prob_tensor, b_ptrs, sfb_ptrs, norm_const_tensor, dprob_tensor, None, None, None, None, None, None,
    ))  # fmt: skip
    stream, scope = arrays.launch(a_tensor, current_stream, b_ptrs, sfb_ptrs)
    with scope or NO_SCOPE:
        d_row, d_col, dbias, amax, sfd_row, sfd_col = _native.call_dglu(
            tensors, options, d_name, cd_major, generate_dbias, arrays.allocator(a_tensor), arrays.describe, stream
        )
    return TupleDict(
        d_row_tensor=d_row, d_col_tensor=d_col, dprob_tensor=dprob_tensor, dbias_tensor=dbias, amax_tensor=amax,
        sfd_row_tensor=sfd_row, sfd_col_tensor=sfd_col,
    )  # fmt: skip


grouped_gemm_srelu_wrapper = grouped_gemm_srelu_wrapper_sm100
grouped_gemm_dglu_wrapper = grouped_gemm_dglu_wrapper_sm100
