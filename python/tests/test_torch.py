"""PyTorch only: no autograd graph, torch.compile, and the registration of the custom operators."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import frameworks
import gemmule
import pytest
import reference as ref
from frameworks import Call

FORMATS = [
    ("srelu", "mxfp8", {"d_dtype": "float8_e4m3fn"}),
    ("srelu", "mxfp8", {"c_dtype": "float32"}),
    ("srelu", "mxfp4", {"d_dtype": "float32"}),
    ("dglu", "bf16", {"generate_dbias": True}),
    ("dglu", "mxfp8", {"d_dtype": "float8_e4m3fn"}),
    ("dglu", "mxfp4", {"generate_dbias": True}),
]


@pytest.fixture
def fw() -> Any:
    return frameworks.make("torch")


def wrapper(op: str) -> Any:
    return gemmule.grouped_gemm_srelu_wrapper_sm100 if op == "srelu" else gemmule.grouped_gemm_dglu_wrapper_sm100


def arguments(fw: Any, op: str, fmt: str, rows: tuple[int, ...] = (256, 512), k: int = 128, n: int = 96) -> tuple[Call, dict[str, Any]]:
    call = Call(fw, ref.make_problem(op, fmt, list(rows), n=n, k=k))
    return call, call.srelu() if op == "srelu" else call.dglu()


def test_tensors_without_memory_are_named(fw: Any) -> None:
    import torch

    _call, kwargs = arguments(fw, "dglu", "bf16")
    with pytest.raises(ValueError, match="beta_tensor: .*storage"):
        gemmule.grouped_gemm_dglu_wrapper(**{**kwargs, "beta_tensor": kwargs["beta_tensor"].to_sparse()})

    def loss(a: Any) -> Any:
        return gemmule.grouped_gemm_dglu_wrapper(**{**kwargs, "a_tensor": a})["d_row_tensor"].sum()

    with pytest.raises(ValueError, match="a_tensor: .*storage"):
        torch.func.grad(loss)(kwargs["a_tensor"])


def test_no_graph_is_recorded(fw: Any) -> None:
    _call, kwargs = arguments(fw, "dglu", "bf16")
    for name in ("a_tensor", "b_tensor", "c_tensor", "prob_tensor", "alpha_tensor"):
        kwargs[name].requires_grad_(True)
    out = gemmule.grouped_gemm_dglu_wrapper(**kwargs, generate_dbias=True)
    for value in out:
        assert value is None or (not value.requires_grad and value.grad_fn is None)


@pytest.mark.parametrize(("op", "fmt", "options"), FORMATS)
def test_compiled_equals_eager(fw: Any, op: str, fmt: str, options: dict[str, Any]) -> None:
    torch = fw.torch
    torch.compiler.reset()
    names = {"dtype": getattr(torch, options["d_dtype"])} if "d_dtype" in options else {}
    changed = {**options, **({"d_dtype": names["dtype"]} if names else {})}

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(kwargs: dict[str, Any]) -> Any:
        return dict(wrapper(op)(**kwargs, **changed).items())

    for rows in ((256, 512), (512, 256)):
        _call, kwargs = arguments(fw, op, fmt, rows)
        want = wrapper(op)(**kwargs, **options)
        if op == "dglu":
            want["dprob_tensor"] = want["dprob_tensor"].clone()
            kwargs["dprob_tensor"].zero_()
        got = compiled(kwargs)
        assert list(got) == list(want.keys())
        for name, value in want.items():
            if value is None:
                assert got[name] is None
                continue
            x, y = fw.numpy(got[name]), fw.numpy(value)
            assert got[name].shape == value.shape and got[name].stride() == value.stride() and got[name].dtype == value.dtype
            if not name.startswith("sfd"):  # their padding is not written
                assert (x.view(f"u{x.dtype.itemsize}") == y.view(f"u{y.dtype.itemsize}")).all(), name


@pytest.mark.parametrize(("op", "fmt", "options"), FORMATS)
def test_opcheck(fw: Any, op: str, fmt: str, options: dict[str, Any]) -> None:
    from gemmule import _torch

    call, k = arguments(fw, op, fmt, n=128)
    d_dtype = options.get("d_dtype", "bfloat16")
    shared = ([256, 256], None, call.p.vec, False, 256, False)  # tile, cluster, ..., discrete_col_sfd
    if op == "srelu":
        operator = _torch._srelu
        args = (
            call.a, call.b, call.sfa, call.sfb, call.offsets, call.alpha, None, None, None, None, None, "k", call.norm_const,
            call.prob, "float32", options.get("c_dtype", "bfloat16"), d_dtype, "n", *shared, False, None, False, 0, False,
        )  # fmt: skip
    else:
        operator = _torch._dglu
        args = (
            call.a, call.c, call.sfa, call.offsets, call.alpha, call.beta, call.prob, True, call.b, call.sfb,
            options.get("generate_dbias", False), None, None, None, None, "k", k.get("norm_const_tensor"), "float32", d_dtype,
            "n", *shared, "dswiglu", None, 1.702, 7.0, -7.0, 4.0, 25.0, None, False, False, None, False, 0, False,
        )  # fmt: skip
    with schema_check_of_small_types(fw.torch):
        fw.torch.library.opcheck(operator, args)


@contextlib.contextmanager
def schema_check_of_small_types(torch: Any) -> Iterator[None]:
    """opcheck compares arguments before and after by allclose, which PyTorch does not have for the 4- and 8-bit types."""
    allclose = torch.allclose

    def of_bytes(x: Any, y: Any, **options: Any) -> bool:
        if x.dtype != y.dtype or x.dtype.itemsize != 1:
            return bool(allclose(x, y, **options))
        return bool((x.view(torch.uint8) == y.view(torch.uint8)).all())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "allclose", of_bytes)
        yield


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float4_e2m1fn_x2"])
def test_opcheck_notices_operators_that_break_their_schema(fw: Any, dtype: str) -> None:
    torch = fw.torch

    def changes(x: Any) -> Any:
        x.view(torch.uint8)[0] ^= 1
        return x.new_empty(1, dtype=torch.float32)

    def returns(x: Any) -> Any:
        return x

    def honest(x: Any) -> Any:
        return x.clone()

    argument = torch.arange(32, dtype=torch.uint8).view(getattr(torch, dtype))
    with schema_check_of_small_types(torch):
        for body, holds in ((changes, False), (returns, False), (honest, True)):
            operator = torch.library.custom_op(
                f"gemmule_test::{body.__name__}_{dtype}", body, mutates_args=(), schema="(Tensor x) -> Tensor"
            )
            results = torch.library.opcheck(operator, (argument,), test_utils=["test_schema"], raise_exception=False)
            assert (results["test_schema"] == "SUCCESS") == holds, (body.__name__, results)
