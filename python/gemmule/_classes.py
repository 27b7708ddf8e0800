"""The documents' compile-once classes. Argument names and rules are those of the wrappers in _operators.py."""

from __future__ import annotations

from typing import Any

from . import _native
from ._arrays import dtype_name, framework_of
from ._operators import (
    DGLU_TENSORS,
    NO_SCOPE,
    SRELU_TENSORS,
    check_types,
    common_options,
    described,
    dglu_options,
    is_matrix_shape,
    pair,
    srelu_options,
)


def _weights(num_experts: int | None, b_shape: Any, b_dtype: Any, b_major: str) -> tuple[Any, ...]:
    if b_shape is not None and not is_matrix_shape(b_shape):
        raise ValueError(f"b_shape: {b_shape!r}, expected (N, K), (N, K, 1) or None")
    shape = None if b_shape is None else pair(b_shape[:2])
    return num_experts, shape, None if b_dtype is None else dtype_name(b_dtype), b_major


def _sample_names(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(n if n.endswith("_ptrs") else "sample_" + n.removesuffix("_tensor") for n in names)


class _Operator:
    """Life cycle: construct from sample tensors, check_support(), compile(), execute() any number of times.

    M of a later call may differ from the sample's. After compile() the object may be used by several threads and on several
    streams at once. Memory that one execution needs comes from the framework's allocator.
    """

    _names: tuple[str, ...]
    _native_class: Any

    def __init__(self, samples: tuple[Any, ...], options: Any) -> None:
        name = type(self).__name__
        self._arrays = framework_of(samples[0], name, "sample_a")
        self._samples: tuple[Any, ...] | None = samples  # until they have been checked
        self._object = self._native_class(described(self._arrays, _sample_names(self._names), samples), options)

    def check_support(self) -> bool:
        """True, or ValueError, NotImplementedError or RuntimeError that says which rule is broken."""
        if self._samples is not None:
            self._object.check_support()
            self._samples = None
        return True

    def compile(self) -> None:
        """Makes the object executable; calls check_support() first. A second call does nothing."""
        self.check_support()
        self._object.compile()

    def _execute(self, tensors: tuple[Any, ...], pointers: tuple[Any, ...], current_stream: Any) -> None:
        arrays, a = self._arrays, tensors[0]
        if not self._object.compiled():
            raise RuntimeError(f"{type(self).__name__}.execute: not compiled, expected compile() before execute()")
        if framework_of(a, type(self).__name__) is not arrays:
            raise ValueError(f"a_tensor: {type(a).__name__}, expected an array of the framework of sample_a")
        inputs = described(arrays, self._names, tensors)
        stream, scope = arrays.launch(a, current_stream, *pointers)
        with scope or NO_SCOPE:
            self._object.execute(inputs, arrays.allocator(a), arrays.describe, stream)

    def execute(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """compile() if that was not done, then execute()."""
        self.compile()
        self.execute(*args, **kwargs)


class GroupedGemmSreluSm100(_Operator):
    """Grouped GEMM + squared ReLU, compiled once.

    Dense weights: ``sample_b`` and ``sample_sfb``. Discrete: ``num_experts``, ``b_shape`` = (N, K) in values, ``b_dtype``,
    ``b_major``. Output scale factors exist when sample_sfd_row, sample_sfd_col and sample_norm_const are given.
    """

    _names = SRELU_TENSORS
    _native_class = _native.Srelu

    def __init__(
        self,
        sample_a: Any,
        sample_b: Any = None,
        sample_c: Any = None,
        sample_d: Any = None,
        sample_sfa: Any = None,
        sample_sfb: Any = None,
        sample_padded_offsets: Any = None,
        sample_alpha: Any = None,
        sample_d_col: Any = None,
        sample_bias: Any = None,
        num_experts: int | None = None,
        b_shape: tuple[int, ...] | None = None,
        b_dtype: Any = None,
        sample_sfd_row: Any = None,
        sample_sfd_col: Any = None,
        sample_amax: Any = None,
        sample_norm_const: Any = None,
        sample_prob: Any = None,
        acc_dtype: Any = None,
        mma_tiler_mn: tuple[int, int] = (256, 256),
        cluster_shape_mn: tuple[int, int] | None = None,
        sf_vec_size: int = 16,
        vector_f32: bool = False,
        m_aligned: int = 256,
        discrete_col_sfd: bool = False,
        b_major: str = "k",
        use_dynamic_sched: bool = False,
        tanh_clamp_scale: float | None = None,
        *,
        deterministic: bool = False,
        sm_limit: int = 0,
        programmatic_launch: bool = False,
    ) -> None:
        samples = (
            sample_a, sample_b, sample_sfa, sample_sfb, sample_padded_offsets, sample_alpha, sample_bias, None, None,
            sample_norm_const, sample_prob, sample_c, sample_d, sample_d_col, sample_sfd_row, sample_sfd_col, sample_amax,
        )  # fmt: skip
        try:
            options = srelu_options(
                *common_options(acc_dtype, mma_tiler_mn, cluster_shape_mn, sf_vec_size, vector_f32, m_aligned, discrete_col_sfd),
                use_dynamic_sched, *_weights(num_experts, b_shape, b_dtype, b_major), deterministic, sm_limit,
                programmatic_launch, "auto",
                tanh_clamp_scale,
            )  # fmt: skip
        except TypeError:
            check_types(**locals())
            raise
        super().__init__(samples, options)

    def execute(
        self,
        a_tensor: Any,
        sfa_tensor: Any,
        padded_offsets: Any,
        alpha_tensor: Any,
        c_tensor: Any,
        d_tensor: Any,
        b_tensor: Any = None,
        sfb_tensor: Any = None,
        bias_tensor: Any = None,
        b_ptrs: Any = None,
        sfb_ptrs: Any = None,
        d_col_tensor: Any = None,
        sfd_row_tensor: Any = None,
        sfd_col_tensor: Any = None,
        amax_tensor: Any = None,
        norm_const_tensor: Any = None,
        prob_tensor: Any = None,
        current_stream: Any = None,
    ) -> None:
        """Enqueues one call on ``current_stream``; the outputs are the caller's. amax_tensor is accumulated into."""
        tensors = (
            a_tensor, b_tensor, sfa_tensor, sfb_tensor, padded_offsets, alpha_tensor, bias_tensor, b_ptrs, sfb_ptrs,
            norm_const_tensor, prob_tensor, c_tensor, d_tensor, d_col_tensor, sfd_row_tensor, sfd_col_tensor, amax_tensor,
        )  # fmt: skip
        self._execute(tensors, (b_ptrs, sfb_ptrs), current_stream)


class GroupedGemmDgluSm100(_Operator):
    """Grouped GEMM + dGLU, compiled once. Weights as in GroupedGemmSreluSm100; BF16 has no scale factors."""

    _names = DGLU_TENSORS
    _native_class = _native.Dglu

    def __init__(
        self,
        sample_a: Any,
        sample_c: Any,
        sample_d_row: Any,
        sample_d_col: Any,
        sample_sfa: Any,
        sample_padded_offsets: Any,
        sample_alpha: Any,
        sample_beta: Any,
        sample_prob: Any,
        sample_dprob: Any,
        sample_b: Any = None,
        sample_sfb: Any = None,
        sample_dbias: Any = None,
        num_experts: int | None = None,
        b_shape: tuple[int, ...] | None = None,
        b_dtype: Any = None,
        sample_sfd_row: Any = None,
        sample_sfd_col: Any = None,
        sample_amax: Any = None,
        sample_norm_const: Any = None,
        acc_dtype: Any = None,
        mma_tiler_mn: tuple[int, int] = (256, 256),
        cluster_shape_mn: tuple[int, int] | None = None,
        sf_vec_size: int = 16,
        vector_f32: bool = False,
        m_aligned: int = 256,
        discrete_col_sfd: bool = False,
        act_func: str = "dswiglu",
        b_major: str = "k",
        epilogue_op: str | None = None,
        use_dynamic_sched: bool = False,
        use_single_group_runtime_offsets: bool = False,
        linear_offset: float | None = None,
        geglu_alpha: float = 1.702,
        glu_clamp_max: float = 7.0,
        glu_clamp_min: float = -7.0,
        situ_beta1: float = 4.0,
        situ_beta2: float = 25.0,
        *,
        geglu_filter: str | None = None,
        deterministic: bool = False,
        sm_limit: int = 0,
        programmatic_launch: bool = False,
    ) -> None:
        samples = (
            sample_a, sample_b, sample_c, sample_sfa, sample_sfb, sample_padded_offsets, sample_alpha, sample_beta,
            sample_prob, None, None, sample_norm_const, sample_dprob, sample_d_row, sample_d_col, sample_dbias, sample_amax,
            sample_sfd_row, sample_sfd_col,
        )  # fmt: skip
        try:
            options = dglu_options(
                *common_options(acc_dtype, mma_tiler_mn, cluster_shape_mn, sf_vec_size, vector_f32, m_aligned, discrete_col_sfd),
                use_dynamic_sched, *_weights(num_experts, b_shape, b_dtype, b_major), deterministic, sm_limit,
                programmatic_launch, "auto",
                act_func, linear_offset, geglu_alpha, glu_clamp_max, glu_clamp_min, geglu_filter, situ_beta1, situ_beta2,
                epilogue_op, use_single_group_runtime_offsets,
            )  # fmt: skip
        except TypeError:
            check_types(**locals())
            raise
        super().__init__(samples, options)

    def execute(
        self,
        a_tensor: Any,
        c_tensor: Any,
        d_row_tensor: Any,
        d_col_tensor: Any,
        sfa_tensor: Any,
        padded_offsets: Any,
        alpha_tensor: Any,
        beta_tensor: Any,
        prob_tensor: Any,
        dprob_tensor: Any,
        b_tensor: Any = None,
        sfb_tensor: Any = None,
        dbias_tensor: Any = None,
        b_ptrs: Any = None,
        sfb_ptrs: Any = None,
        sfd_row_tensor: Any = None,
        sfd_col_tensor: Any = None,
        amax_tensor: Any = None,
        norm_const_tensor: Any = None,
        current_stream: Any = None,
    ) -> None:
        """Enqueues one call; dprob_tensor, dbias_tensor and amax_tensor are accumulated into."""
        tensors = (
            a_tensor, b_tensor, c_tensor, sfa_tensor, sfb_tensor, padded_offsets, alpha_tensor, beta_tensor, prob_tensor,
            b_ptrs, sfb_ptrs, norm_const_tensor, dprob_tensor, d_row_tensor, d_col_tensor, dbias_tensor, amax_tensor,
            sfd_row_tensor, sfd_col_tensor,
        )  # fmt: skip
        self._execute(tensors, (b_ptrs, sfb_ptrs), current_stream)


GroupedGemmSrelu = GroupedGemmSreluSm100
GroupedGemmDglu = GroupedGemmDgluSm100
