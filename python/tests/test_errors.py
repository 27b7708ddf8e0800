"""Every documented rule: the type of the error and the words that callers match."""

from __future__ import annotations

from typing import Any

import gemmule
import numpy as np
import pytest
import reference as ref
from frameworks import Call

OPS = {"srelu": gemmule.grouped_gemm_srelu_wrapper_sm100, "dglu": gemmule.grouped_gemm_dglu_wrapper_sm100}


def arguments(fw: Any, op: str, fmt: str, weights: str = "dense") -> dict[str, Any]:
    call = Call(fw, ref.make_problem(op, fmt, [256, 256], n=128, k=64), weights)
    kwargs = call.srelu() if op == "srelu" else call.dglu()
    kwargs["keep"] = call
    if op == "dglu" and fmt.startswith("mxfp8"):
        kwargs["d_dtype"] = "float8_e4m3fn"
    return kwargs


def call(op: str, kwargs: dict[str, Any]) -> Any:
    kwargs.pop("keep", None)
    return OPS[op](**kwargs)


COMMON = [
    ("mxfp8", {"acc_dtype": "float16"}, "acc_dtype: float16, expected float32"),
    ("mxfp8", {"cd_major": "m"}, "cd_major: m, expected n"),
    ("mxfp8", {"m_aligned": 64}, "m_aligned: 64, expected 256"),
    ("mxfp8", {"sf_vec_size": 16}, "sf_vec_size: 16, expected 32 with FP8 input"),
    ("mxfp8", {"sf_vec_size": 8}, "sf_vec_size: 8, expected 16 or 32"),
    ("nvfp4", {"sf_vec_size": 32}, "sf_vec_size: 32, expected 16 with e4m3 scale factors"),
    ("mxfp8", {"mma_tiler_mn": (64, 256)}, "mma_tiler_mn: .*TILE_M 128 or 256"),
    ("mxfp8", {"mma_tiler_mn": (256, 64)}, "mma_tiler_mn: .*TILE_N"),
    ("mxfp8", {"mma_tiler_mn": (256, 256), "cluster_shape_mn": (1, 1)}, "cluster_shape_mn"),
    ("mxfp8", {"cluster_shape_mn": (2, 3)}, "cluster_shape_mn: .*power of two"),
    ("mxfp8", {"norm_const_tensor": None, "d_dtype": "float8_e4m3fn"}, "required for FP8 input/FP8 output"),
    ("mxfp8", {"b_tensor": None, "sfb_tensor": None}, "neither given, expected one of them"),
    ("mxfp8", {"d_dtype": "float32"}, "d_dtype: float32"),
    ("mxfp4", {"d_dtype": "float8_e4m3fn"}, "d_dtype: float8_e4m3fn"),
    ("mxfp8", {"n": 128}, "dense mode forbids n"),
    ("mxfp8", {"b_dtype": "float8_e4m3fn"}, "dense mode forbids b_dtype"),
    ("mxfp8", {"sfa_tensor": None}, "sfa_tensor: None"),
    ("mxfp8", {"sfb_tensor": None}, "sfb_tensor: None"),
    ("mxfp8", {"padded_offsets": None}, "padded_offsets: None"),
    ("mxfp8", {"alpha_tensor": None}, "alpha_tensor: None"),
    ("mxfp8", {"b_dtype": object()}, "dtype: .*expected a torch or numpy dtype"),
    ("mxfp8", {"sm_limit": -1}, "sm_limit: -1"),
]


@pytest.mark.parametrize("op", ["srelu", "dglu"])
@pytest.mark.parametrize(("fmt", "change", "message"), COMMON)
def test_common(fw: Any, op: str, fmt: str, change: dict[str, Any], message: str) -> None:
    kwargs = arguments(fw, op, fmt)
    with pytest.raises(ValueError, match=message):
        call(op, {**kwargs, **change})


DISCRETE = [
    ({"n": None}, "n: None"),
    ({"b_dtype": None}, "b_dtype: None"),
    ({"b_dtype": "float8_e5m2"}, "b_dtype|unsupported dtype pair"),
    ({"b_dtype": "bfloat16"}, "b_dtype|mixed dtype families"),
    ({"b_major": "m"}, 'b_major: "m"'),
    ({"sfb_ptrs": None}, "sfb_ptrs: None"),
]


@pytest.mark.parametrize("op", ["srelu", "dglu"])
@pytest.mark.parametrize(("change", "message"), DISCRETE)
def test_discrete(fw: Any, op: str, change: dict[str, Any], message: str) -> None:
    kwargs = arguments(fw, op, "mxfp8", "discrete_k")
    with pytest.raises(ValueError, match=message):
        call(op, {**kwargs, **change})


@pytest.mark.parametrize("op", ["srelu", "dglu"])
def test_pointer_arrays(fw: Any, op: str) -> None:
    kwargs = arguments(fw, op, "mxfp8", "discrete_k")
    bad_dtype = fw.array(np.zeros(2, np.int32), "int32")
    bad_length = fw.array(np.zeros(3, np.int64), "int64")
    null = fw.array(np.zeros(2, np.int64), "int64")
    for change, message in (
        ({"b_ptrs": bad_dtype}, "b_ptrs must be int64"),
        ({"b_ptrs": bad_length}, "b_ptrs length mismatch"),
        ({"sfb_ptrs": bad_length}, "sfb_ptrs length mismatch"),
        ({"b_ptrs": null}, "b_ptrs: 0 for expert 0"),
        ({"b_tensor": kwargs["a_tensor"]}, "both given"),
    ):
        with pytest.raises(ValueError, match=message):
            call(op, {**kwargs, **change})
    fp4 = arguments(fw, op, "mxfp4", "discrete_k")
    with pytest.raises(ValueError, match="b_major: n, expected k with FP4 input"):
        call(op, {**fp4, "b_major": "n"})


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_tanh_clamp_scale(fw: Any, scale: float) -> None:
    with pytest.raises(ValueError, match="tanh_clamp_scale"):
        call("srelu", {**arguments(fw, "srelu", "mxfp8"), "tanh_clamp_scale": scale})


def test_prob_is_required(fw: Any) -> None:
    with pytest.raises(ValueError, match="prob_tensor: None"):
        call("srelu", {**arguments(fw, "srelu", "mxfp8"), "prob_tensor": None})
    for name in ("prob_tensor", "dprob_tensor"):
        with pytest.raises(ValueError, match=f"{name}: None"):
            call("dglu", {**arguments(fw, "dglu", "bf16"), name: None})
    out = call("dglu", {**arguments(fw, "dglu", "mxfp8"), "prob_tensor": None, "dprob_tensor": None})
    assert out["dprob_tensor"] is None


def test_values_shapes_and_strides(fw: Any) -> None:
    kwargs = arguments(fw, "srelu", "mxfp8")
    p = kwargs["keep"].p

    def offsets(*ends: int) -> Any:
        return fw.array(np.array(ends, np.int32), "int32")

    a = fw.array(np.zeros((64, 512), np.uint8), "float8_e4m3fn")
    for change, message in (
        ({"padded_offsets": offsets(256, 500)}, "padded_offsets: 500 for expert 1, expected a multiple of 256"),
        ({"padded_offsets": offsets(512, 256)}, "padded_offsets: 256 for expert 1"),
        ({"padded_offsets": offsets(256, 768)}, "expected at most 512"),
        ({"padded_offsets": offsets(512)}, "expected shape"),
        ({"norm_const_tensor": fw.array(np.zeros(1, np.float32), "float32"), "d_dtype": "float8_e4m3fn"}, "norm_const_tensor: 0"),
        ({"alpha_tensor": fw.array(np.ones(2, np.float64), "float32")}, "alpha_tensor: shape"),
        ({"a_tensor": (a.T if fw.name == "numpy" else a.t())[:, :, None]}, "a_tensor: strides"),
        ({"prob_tensor": fw.array(p.prob, "float32")}, "prob_tensor: shape"),
    ):
        with pytest.raises(ValueError, match=message):
            call("srelu", {**kwargs, **change})


BF16 = [
    ({"sf_vec_size": 32}, "BF16 forbids scale control sf_vec_size"),
    ({"discrete_col_sfd": True}, "BF16 forbids scale control discrete_col_sfd"),
    ({"epilogue_op": "relu"}, "BF16 forbids scale control epilogue_op"),
    ({"geglu_alpha": 1.5}, "BF16 forbids scale control geglu_alpha"),
    ({"glu_clamp_max": 6.0}, "BF16 forbids scale control glu_clamp_max"),
    ({"glu_clamp_min": -6.0}, "BF16 forbids scale control glu_clamp_min"),
    ({"act_func": "dsituglu"}, "dsituglu is block-scaled only"),
    ({"act_func": "swiglu"}, "act_func"),
    ({"geglu_filter": "soft"}, "geglu_filter"),
    ({"d_dtype": "float8_e4m3fn"}, "d_dtype: float8_e4m3fn"),
    ({"mma_tiler_mn": (128, 48)}, "TILE_N a multiple of 32"),
]


@pytest.mark.parametrize(("change", "message"), BF16)
def test_bf16_dglu(fw: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call("dglu", {**arguments(fw, "dglu", "bf16"), **change})


def test_bf16_forbids_scale_tensors(fw: Any) -> None:
    scaled = arguments(fw, "dglu", "mxfp8")
    for name in ("sfa_tensor", "sfb_tensor"):
        with pytest.raises(ValueError, match=f"BF16 forbids scale control {name}"):
            call("dglu", {**arguments(fw, "dglu", "bf16"), name: scaled[name]})
    mixed = {**arguments(fw, "dglu", "bf16"), "a_tensor": scaled["a_tensor"]}
    with pytest.raises(ValueError, match="mixed dtype families"):
        call("dglu", mixed)
    with pytest.raises(ValueError, match="unsupported dtype pair"):
        call("dglu", {**scaled, "b_tensor": arguments(fw, "dglu", "mxfp8_e5m2")["b_tensor"]})


def test_situ_constants(fw: Any) -> None:
    for name in ("situ_beta1", "situ_beta2"):
        with pytest.raises(ValueError, match=name):
            call("dglu", {**arguments(fw, "dglu", "mxfp8"), "act_func": "dsituglu", name: 0.0})


def dglu_object(t: Call, d_row: Any, **changes: Any) -> gemmule.GroupedGemmDgluSm100:
    samples = {
        "sample_a": t.a, "sample_c": t.c, "sample_d_row": d_row, "sample_d_col": None, "sample_sfa": t.sfa,
        "sample_padded_offsets": t.offsets, "sample_alpha": t.alpha, "sample_beta": t.beta, "sample_prob": t.prob,
        "sample_dprob": t.dprob, "sample_b": t.b, "sample_sfb": t.sfb,
    }  # fmt: skip
    return gemmule.GroupedGemmDgluSm100(**{**samples, **changes})


def test_class_rules(fw: Any) -> None:
    p = ref.make_problem("dglu", "bf16", [256, 256], n=64, k=128)
    t = Call(fw, p)
    d_row = gemmule.grouped_gemm_dglu_wrapper(**t.dglu())["d_row_tensor"]
    with pytest.raises(ValueError, match="supported only by the block-scaled kernel"):
        dglu_object(t, d_row, use_single_group_runtime_offsets=True).check_support()
    for change in ({"sample_b": None}, {"num_experts": 2, "b_shape": (64, 128), "b_dtype": "bfloat16"}):
        with pytest.raises(ValueError, match="dense or discrete weights"):
            dglu_object(t, d_row, **change).check_support()
    with pytest.raises(ValueError, match="num_experts"):
        discrete = {"sample_b": None, "b_shape": (64, 128), "b_dtype": "bfloat16"}
        dglu_object(t, d_row, num_experts=0, **discrete).check_support()
    with pytest.raises(ValueError, match="padded_offsets"):
        dglu_object(t, d_row, num_experts=3, **discrete).check_support()

    for shape in ((64,), (64, 128, 2), (64, 128, 1, 1), 64, "64", (64, 1.5)):
        with pytest.raises(ValueError, match=r"^b_shape: .*, expected \(N, K\), \(N, K, 1\) or None$"):
            dglu_object(t, d_row, sample_b=None, num_experts=2, b_shape=shape, b_dtype="bfloat16")

    op = dglu_object(t, d_row)
    op.compile()
    dbias = fw.array(np.zeros((2, 128, 1), ref.ML["bfloat16"]), "bfloat16")
    live = (t.a, t.c, d_row, None, None, t.offsets, t.alpha, t.beta, t.prob, t.dprob, t.b, None)
    with pytest.raises(ValueError, match="dbias"):
        op.execute(*live, dbias)
    with_dbias = dglu_object(t, d_row, sample_dbias=dbias)
    with_dbias.compile()
    with pytest.raises(ValueError, match="dbias"):
        with_dbias.execute(*live)
    with pytest.raises(ValueError, match="a_tensor"):
        op.execute(t.a[:, :64], *live[1:])


def test_foreign_arrays(fw: Any) -> None:
    kwargs = arguments(fw, "srelu", "mxfp8")
    with pytest.raises(ValueError, match="a_tensor is list"):
        call("srelu", {**kwargs, "a_tensor": [1, 2]})
    with pytest.raises(ValueError, match="alpha_tensor: .*list"):
        call("srelu", {**kwargs, "alpha_tensor": [1.0, 2.0]})
    with pytest.raises(ValueError, match="alpha_tensor: .*dtype"):
        call("srelu", {**kwargs, "alpha_tensor": fw.array(np.ones(2, np.complex64), "complex64")})


def test_masked_arrays() -> None:
    import frameworks

    kwargs = arguments(frameworks.make("numpy"), "dglu", "bf16")
    for name in ("a_tensor", "alpha_tensor", "dprob_tensor"):
        with pytest.raises(ValueError, match=f"{name}: MaskedArray, whose mask would be ignored"):
            call("dglu", {**kwargs, name: np.ma.masked_array(kwargs[name])})


def test_unpacked_fp4_of_ml_dtypes() -> None:
    import frameworks

    fw = frameworks.make("numpy")
    kwargs = arguments(fw, "srelu", "mxfp4")
    with pytest.raises(ValueError, match="a_tensor: dtype float4_e2m1fn holds one value a byte"):
        call("srelu", {**kwargs, "a_tensor": np.zeros((512, 128, 1), frameworks.ml_dtypes.float4_e2m1fn)})


def test_foreign_byte_order_and_read_only_arrays() -> None:
    import frameworks

    kwargs = arguments(frameworks.make("numpy"), "dglu", "bf16")
    swapped = kwargs["alpha_tensor"].astype(kwargs["alpha_tensor"].dtype.newbyteorder())
    with pytest.raises(ValueError, match="alpha_tensor: dtype .f4, expected the byte order"):
        call("dglu", {**kwargs, "alpha_tensor": swapped})
    constant = {name: kwargs[name].view() for name in ("prob_tensor", "dprob_tensor")}
    for array in constant.values():
        array.flags.writeable = False
    call("dglu", {**kwargs, "prob_tensor": constant["prob_tensor"]})
    with pytest.raises(ValueError, match="dprob_tensor: a read-only array"):
        call("dglu", {**kwargs, **constant})


WRONG_TYPES = [
    ("deterministic", 1, "True or False"), ("generate_dbias", None, "True or False"), ("act_func", None, "a string"),
    ("cd_major", None, "a string"), ("sf_vec_size", 16.5, "a 32-bit integer"), ("sm_limit", 2**40, "a 32-bit integer"),
    ("geglu_alpha", None, "a number"), ("mma_tiler_mn", (256, 256, 64), "two 32-bit integers"),
    ("mma_tiler_mn", None, "two 32-bit integers"), ("cluster_shape_mn", 2, "two 32-bit integers or None"),
    ("cluster_shape_mn", "21", "two 32-bit integers or None"), ("cluster_shape_mn", {1, 2}, "two 32-bit integers or None"),
    ("cluster_shape_mn", (2, 1.5), "two 32-bit integers or None"), ("mma_tiler_mn", np.array(256), "two 32-bit integers"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "kind"), WRONG_TYPES)
def test_types_of_options(fw: Any, name: str, value: Any, kind: str) -> None:
    kwargs = arguments(fw, "dglu", "bf16")
    with pytest.raises(ValueError, match=f"^{name}: .*, expected {kind}$"):
        call("dglu", {**kwargs, name: value})
    if name in ("generate_dbias", "cd_major"):
        return  # of the wrappers only
    t = Call(fw, ref.make_problem("dglu", "bf16", [256, 256], n=64, k=128))
    with pytest.raises(ValueError, match=f"^{name}: .*, expected {kind}$"):
        dglu_object(t, None, **{name: value})


def test_pairs_may_be_lists(fw: Any) -> None:
    call("dglu", {**arguments(fw, "dglu", "bf16"), "mma_tiler_mn": [256, np.int64(256)], "cluster_shape_mn": np.array([2, 1])})


def test_bad_streams_are_named() -> None:
    from gemmule._arrays import stream_handle

    assert stream_handle(5) == 5
    with pytest.raises(ValueError, match="current_stream: object"):
        stream_handle(object())
