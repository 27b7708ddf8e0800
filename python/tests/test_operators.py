"""Results of both wrappers and classes, every format and weight layout, against the float64 reference."""

from __future__ import annotations

import inspect
from typing import Any

import frameworks
import gemmule
import numpy as np
import pytest
import reference as ref
from frameworks import Call, memory_scales

ROWS = [256, 0, 512]


@pytest.fixture(params=["numpy", "torch", *frameworks.devices()])
def fw(request: pytest.FixtureRequest) -> Any:
    """On machines with CUDA devices also PyTorch ("cuda") and CuPy there."""
    return frameworks.make(request.param)


def matrix(fw: Any, tensor: Any) -> np.ndarray:
    return fw.numpy(tensor)[:, :, 0]


def check_output_scales(fw: Any, out: Any, names: tuple[str, str], y: np.ndarray, error: np.ndarray, p: ref.Problem, dtype: str, per_expert: bool) -> None:
    rows, width = y.shape
    row_codes, col_codes = (matrix(fw, out[name])[:rows] for name in names)
    row = ref.unswizzle(memory_scales(fw.numpy(out["sfd_row_tensor"])).view(np.uint8), rows, width // 32)
    col = ref.column_scales(memory_scales(fw.numpy(out["sfd_col_tensor"])).view(np.uint8), width, p.offsets, per_expert)
    ref.assert_quantized(row_codes, row, y, 1, dtype, p.norm_const, error)
    ref.assert_quantized(col_codes, col, y, 0, dtype, p.norm_const, error)


@pytest.mark.parametrize("weights", ["dense", "discrete_k", "discrete_n"])
@pytest.mark.parametrize(
    ("fmt", "c_dtype", "d_dtype"),
    [
        ("mxfp8", "bfloat16", "float8_e4m3fn"),
        ("mxfp8", "float32", "bfloat16"),
        ("mxfp8_e5m2", "float8_e5m2", "float8_e5m2"),
        ("mxfp8", "float8_e4m3fn", "float4_e2m1fn_x2"),
        ("mxfp4", "float16", "float16"),
        ("mxfp4_16", "bfloat16", "float32"),
        ("nvfp4", "float4_e2m1fn_x2", "bfloat16"),
    ],
)
def test_srelu(fw: Any, fmt: str, c_dtype: str, d_dtype: str, weights: str) -> None:
    if weights == "discrete_n" and "fp4" in fmt:
        pytest.skip("FP4 weights are K-major")
    p = ref.make_problem("srelu", fmt, ROWS, n=96, k=160, tail=64)
    call = Call(fw, p, weights)
    per_expert = weights == "discrete_k"
    c_type = "float4_e2m1fn_x2" if c_dtype == "float4_e2m1fn_x2" else fw.dtype(c_dtype)
    d_type = "float4_e2m1fn_x2" if d_dtype == "float4_e2m1fn_x2" else fw.dtype(d_dtype)
    out = gemmule.grouped_gemm_srelu_wrapper_sm100(**call.srelu(), c_dtype=c_type, d_dtype=d_type, discrete_col_sfd=per_expert)
    want = ref.srelu(p)
    rows = int(p.offsets[-1])

    c = ref.decode(matrix(fw, out["c_tensor"])[:rows], c_dtype)
    limit = {"float4_e2m1fn_x2": 6.0, "float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}.get(c_dtype, np.inf)
    ref.assert_values(c, np.clip(want["c"], -limit, limit), c_dtype, want["c_error"])
    if d_dtype.startswith("float8") or d_dtype.startswith("float4"):
        check_output_scales(fw, out, ("d_tensor", "d_col_tensor"), want["d"], want["d_error"], p, d_dtype, per_expert)
        assert out["amax_tensor"] is None
    else:
        ref.assert_values(ref.decode(matrix(fw, out["d_tensor"])[:rows], d_dtype), want["d"], d_dtype, want["d_error"])
        assert out["d_col_tensor"] is out["sfd_row_tensor"] is out["sfd_col_tensor"] is None
        if d_dtype == "float32":
            assert out["amax_tensor"] is None
        else:
            amax = fw.numpy(out["amax_tensor"])
            np.testing.assert_allclose(amax, want["amax"], rtol=1e-3)
            assert np.isneginf(amax[1])


def test_srelu_clamp_and_bias(fw: Any) -> None:
    p = ref.make_problem("srelu", "mxfp8", ROWS, n=128, k=128)
    bias = np.random.default_rng(5).uniform(-2, 2, (p.n, p.experts)).astype(np.float32)
    b = fw.array(np.ascontiguousarray(bias.T), "float32").T
    out = gemmule.grouped_gemm_srelu_wrapper(**Call(fw, p).srelu(), bias_tensor=b, tanh_clamp_scale=2.0, c_dtype="float32")
    want = ref.srelu(p, clamp=2.0, bias=bias)
    ref.assert_values(matrix(fw, out["c_tensor"]).astype(np.float64), want["c"], "float32", want["c_error"])
    slack = want["d_error"] + 8 * 7.7e-6
    ref.assert_values(matrix(fw, out["d_tensor"]).astype(np.float64), want["d"], "bfloat16", slack)


@pytest.mark.parametrize("weights", ["dense", "discrete_k", "discrete_n"])
@pytest.mark.parametrize(
    ("fmt", "act", "c_dtype", "d_dtype"),
    [
        ("bf16", "dswiglu", "bfloat16", "bfloat16"),
        ("bf16", "dgeglu", "float32", "float32"),
        ("mxfp8", "dswiglu", "bfloat16", "float8_e4m3fn"),
        ("mxfp8_e5m2", "dgeglu", "float8_e4m3fn", "float8_e5m2"),
        ("mxfp8", "dsituglu", "float16", "float8_e4m3fn"),
        ("mxfp4", "dsituglu", "bfloat16", "float16"),
        ("mxfp4_16", "dswiglu", "float8_e5m2", "float32"),
        ("nvfp4", "dgeglu", "bfloat16", "bfloat16"),
    ],
)
def test_dglu(fw: Any, fmt: str, act: str, c_dtype: str, d_dtype: str, weights: str) -> None:
    if weights == "discrete_n" and "fp4" in fmt:
        pytest.skip("FP4 weights are K-major")
    p = ref.make_problem("dglu", fmt, ROWS, n=96, k=160, tail=0 if fmt == "bf16" else 64, c_dtype=c_dtype)
    call = Call(fw, p, weights)
    per_expert = weights == "discrete_k" and fmt != "bf16"
    out = gemmule.grouped_gemm_dglu_wrapper_sm100(
        **call.dglu(), act_func=act, d_dtype=fw.dtype(d_dtype), generate_dbias=True, discrete_col_sfd=per_expert
    )
    want = ref.dglu(p, act)
    rows = int(p.offsets[-1])

    if d_dtype.startswith("float8"):
        check_output_scales(fw, out, ("d_row_tensor", "d_col_tensor"), want["d"], want["d_error"], p, d_dtype, per_expert)
    else:
        got = ref.decode(matrix(fw, out["d_row_tensor"])[:rows], d_dtype)
        ref.assert_values(got, want["d"], d_dtype, want["d_error"])
        assert out["d_col_tensor"] is (None if fmt == "bf16" else out["d_row_tensor"])
        assert out["sfd_row_tensor"] is out["sfd_col_tensor"] is None
    assert out["dprob_tensor"] is call.dprob
    dprob = fw.numpy(call.dprob)[:, 0, 0].astype(np.float64)
    ref.assert_values(dprob[:rows], want["dprob"], "float32", want["dprob_error"])
    assert (dprob[rows:] == 0).all()
    dbias = matrix(fw, out["dbias_tensor"]).astype(np.float64)
    ref.assert_values(dbias, want["dbias"], "bfloat16", want["dbias_error"])
    if fmt != "bf16" and d_dtype in ("float16", "bfloat16"):
        np.testing.assert_allclose(fw.numpy(out["amax_tensor"])[:, :, 0], want["amax"], rtol=1e-3)
    else:
        assert out["amax_tensor"] is None


def test_reference_rejects_wrong_results() -> None:
    """The checks above can fail: a scale byte, an element and the order of gate and input are changed."""
    p = ref.make_problem("srelu", "mxfp8", [256], n=64, k=64)
    want = ref.srelu(p)
    d = want["d"].copy()
    ref.assert_values(d, want["d"], "bfloat16", want["d_error"])
    d[np.unravel_index(np.abs(d).argmax(), d.shape)] *= 1.7
    with pytest.raises(AssertionError):
        ref.assert_values(d, want["d"], "bfloat16", want["d_error"])
    codes = ref.scale_codes(want["d"], 1, "float8_e4m3fn", 0.5)
    quantized = (want["d"] * 0.5 / np.repeat(2.0 ** (codes - 127.0), 32, 1)).astype(ref.ML["float8_e4m3fn"])
    ref.assert_quantized(quantized, codes, want["d"], 1, "float8_e4m3fn", 0.5, want["d_error"])
    codes[3, 1] += 1
    with pytest.raises(AssertionError):
        ref.assert_quantized(quantized, codes, want["d"], 1, "float8_e4m3fn", 0.5, want["d_error"])
    q = ref.make_problem("dglu", "bf16", [256], n=64, k=64)
    right = ref.dglu(q)
    with pytest.raises(AssertionError):
        ref.assert_values(np.roll(right["d"], 32, 1), right["d"], "bfloat16", right["d_error"])


def same(fw: Any, x: Any, y: Any) -> bool:
    bits = f"u{fw.numpy(x).dtype.itemsize}"
    return bool(np.array_equal(fw.numpy(x).view(bits), fw.numpy(y).view(bits)))


def like(fw: Any, tensor: Any) -> Any:
    """Zeros with the strides of ``tensor``."""
    if fw.name == "torch":
        out = fw.torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        (out.view(fw.torch.uint8) if out.element_size() == 1 else out).zero_()
        return out
    order = np.argsort([-s for s in tensor.strides], kind="stable")
    memory = fw.array(np.zeros([tensor.shape[i] for i in order], tensor.dtype), tensor.dtype.name)
    return memory.transpose([int(i) for i in np.argsort(order)])


@pytest.mark.parametrize("weights", ["dense", "discrete_k"])
def test_srelu_class_equals_wrapper(fw: Any, weights: str) -> None:
    p = ref.make_problem("srelu", "mxfp8", ROWS, n=128, k=128)
    call = Call(fw, p, weights)
    arguments = {**call.srelu(), "d_dtype": "float8_e4m3fn", "discrete_col_sfd": True}
    out = gemmule.grouped_gemm_srelu_wrapper_sm100(**arguments)
    mine = {key: like(fw, value) for key, value in out.items() if value is not None}
    samples = {"sample_" + key.removesuffix("_tensor"): value for key, value in mine.items()}
    if weights == "dense":
        samples |= {"sample_b": call.b, "sample_sfb": call.sfb}
    else:
        samples |= {"num_experts": p.experts, "b_shape": (p.n, p.k, 1), "b_dtype": fw.dtype(p.element), "b_major": "k"}
    op = gemmule.GroupedGemmSreluSm100(
        sample_a=call.a, sample_sfa=call.sfa, sample_padded_offsets=call.offsets, sample_alpha=call.alpha,
        sample_norm_const=call.norm_const, sample_prob=call.prob, sf_vec_size=32, discrete_col_sfd=True, **samples,
    )  # fmt: skip
    assert op.check_support() is True
    with pytest.raises(RuntimeError, match="not compiled"):
        op.execute(call.a, call.sfa, call.offsets, call.alpha, mine["c_tensor"], mine["d_tensor"])
    op.compile()
    op.compile()
    weights_given = {key: value for key, value in call.weights.items() if key in ("b_tensor", "sfb_tensor", "b_ptrs", "sfb_ptrs")}
    result = op.execute(
        a_tensor=call.a, sfa_tensor=call.sfa, padded_offsets=call.offsets, alpha_tensor=call.alpha, prob_tensor=call.prob,
        norm_const_tensor=call.norm_const, current_stream=None, **weights_given, **mine,
    )  # fmt: skip
    assert result is None
    for key, value in mine.items():
        assert same(fw, value, out[key]), key


def test_dglu_class_equals_wrapper(fw: Any) -> None:
    p = ref.make_problem("dglu", "bf16", ROWS, n=64, k=128)
    call = Call(fw, p)
    out = gemmule.grouped_gemm_dglu_wrapper_sm100(**{**call.dglu(), "sf_vec_size": 16}, generate_dbias=True)
    d_row, dbias, dprob = like(fw, out["d_row_tensor"]), like(fw, out["dbias_tensor"]), like(fw, call.dprob)
    op = gemmule.GroupedGemmDgluSm100(
        call.a, call.c, d_row, None, None, call.offsets, call.alpha, call.beta, call.prob, dprob, call.b, None, dbias
    )
    op(  # compiles first
        call.a, call.c, d_row, None, None, call.offsets, call.alpha, call.beta, call.prob, dprob, call.b, None, dbias
    )
    assert same(fw, d_row, out["d_row_tensor"]) and same(fw, dbias, out["dbias_tensor"]) and same(fw, dprob, call.dprob)


def test_our_own_arguments(fw: Any) -> None:
    """Keyword-only in the wrappers and the classes; those without numerical effect change nothing."""
    ours: dict[str, Any] = {"deterministic": True, "sm_limit": 4, "programmatic_launch": True}
    call = Call(fw, ref.make_problem("dglu", "bf16", ROWS, n=64, k=128))
    arguments = {**call.dglu(), "act_func": "dgeglu", "geglu_filter": "mask"}
    want = gemmule.grouped_gemm_dglu_wrapper(**arguments)["d_row_tensor"]
    assert same(fw, gemmule.grouped_gemm_dglu_wrapper(**arguments, **ours)["d_row_tensor"], want)
    value = gemmule.grouped_gemm_dglu_wrapper(**{**arguments, "geglu_filter": "value"})["d_row_tensor"]
    assert not same(fw, value, want)
    d_row, dprob = like(fw, want), like(fw, call.dprob)
    tensors = (call.a, call.c, d_row, None, None, call.offsets, call.alpha, call.beta, call.prob, dprob, call.b)
    op = gemmule.GroupedGemmDgluSm100(*tensors, act_func="dgeglu", geglu_filter="mask", **ours)
    op(*tensors)
    assert same(fw, d_row, want)

    srelu = Call(fw, ref.make_problem("srelu", "mxfp4", [256], n=64, k=64))
    out = gemmule.grouped_gemm_srelu_wrapper(**srelu.srelu())
    assert same(fw, gemmule.grouped_gemm_srelu_wrapper(**srelu.srelu(), **ours)["d_tensor"], out["d_tensor"])
    for wrapper in (gemmule.grouped_gemm_srelu_wrapper, gemmule.grouped_gemm_dglu_wrapper, gemmule.GroupedGemmSreluSm100,
                    gemmule.GroupedGemmDgluSm100):  # fmt: skip
        kinds = {name: p.kind for name, p in inspect.signature(wrapper).parameters.items()}
        assert all(kinds[name] is inspect.Parameter.KEYWORD_ONLY for name in ours)


def test_results_unpack_in_documented_order(fw: Any) -> None:
    p = ref.make_problem("srelu", "mxfp4", [256], n=64, k=64)
    out = gemmule.grouped_gemm_srelu_wrapper_sm100(**Call(fw, p).srelu())
    names = ("c_tensor", "d_tensor", "d_col_tensor", "amax_tensor", "sfd_row_tensor", "sfd_col_tensor")
    assert tuple(out.keys()) == names and isinstance(out, dict) and len(out) == 6
    for i, (name, value) in enumerate(zip(names, out, strict=True)):
        assert value is out[name] and out[i] is value
    for index in (6, -1):
        with pytest.raises(IndexError):
            out[index]
    strides = out["c_tensor"].stride() if fw.name == "torch" else tuple(s // 2 for s in out["c_tensor"].strides)
    assert tuple(out["c_tensor"].shape) == (256, 64, 1) and strides == (64, 1, 256 * 64)

    q = ref.make_problem("dglu", "bf16", [256], n=64, k=64)
    result = gemmule.grouped_gemm_dglu_wrapper_sm100(**Call(fw, q).dglu())
    assert tuple(result.keys()) == (
        "d_row_tensor", "d_col_tensor", "dprob_tensor", "dbias_tensor", "amax_tensor", "sfd_row_tensor", "sfd_col_tensor",
    )  # fmt: skip
    d_row, d_col, dprob, dbias, amax, sfd_row, sfd_col = result
    assert d_row is result["d_row_tensor"] and dprob is result[2]
    assert d_col is dbias is amax is sfd_row is sfd_col is None


def test_dprob_accumulates(fw: Any) -> None:
    p = ref.make_problem("dglu", "bf16", [256], n=32, k=64)
    call = Call(fw, p)
    gemmule.grouped_gemm_dglu_wrapper(**call.dglu())
    once = fw.numpy(call.dprob).copy()
    gemmule.grouped_gemm_dglu_wrapper(**call.dglu())
    np.testing.assert_allclose(fw.numpy(call.dprob), 2 * once, rtol=1e-6)


@pytest.mark.parametrize("rows", [[0, 0], [0, 256]])
def test_empty_experts(fw: Any, rows: list[int]) -> None:
    p = ref.make_problem("srelu", "mxfp4", rows, n=64, k=64)
    out = gemmule.grouped_gemm_srelu_wrapper(**Call(fw, p).srelu())
    assert out["c_tensor"].shape[0] == sum(rows)
    assert np.isneginf(fw.numpy(out["amax_tensor"])[0, 0])


@pytest.mark.parametrize("counts_values", [False, True])
def test_uint8_is_packed_fp4(fw: Any, counts_values: bool) -> None:
    """Of (M, K/2) bytes, or of (M, K) bytes whose first half holds the packed rows."""
    p = ref.make_problem("srelu", "mxfp4", [256], n=128, k=256)
    call = Call(fw, p)
    want = gemmule.grouped_gemm_srelu_wrapper(**call.srelu())

    def shown(codes: np.ndarray) -> np.ndarray:
        if not counts_values:
            return codes
        return np.concatenate([codes.reshape(-1), np.full(codes.size, 0xFF, np.uint8)]).reshape(*codes.shape[:-1], -1)

    a, b = fw.array(shown(p.a), "uint8")[:, :, None], fw.array(shown(p.b), "uint8")
    b = b.permute(1, 2, 0) if fw.name == "torch" else b.transpose(1, 2, 0)
    out = gemmule.grouped_gemm_srelu_wrapper(**{**call.srelu(), "a_tensor": a, "b_tensor": b})
    assert same(fw, out["d_tensor"], want["d_tensor"])
    if not counts_values:
        discrete = {**call.srelu(), "a_tensor": a, "b_tensor": None, "sfb_tensor": None}
        discrete |= {"b_ptrs": call.pointers(call.b_memory), "sfb_ptrs": call.pointers(call.sfb_memory)}
        out = gemmule.grouped_gemm_srelu_wrapper(**discrete, n=128, b_dtype="uint8")
        assert same(fw, out["d_tensor"], want["d_tensor"])


@pytest.mark.parametrize("name", ["torch", "numpy", "string"])
def test_dtype_arguments_of_any_framework(fw: Any, name: str) -> None:
    p = ref.make_problem("dglu", "bf16", [256], n=32, k=64)
    if name == "string":
        dtype: Any = "float16"
    elif name == "numpy":
        dtype = np.float16
    else:
        dtype = pytest.importorskip("torch").float16
    out = gemmule.grouped_gemm_dglu_wrapper(**Call(fw, p).dglu(), d_dtype=dtype)
    assert fw.numpy(out["d_row_tensor"]).dtype == np.float16


def test_threads_run_at_once(fw: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    p = ref.make_problem("srelu", "mxfp8", ROWS, n=64, k=64)
    arguments = Call(fw, p).srelu()
    want = gemmule.grouped_gemm_srelu_wrapper(**arguments)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: gemmule.grouped_gemm_srelu_wrapper(**arguments), range(12)))
    assert all(same(fw, r["d_tensor"], want["d_tensor"]) for r in results)


class HandleOnly:
    """Like a cuda-python stream: convertible to an integer."""

    def __int__(self) -> int:
        return 0


@pytest.mark.parametrize("stream", [None, 0, HandleOnly()])
def test_streams_may_be_anything_with_a_handle(fw: Any, stream: Any) -> None:
    p = ref.make_problem("srelu", "mxfp4", [256], n=64, k=64)
    assert gemmule.grouped_gemm_srelu_wrapper(**Call(fw, p).srelu(), current_stream=stream)["c_tensor"] is not None
