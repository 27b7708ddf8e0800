"""Both operators for JAX, under jit: XLA custom calls on the CPU and on CUDA.

JAX arrays are row-major, so every array has the memory order of a problem file: a (M, K) or packed FP4 (M, K/2) uint8, b (L, N,
K), scale factors (1 or L, R, B, 32, 4, 4), vectors of one dimension. Results are dictionaries of arrays with the names of a
result file. Rules that depend on shapes, dtypes and options raise ValueError while tracing; values of padded_offsets are
checked when the call runs, on the CPU only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp

from . import _native
from ._arrays import CPU, CUDA, Allocator, dtype_name, stream_handle

NOT_EXPRESSIBLE = "not expressible as JAX arrays"
TARGETS = {"srelu": "gemmule_grouped_gemm_srelu", "dglu": "gemmule_grouped_gemm_dglu"}


@lru_cache(maxsize=1)
def _register() -> None:
    for platform, handler in _native.jax_handlers().items():
        for target in TARGETS.values():
            jax.ffi.register_ffi_target(target, handler, platform=platform)


def _text(key: str, value: Any) -> str:
    if key.endswith("_dtype"):
        return dtype_name(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return ",".join(str(int(x)) for x in value)
    return str(value)


def _described(name: str, array: Any) -> tuple[str, str, tuple[int, ...]]:
    dtype = str(array.dtype)
    if dtype == "uint8" and name in ("a", "b"):
        dtype = "float4_e2m1fn_x2"
    elif dtype == "uint8" and name in ("sfa", "sfb"):
        dtype = "float8_e8m0fnu"
    return name, dtype, tuple(array.shape)


def _jax_dtype(name: str) -> Any:
    return jnp.dtype("uint8" if name == "float4_e2m1fn_x2" else getattr(jnp, name))


def _call(op: str, arrays: dict[str, Any], options: dict[str, Any]) -> dict[str, jax.Array]:
    given = {name: jnp.asarray(array) for name, array in arrays.items() if array is not None}
    if given["a"].ndim != 2:
        raise ValueError(f"a: shape {given['a'].shape}, expected (M, K), or (M, K/2) bytes of packed FP4")
    text = "".join(f"{key}={_text(key, value)}\n" for key, value in options.items() if value is not None)
    rows = given["a"].shape[0]
    outputs: list[tuple[str, str, tuple[int, ...]]] = []
    described = [_described(name, array) for name, array in given.items()]
    if op == "dglu":
        outputs.append(("dprob", "float32", (rows,)))
        described.append(outputs[0])
    outputs += _native.jax_outputs(op, described, text)
    _register()
    results = [jax.ShapeDtypeStruct(shape, _jax_dtype(dtype)) for _, dtype, shape in outputs]
    zeros = [jnp.zeros(result.shape, result.dtype) for result in results]  # what the operator does not write stays 0
    call = jax.ffi.ffi_call(
        TARGETS[op], results, vmap_method="sequential",
        input_output_aliases={len(given) + i: i for i in range(len(results))},
    )  # fmt: skip
    names = [name for name, _, _ in outputs]
    values = call(*given.values(), *zeros, op=op, inputs=" ".join(given), outputs=" ".join(names), options=text)
    return dict(zip(names, values, strict=True))


def grouped_gemm_srelu(
    a: Any, b: Any, sfa: Any, sfb: Any, padded_offsets: Any, alpha: Any, prob: Any, norm_const: Any = None, *,
    bias: Any = None, **options: Any,
) -> dict[str, jax.Array]:  # fmt: skip
    """Grouped GEMM + squared ReLU. ``options`` are those of the wrapper: c_dtype, d_dtype, sf_vec_size, b_major, ...

    Args:
        a: (M, K) float8_e4m3fn or float8_e5m2, or (M, K/2) uint8 (packed FP4). b: (L, N, K); b_major="n": (L, K, N).
        sfa, sfb: (1 or L, R, B, 32, 4, 4) float8_e8m0fnu (or uint8 with the same bytes) or float8_e4m3fn.
        padded_offsets: (L,) int32. alpha: (L,) float32. prob: (M,) float32. norm_const: (1,) float32. bias: (L, N).

    Returns:
        c (M, N), d (M, N), and where the configuration has them d_col, sfd_row, sfd_col, amax (L, 1). FP4 results are
        (M, N/2) uint8. Rows that belong to no expert are 0.
    """
    arrays = {
        "a": a, "b": b, "sfa": sfa, "sfb": sfb, "padded_offsets": padded_offsets, "alpha": alpha, "prob": prob,
        "norm_const": norm_const, "bias": bias,
    }  # fmt: skip
    return _call("srelu", arrays, options)


def grouped_gemm_dglu(
    a: Any, b: Any, c: Any, sfa: Any, sfb: Any, padded_offsets: Any, alpha: Any, beta: Any, prob: Any,
    norm_const: Any = None, **options: Any,
) -> dict[str, jax.Array]:  # fmt: skip
    """Grouped GEMM + dGLU, BF16 (sfa and sfb None) or block-scaled. Arrays as in grouped_gemm_srelu; c: (M, 2N).

    Returns:
        d_row (M, 2N), dprob (M,), and where the configuration has them d_col, sfd_row, sfd_col, amax (L, 2, 1),
        dbias (L, 2N).
    """
    arrays = {
        "a": a, "b": b, "c": c, "sfa": sfa, "sfb": sfb, "padded_offsets": padded_offsets, "alpha": alpha, "beta": beta,
        "prob": prob, "norm_const": norm_const,
    }  # fmt: skip
    return _call("dglu", arrays, options)


def _matrix(name: str, array: Any, rows: int | None = None) -> Any:
    if array.ndim != 3 or array.shape[2] != 1 or (rows is not None and array.shape[0] != rows):
        raise ValueError(f"{name}: shape {tuple(array.shape)}, expected ({'M' if rows is None else rows}, columns, 1)")
    return array[:, :, 0]


def grouped_gemm_dglu_jax_sm100(
    a_tensor: Any,
    c_tensor: Any,
    padded_offsets: Any,
    alpha_tensor: Any,
    beta_tensor: Any,
    b_ptrs: Any,
    n: int,
    prob_tensor: Any,
    d_dtype: Any = None,
    acc_dtype: Any = None,
    mma_tiler_mn: tuple[int, int] = (256, 256),
    cluster_shape_mn: tuple[int, int] | None = None,
    vector_f32: bool = False,
    act_func: str = "dswiglu",
    linear_offset: float | None = None,
    generate_dbias: bool = False,
    use_dynamic_sched: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """BF16 grouped GEMM + dGLU with discrete weights, for use under jax.jit.

    Args:
        a_tensor: (M, K, 1) bfloat16. c_tensor: (M, 2N, 1). prob_tensor: (M, 1, 1).
        b_ptrs: addresses of the experts' (N, K) weights, (L,) int64 or (8 L,) uint8 with their little-endian bytes. The
            buffers must stay alive and unmoved for every execution of the traced computation.

    Returns:
        d_row (M, 2N, 1), dprob (M, 1, 1), and dbias (L, 2N, 1) or None; the last two start from zero.
    """
    a = _matrix("a_tensor", a_tensor)
    if str(a.dtype) != "bfloat16":
        raise ValueError(f"a_tensor: dtype {a.dtype}, expected bfloat16: block-scaled operands are {NOT_EXPRESSIBLE} here")
    if int(n) < 1 or int(n) % 32:
        raise ValueError(f"n: {n}, expected a positive multiple of 32")
    rows = a.shape[0]
    prob = _matrix("prob_tensor", prob_tensor, rows)
    if prob.shape[1] != 1:
        raise ValueError(f"prob_tensor: shape {tuple(prob_tensor.shape)}, expected ({rows}, 1, 1)")
    arrays = {
        "a": a, "c": _matrix("c_tensor", c_tensor, rows), "padded_offsets": padded_offsets, "alpha": alpha_tensor,
        "beta": beta_tensor, "prob": prob[:, 0], "b_ptrs": b_ptrs,
    }  # fmt: skip
    options = {
        "n": int(n), "b_dtype": "bfloat16", "d_dtype": d_dtype or "bfloat16", "acc_dtype": acc_dtype or "float32",
        "mma_tiler_mn": mma_tiler_mn, "cluster_shape_mn": cluster_shape_mn, "vector_f32": vector_f32, "act_func": act_func,
        "linear_offset": linear_offset, "generate_dbias": generate_dbias, "use_dynamic_sched": use_dynamic_sched,
    }  # fmt: skip
    out = _call("dglu", arrays, options)
    dbias = out["dbias"][:, :, None] if generate_dbias else None
    return out["d_row"][:, :, None], out["dprob"][:, None, None], dbias


class EagerArrays:
    """Concrete JAX arrays for the documents' eager BF16 wrapper: results are written, and dprob updated, in place."""

    native = False

    def describe(self, array: Any) -> Any:
        if isinstance(array, jax.core.Tracer):
            raise ValueError("a traced JAX array, expected a concrete one; use grouped_gemm_dglu_jax_sm100 under jax.jit")
        if not isinstance(array, jax.Array):
            raise ValueError(f"{type(array).__name__}, expected a JAX array like a_tensor")
        array = array.block_until_ready()
        (device,) = array.devices()
        kind, index = (CPU, 0) if device.platform == "cpu" else (CUDA, device.local_hardware_id)
        shape, dtype, address = tuple(array.shape), str(array.dtype), array.unsafe_buffer_pointer()
        if dtype == "uint8" and len(shape) == 1:  # b_ptrs as bytes, for JAX without 64-bit types
            shape, dtype = (shape[0] // 8,), "int64"
        strides = [1]
        for extent in reversed(shape[1:]):
            strides.insert(0, strides[0] * extent)
        return address, dtype, shape, tuple(strides[: len(shape)]), kind, index

    def writable(self, array: Any) -> bool:
        return True  # dprob is updated in place although JAX arrays are constants to everybody else

    def launch(self, like: Any, current_stream: Any, *pointers: Any) -> tuple[int, None]:
        return 0 if current_stream is None else stream_handle(current_stream), None

    def allocator(self, like: Any) -> Allocator:
        (device,) = like.devices()

        def allocate(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
            with jax.default_device(device):
                return jnp.zeros(shape, getattr(jnp, dtype)).block_until_ready()

        return allocate


def eager_arrays(operation: str, a_tensor: Any, b_tensor: Any) -> EagerArrays:
    """For the documents' eager wrapper. ValueError for what it cannot take."""
    if b_tensor is not None:
        raise ValueError(f"{operation}: dense b_tensor is {NOT_EXPRESSIBLE}; pass b_ptrs, or use gemmule.jax")
    if str(a_tensor.dtype) != "bfloat16":
        raise ValueError(
            f"{operation}: a_tensor has dtype {a_tensor.dtype}; the scale factors of block-scaled operands are "
            f"{NOT_EXPRESSIBLE}; use gemmule.jax"
        )
    return EagerArrays()
