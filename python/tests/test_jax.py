"""JAX: our entry points for both operators, and what the documents say about JAX arrays. Eight host devices."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"

import frameworks
import gemmule
import numpy as np
import pytest
import reference as ref
from frameworks import Call, memory_scales

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from gemmule import jax as gj  # noqa: E402

ROWS = [256, 0, 512]
CONFIGURATIONS = [
    ("srelu", "mxfp8", {"c_dtype": jnp.bfloat16, "d_dtype": jnp.float8_e4m3fn, "discrete_col_sfd": True}),
    ("srelu", "mxfp8_e5m2", {"c_dtype": "float32", "d_dtype": "float4_e2m1fn_x2", "tanh_clamp_scale": 4.0}),
    ("srelu", "mxfp4", {"c_dtype": "float16", "d_dtype": "bfloat16"}),
    ("srelu", "nvfp4", {"c_dtype": "float4_e2m1fn_x2", "d_dtype": "float32"}),
    ("dglu", "bf16", {"generate_dbias": True, "mma_tiler_mn": (128, 128)}),
    ("dglu", "mxfp8", {"d_dtype": "float8_e5m2", "act_func": "dgeglu"}),
    ("dglu", "mxfp4_16", {"d_dtype": jnp.float32, "act_func": "dsituglu", "situ_beta1": 3.5}),
    ("dglu", "nvfp4", {"generate_dbias": True, "epilogue_op": "relu"}),
]


def scales(memory: np.ndarray | None, fmt: str) -> Any:
    return None if memory is None else memory.view(ref.ML[ref.FORMATS[fmt][1]])  # type: ignore[index]


def inputs(p: ref.Problem) -> list[Any]:
    arrays = [p.a, p.b, *([] if p.op == "srelu" else [p.c]), scales(p.sfa, p.format), scales(p.sfb, p.format), p.offsets, p.alpha]
    if p.op == "dglu":
        arrays.append(p.beta)
    arrays += [p.prob, None if p.format == "bf16" else np.array([p.norm_const], np.float32)]
    return [None if x is None else jnp.asarray(x) for x in arrays]


def entry(op: str) -> Any:
    return gj.grouped_gemm_srelu if op == "srelu" else gj.grouped_gemm_dglu


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("op", "fmt", "options"), CONFIGURATIONS)
def test_equals_the_numpy_wrapper(op: str, fmt: str, options: dict[str, Any], jit: bool) -> None:
    p = ref.make_problem(op, fmt, ROWS, n=96, k=160, tail=0 if fmt == "bf16" else 64)
    function = partial(entry(op), sf_vec_size=p.vec, **options)
    got = (jax.jit(function) if jit else function)(*inputs(p))
    fw = frameworks.Numpy()
    call = Call(fw, p)
    wrapper = gemmule.grouped_gemm_srelu_wrapper if op == "srelu" else gemmule.grouped_gemm_dglu_wrapper
    want = wrapper(**(call.srelu() if op == "srelu" else call.dglu()), **options)
    shared = want["d_row_tensor"] is want["d_col_tensor"] if op == "dglu" else False
    names = [key.removesuffix("_tensor") for key, value in want.items() if value is not None]
    assert set(got) == set(names) - ({"d_col"} if shared else set())
    rows, width = int(p.offsets[-1]), p.n * (1 if op == "srelu" else 2)
    per_expert = bool(options.get("discrete_col_sfd"))
    for name, array in got.items():
        x, y = np.asarray(array), np.asarray(want[name + "_tensor"])
        if name.startswith("sfd"):
            memory = [m.view(np.uint8) for m in (x[0], memory_scales(y))]
            if name == "sfd_row":
                x, y = (ref.unswizzle(m, rows, width // 32) for m in memory)
            else:
                x, y = (ref.column_scales(m, width, p.offsets, per_expert) for m in memory)
        elif name in ("c", "d", "d_row", "d_col", "dprob"):
            y = y.reshape(y.shape[0], -1) if name != "dprob" else y[:, 0, 0]
            assert not x[rows:].view(np.uint8).any(), "rows of no expert are zero"
            x, y = x[:rows], y[:rows]
        elif name == "dbias":
            y = y[:, :, 0]
        bits = f"u{x.dtype.itemsize}"
        assert x.shape == y.shape and np.array_equal(x.view(bits), y.view(bits)), name


def test_n_major_weights_and_uint8_scales() -> None:
    p = ref.make_problem("srelu", "mxfp8", ROWS, n=96, k=160)
    arrays = inputs(p)
    want = gj.grouped_gemm_srelu(*arrays, sf_vec_size=32)
    arrays[1] = jnp.swapaxes(arrays[1], 1, 2)
    arrays[2], arrays[3] = jnp.asarray(p.sfa), jnp.asarray(p.sfb)
    got = gj.grouped_gemm_srelu(*arrays, sf_vec_size=32, b_major="n")
    assert jnp.array_equal(want["d"], got["d"])


def test_rules_are_checked_while_tracing() -> None:
    p = ref.make_problem("srelu", "mxfp8", [256], n=64, k=64)
    arrays = inputs(p)
    for options, message in (
        ({"sf_vec_size": 16}, "sf_vec_size: 16, expected 32"),
        ({"sf_vec_size": 32, "d_dtype": "float32"}, "d_dtype: float32"),
        ({"sf_vec_size": 32, "colour": 3}, "colour=3: not an option"),
        ({"sf_vec_size": 32, "mma_tiler_mn": (64, 64)}, "mma_tiler_mn"),
    ):
        with pytest.raises(ValueError, match=message):
            jax.jit(partial(gj.grouped_gemm_srelu, **options))(*arrays)
    with pytest.raises(ValueError, match="prob: shape"):
        gj.grouped_gemm_srelu(*arrays[:6], arrays[6][:, None], sf_vec_size=32)
    bad = [*arrays[:4], jnp.array([200], jnp.int32), *arrays[5:]]
    with pytest.raises(jax.errors.JaxRuntimeError, match="padded_offsets: 200 for expert 0, expected a multiple of 256"):
        jax.block_until_ready(gj.grouped_gemm_srelu(*bad, sf_vec_size=32))


def test_vmap_maps_and_grad_says_no() -> None:
    p = ref.make_problem("dglu", "bf16", [256], n=32, k=64)
    arrays = inputs(p)
    function = lambda a: gj.grouped_gemm_dglu(a, *arrays[1:])["d_row"]  # noqa: E731
    stacked = jnp.stack([arrays[0], 2 * arrays[0]])
    out = jax.vmap(function)(stacked)
    assert jnp.array_equal(out[0], function(stacked[0])) and jnp.array_equal(out[1], function(stacked[1]))
    with pytest.raises(ValueError, match="gemmule_grouped_gemm_dglu.*differentiated"):
        jax.grad(lambda a: function(a).astype(jnp.float32).sum())(arrays[0])


def test_expert_parallel_shard_map() -> None:
    """Every device holds its own experts and their rows."""
    devices = jax.devices()
    assert len(devices) == 8
    mesh = jax.sharding.Mesh(np.array(devices), ("expert",))
    spec = jax.sharding.PartitionSpec("expert")
    parts = [ref.make_problem("dglu", "bf16", [0, 512] if i % 2 else [256, 256], n=64, k=64, seed=i) for i in range(8)]
    columns = list(zip(*(inputs(p)[:8] for p in parts), strict=True))
    names = ("a", "b", "c", "sfa", "sfb", "padded_offsets", "alpha", "beta")
    stacked = {n: jnp.concatenate(c) for n, c in zip(names, columns, strict=True) if c[0] is not None}
    prob = jnp.concatenate([jnp.asarray(p.prob) for p in parts])

    def local(a: Any, b: Any, c: Any, offsets: Any, alpha: Any, beta: Any, prob: Any) -> Any:
        out = gj.grouped_gemm_dglu(a, b, c, None, None, offsets, alpha, beta, prob, generate_dbias=True)
        return out["d_row"], out["dprob"], out["dbias"]

    sharded = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=spec, out_specs=spec))
    d_row, dprob, dbias = sharded(*(stacked[n] for n in names if n in stacked), prob)
    for i, p in enumerate(parts):
        want = entry("dglu")(*inputs(p), generate_dbias=True)
        assert jnp.array_equal(d_row[512 * i : 512 * i + 512], want["d_row"])
        assert jnp.array_equal(dprob[512 * i : 512 * i + 512], want["dprob"])
        assert jnp.array_equal(dbias[2 * i : 2 * i + 2], want["dbias"])


def discrete(p: ref.Problem) -> tuple[dict[str, Any], Any]:
    """Arguments of the documents' JAX calls, and the weights to keep alive."""
    weights = [jnp.asarray(p.b[g]).block_until_ready() for g in range(p.experts)]
    pointers = np.array([w.unsafe_buffer_pointer() for w in weights], np.int64)
    return {
        "a_tensor": jnp.asarray(p.a)[:, :, None], "c_tensor": jnp.asarray(p.c)[:, :, None],
        "padded_offsets": jnp.asarray(p.offsets), "alpha_tensor": jnp.asarray(p.alpha),
        "beta_tensor": jnp.asarray(p.beta), "b_ptrs": jnp.asarray(pointers.view(np.uint8)), "n": p.n,
        "prob_tensor": jnp.asarray(p.prob)[:, None, None],
    }, weights  # fmt: skip


@pytest.mark.parametrize("act", ["dswiglu", "dgeglu"])
def test_documents_eager_and_jitted_calls_agree(act: str) -> None:
    p = ref.make_problem("dglu", "bf16", [256, 256], n=128, k=128)
    kwargs, _weights = discrete(p)
    dprob = jnp.zeros((512, 1, 1), jnp.float32).block_until_ready()
    out = gemmule.grouped_gemm_dglu_wrapper_sm100(
        **kwargs, sfa_tensor=None, dprob_tensor=dprob, b_dtype="bfloat16", act_func=act, generate_dbias=True
    )
    assert out["dprob_tensor"] is dprob and isinstance(out["d_row_tensor"], jax.Array)
    traced = {key: value for key, value in kwargs.items() if key != "n"}
    jitted = jax.jit(partial(gemmule.grouped_gemm_dglu_jax_sm100, n=p.n, act_func=act, generate_dbias=True))
    d_row, dprob2, dbias = jitted(**traced)
    for x, y in ((d_row, out["d_row_tensor"]), (dprob2, dprob), (dbias, out["dbias_tensor"])):
        assert x.shape == y.shape and np.array_equal(np.asarray(x), np.asarray(y))
    want = ref.dglu(p, act)
    ref.assert_values(np.asarray(d_row)[:, :, 0].astype(np.float64), want["d"], "bfloat16", want["d_error"])
    assert gemmule.grouped_gemm_dglu_jax_sm100(**kwargs)[2] is None


def test_documents_errors() -> None:
    p = ref.make_problem("dglu", "bf16", [256], n=64, k=64)
    kwargs, weights = discrete(p)
    eager = {**kwargs, "sfa_tensor": None, "dprob_tensor": jnp.zeros((256, 1, 1)), "b_dtype": "bfloat16"}
    dense = {key: value for key, value in eager.items() if key not in ("b_ptrs", "n", "b_dtype")}
    with pytest.raises(ValueError, match="not expressible as JAX arrays"):
        gemmule.grouped_gemm_dglu_wrapper_sm100(**dense, b_tensor=weights[0][:, :, None])
    with pytest.raises(ValueError, match="not expressible as JAX arrays"):
        gemmule.grouped_gemm_dglu_wrapper_sm100(**{**eager, "a_tensor": eager["a_tensor"].astype(jnp.float8_e4m3fn)})
    with pytest.raises(ValueError, match="not expressible as JAX arrays"):
        gemmule.grouped_gemm_srelu_wrapper_sm100(a_tensor=eager["a_tensor"])
    with pytest.raises(ValueError, match="not expressible as JAX arrays"):
        gemmule.GroupedGemmSreluSm100(sample_a=eager["a_tensor"])
    with pytest.raises(ValueError, match="traced JAX array"):
        jax.jit(lambda a: gemmule.grouped_gemm_dglu_wrapper_sm100(**{**eager, "a_tensor": a})["d_row_tensor"])(eager["a_tensor"])
    for change, message in (
        ({"n": 0}, "n: 0, expected"),
        ({"n": 48}, "n: 48, expected"),
        ({"a_tensor": kwargs["a_tensor"][:, :, 0]}, "a_tensor: shape"),
        ({"a_tensor": kwargs["a_tensor"].astype(jnp.float32)}, "a_tensor: dtype float32"),
        ({"a_tensor": kwargs["a_tensor"][:200], "c_tensor": kwargs["c_tensor"][:200], "prob_tensor": kwargs["prob_tensor"][:200]}, "M = 200"),
        ({"c_tensor": kwargs["c_tensor"][:, :64]}, "c_tensor: shape"),
        ({"prob_tensor": kwargs["prob_tensor"][:, 0]}, "prob_tensor: shape"),
        ({"alpha_tensor": jnp.ones(2)}, "alpha_tensor: shape"),
        ({"act_func": "dsituglu"}, "act_func: dsituglu"),
        ({"acc_dtype": "float16"}, "acc_dtype: float16"),
        ({"d_dtype": "float8_e4m3fn"}, "d_dtype: float8_e4m3fn"),
    ):
        with pytest.raises(ValueError, match=message):
            gemmule.grouped_gemm_dglu_jax_sm100(**{**kwargs, **change})
