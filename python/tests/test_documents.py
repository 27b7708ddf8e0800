"""Every call that NVIDIA's documents show for the two operators, with exactly those keywords, on CPU tensors."""

from __future__ import annotations

from typing import Any

import frameworks
import numpy as np
import pytest
import reference as ref
from frameworks import Call
from gemmule import (
    GroupedGemmDgluSm100,
    GroupedGemmSreluSm100,
    grouped_gemm_dglu_wrapper_sm100,
    grouped_gemm_srelu_wrapper_sm100,
)


@pytest.fixture
def torch_fw() -> Any:
    return frameworks.make("torch")


def zeros(torch: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, value: float = 0) -> Any:
    out = torch.empty_strided(shape, strides, dtype=dtype)
    (out.view(torch.uint8) if out.element_size() == 1 else out).fill_(value)
    return out


def scale_factors(torch: Any, rows: int, length: int) -> Any:
    shape = (1, -(-rows // 128), -(-length // 128), 32, 4, 4)
    return torch.zeros(shape, dtype=torch.uint8).view(torch.float8_e8m0fnu).permute(3, 4, 1, 5, 2, 0)


@pytest.mark.parametrize("fmt", ["mxfp4", "mxfp8"])
def test_srelu_wrapper(torch_fw: Any, fmt: str) -> None:
    torch = torch_fw.torch
    p = ref.make_problem("srelu", fmt, [256, 256], n=256, k=128)
    t = Call(torch_fw, p)
    result = grouped_gemm_srelu_wrapper_sm100(
        a_tensor=t.a,
        b_tensor=t.b,
        sfa_tensor=t.sfa,
        sfb_tensor=t.sfb,
        padded_offsets=t.offsets,
        alpha_tensor=t.alpha,
        norm_const_tensor=t.norm_const,
        prob_tensor=t.prob,
        acc_dtype=torch.float32,
        c_dtype=torch.bfloat16,
        d_dtype=torch.bfloat16,
        cd_major="n",
        mma_tiler_mn=(256, 256),
        cluster_shape_mn=(2, 1),
        sf_vec_size=32,
        vector_f32=False,
        m_aligned=256,
        discrete_col_sfd=False,
        current_stream=None,
    )
    c, d, d_col, amax, sfd_row, sfd_col = result
    assert c.dtype == d.dtype == torch.bfloat16 and amax.shape == (2, 1)
    assert d_col is sfd_row is sfd_col is None


def test_srelu_discrete_wrapper(torch_fw: Any) -> None:
    torch = torch_fw.torch
    p = ref.make_problem("srelu", "mxfp4_16", [256, 256], n=256, k=128)
    t = Call(torch_fw, p, "discrete_k")
    result = grouped_gemm_srelu_wrapper_sm100(
        a_tensor=t.a,
        sfa_tensor=t.sfa,
        padded_offsets=t.offsets,
        alpha_tensor=t.alpha,
        b_ptrs=t.weights["b_ptrs"],
        sfb_ptrs=t.weights["sfb_ptrs"],
        n=256,
        b_dtype=torch.float4_e2m1fn_x2,
        b_major="k",
        prob_tensor=t.prob,
        c_dtype=torch.bfloat16,
        d_dtype=torch.bfloat16,
    )
    assert result["d_tensor"].shape == (512, 256, 1)


def test_srelu_class(torch_fw: Any) -> None:
    torch = torch_fw.torch
    p = ref.make_problem("srelu", "mxfp8", [256, 256], n=256, k=128)
    t = Call(torch_fw, p)
    m, n = 512, 256
    c = zeros(torch, (m, n, 1), (n, 1, m * n), torch.bfloat16)
    d = zeros(torch, (m, n, 1), (n, 1, m * n), torch.float8_e4m3fn)
    d_col = zeros(torch, (m, n, 1), (n, 1, m * n), torch.float8_e4m3fn)
    sfd_row, sfd_col = scale_factors(torch, m, n), scale_factors(torch, n, m)
    op = GroupedGemmSreluSm100(
        sample_a=t.a,
        sample_b=t.b,
        sample_c=c,
        sample_d=d,
        sample_sfa=t.sfa,
        sample_sfb=t.sfb,
        sample_padded_offsets=t.offsets,
        sample_alpha=t.alpha,
        sample_d_col=d_col,
        sample_sfd_row=sfd_row,
        sample_sfd_col=sfd_col,
        sample_amax=None,
        sample_norm_const=t.norm_const,
        sample_prob=t.prob,
        acc_dtype=torch.float32,
        mma_tiler_mn=(256, 256),
        cluster_shape_mn=(2, 1),
        sf_vec_size=32,
        vector_f32=False,
        m_aligned=256,
        discrete_col_sfd=False,
    )
    assert op.check_support()
    op.compile()
    op.execute(
        a_tensor=t.a,
        b_tensor=t.b,
        c_tensor=c,
        d_tensor=d,
        sfa_tensor=t.sfa,
        sfb_tensor=t.sfb,
        padded_offsets=t.offsets,
        alpha_tensor=t.alpha,
        d_col_tensor=d_col,
        sfd_row_tensor=sfd_row,
        sfd_col_tensor=sfd_col,
        amax_tensor=None,
        norm_const_tensor=t.norm_const,
        prob_tensor=t.prob,
        current_stream=None,
    )
    assert d.view(torch.uint8).any() and d_col.view(torch.uint8).any() and sfd_row.view(torch.uint8).any()


def test_dglu_bf16(torch_fw: Any) -> None:
    torch = torch_fw.torch
    p = ref.make_problem("dglu", "bf16", [256, 256], n=64, k=128)
    t, q = Call(torch_fw, p), Call(torch_fw, p, "discrete_k")
    t.dprob.zero_()
    out = grouped_gemm_dglu_wrapper_sm100(
        a_tensor=t.a,
        c_tensor=t.c,
        sfa_tensor=None,
        padded_offsets=t.offsets,
        alpha_tensor=t.alpha,
        beta_tensor=t.beta,
        prob_tensor=t.prob,
        dprob_tensor=t.dprob,
        b_tensor=t.b,
        sfb_tensor=None,
        act_func="dswiglu",
        generate_dbias=True,
        use_dynamic_sched=True,
    )
    d_row, d_col, dprob, dbias, _amax, _sfd_row, _sfd_col = out
    assert d_col is None and dprob is t.dprob and dbias.shape == (2, 128, 1)
    other = grouped_gemm_dglu_wrapper_sm100(
        a_tensor=t.a, c_tensor=t.c, sfa_tensor=None,
        padded_offsets=t.offsets, alpha_tensor=t.alpha, beta_tensor=t.beta,
        prob_tensor=t.prob, dprob_tensor=q.dprob,
        b_ptrs=q.weights["b_ptrs"], sfb_ptrs=None, n=64, b_dtype=torch.bfloat16,
        act_func="dgeglu",
    )  # fmt: skip
    assert not torch.equal(other["d_row_tensor"], d_row)

    mine, dprob, dbias = torch.zeros_like(d_row), torch.zeros_like(dprob), torch.zeros_like(dbias)
    mine = zeros(torch, d_row.shape, d_row.stride(), d_row.dtype)
    op = GroupedGemmDgluSm100(
        sample_a=t.a, sample_c=t.c, sample_d_row=mine, sample_d_col=None,
        sample_sfa=None, sample_padded_offsets=t.offsets,
        sample_alpha=t.alpha, sample_beta=t.beta, sample_prob=t.prob,
        sample_dprob=dprob, sample_dbias=dbias,
        sample_b=t.b, sample_sfb=None, act_func="dswiglu",
    )  # fmt: skip
    assert op.check_support()
    op.compile()
    op.execute(
        a_tensor=t.a, c_tensor=t.c, d_row_tensor=mine, d_col_tensor=None,
        sfa_tensor=None, padded_offsets=t.offsets, alpha_tensor=t.alpha,
        beta_tensor=t.beta, prob_tensor=t.prob, dprob_tensor=dprob,
        dbias_tensor=dbias, b_tensor=t.b, sfb_tensor=None,
    )  # fmt: skip
    assert torch.equal(mine, d_row) and torch.equal(dbias, out["dbias_tensor"])


def test_dglu_block_scaled_wrappers(torch_fw: Any) -> None:
    torch = torch_fw.torch
    p = ref.make_problem("dglu", "mxfp4", [256, 256], n=64, k=128)
    t = Call(torch_fw, p)
    outputs = grouped_gemm_dglu_wrapper_sm100(
        a_tensor=t.a,
        c_tensor=t.c,
        sfa_tensor=t.sfa,
        padded_offsets=t.offsets,
        alpha_tensor=t.alpha,
        beta_tensor=t.beta,
        prob_tensor=t.prob,
        dprob_tensor=t.dprob,
        generate_dbias=True,
        b_tensor=t.b,
        sfb_tensor=t.sfb,
        norm_const_tensor=t.norm_const,
        acc_dtype=torch.float32,
        d_dtype=torch.bfloat16,
        cd_major="n",
        mma_tiler_mn=(256, 256),
        cluster_shape_mn=(2, 1),
        sf_vec_size=32,
        act_func="dswiglu",
        epilogue_op=None,
        current_stream=None,
    )
    names = ("d_row", "d_col", "dprob", "dbias", "amax", "sfd_row", "sfd_col")
    for name, value in zip(names, outputs, strict=True):
        assert outputs[name + "_tensor"] is value
    assert outputs["amax_tensor"].shape == (2, 2, 1)

    # Discrete, default scale vector of 16, weights declared as packed bytes.
    p = ref.make_problem("dglu", "mxfp4_16", [256, 256], n=64, k=128)
    q = Call(torch_fw, p, "discrete_k")
    a = torch.from_numpy(p.a)[:, :, None]
    outputs = grouped_gemm_dglu_wrapper_sm100(
        a_tensor=a,
        c_tensor=q.c,
        sfa_tensor=q.sfa,
        padded_offsets=q.offsets,
        alpha_tensor=q.alpha,
        beta_tensor=q.beta,
        prob_tensor=q.prob,
        dprob_tensor=q.dprob,
        b_ptrs=q.weights["b_ptrs"],
        sfb_ptrs=q.weights["sfb_ptrs"],
        n=64,
        b_dtype=torch.uint8,
        b_major="k",
        act_func="dgeglu",
        current_stream=None,
    )
    want = ref.dglu(p, "dgeglu")
    got = outputs["d_row_tensor"][:, :, 0].float().numpy().astype(np.float64)
    ref.assert_values(got, want["d"], "bfloat16", want["d_error"])


def test_dglu_block_scaled_class(torch_fw: Any) -> None:
    """The dense class call; its example leaves sf_vec_size at 16, which is legal with FP4 (no output scale factors)."""
    torch = torch_fw.torch
    p = ref.make_problem("dglu", "mxfp4_16", [256, 256], n=64, k=128)
    t = Call(torch_fw, p)
    m, w = 512, 128
    d_row = zeros(torch, (m, w, 1), (w, 1, m * w), torch.bfloat16)
    d_col = zeros(torch, (m, w, 1), (w, 1, m * w), torch.bfloat16)
    dbias = torch.zeros(2, w, 1, dtype=torch.bfloat16)
    amax = torch.full((2, 2, 1), float("-inf"))
    api = GroupedGemmDgluSm100(
        sample_a=t.a,
        sample_c=t.c,
        sample_d_row=d_row,
        sample_d_col=d_col,
        sample_sfa=t.sfa,
        sample_padded_offsets=t.offsets,
        sample_alpha=t.alpha,
        sample_beta=t.beta,
        sample_prob=t.prob,
        sample_dprob=t.dprob,
        sample_dbias=dbias,
        sample_b=t.b,
        sample_sfb=t.sfb,
        sample_sfd_row=None,
        sample_sfd_col=None,
        sample_amax=amax,
        sample_norm_const=None,
        acc_dtype=torch.float32,
        mma_tiler_mn=(256, 256),
        act_func="dswiglu",
        epilogue_op=None,
    )
    assert api.check_support()
    api.compile()
    api.execute(
        a_tensor=t.a, c_tensor=t.c, d_row_tensor=d_row, d_col_tensor=d_col,
        sfa_tensor=t.sfa, padded_offsets=t.offsets, alpha_tensor=t.alpha,
        beta_tensor=t.beta, prob_tensor=t.prob, dprob_tensor=t.dprob, dbias_tensor=dbias,
        b_tensor=t.b, sfb_tensor=t.sfb,
        sfd_row_tensor=None, sfd_col_tensor=None,
        amax_tensor=amax, norm_const_tensor=None,
        current_stream=None,
    )  # fmt: skip
    assert torch.equal(d_row, d_col) and d_row.any() and torch.isfinite(amax).all()


def test_dglu_discrete_class(torch_fw: Any) -> None:
    torch = torch_fw.torch
    p = ref.make_problem("dglu", "mxfp4_16", [256, 256], n=64, k=128)
    q = Call(torch_fw, p, "discrete_k")
    a = torch.from_numpy(p.a)[:, :, None]
    m, w, num_experts, n, k = 512, 128, 2, 64, 128
    d_row = zeros(torch, (m, w, 1), (w, 1, m * w), torch.bfloat16)
    d_col = zeros(torch, (m, w, 1), (w, 1, m * w), torch.bfloat16)
    api = GroupedGemmDgluSm100(
        sample_a=a,
        sample_c=q.c,
        sample_d_row=d_row,
        sample_d_col=d_col,
        sample_sfa=q.sfa,
        sample_padded_offsets=q.offsets,
        sample_alpha=q.alpha,
        sample_beta=q.beta,
        sample_prob=q.prob,
        sample_dprob=q.dprob,
        num_experts=num_experts,
        b_shape=(n, k),
        b_dtype=torch.uint8,
        act_func="dgeglu",
        b_major="k",
        epilogue_op="relu",
    )
    assert api.check_support()
    api.compile()
    api.execute(
        a_tensor=a, c_tensor=q.c, d_row_tensor=d_row, d_col_tensor=d_col,
        sfa_tensor=q.sfa, padded_offsets=q.offsets, alpha_tensor=q.alpha,
        beta_tensor=q.beta, prob_tensor=q.prob, dprob_tensor=q.dprob,
        b_ptrs=q.weights["b_ptrs"], sfb_ptrs=q.weights["sfb_ptrs"],
        current_stream=None,
    )  # fmt: skip
    assert d_row.any() and (d_row >= 0).all()
