"""BF16 grouped_gemm_dglu on a CUDA device through PyTorch and JAX, compared with the CPU. Skipped where there is none."""

from __future__ import annotations

from typing import Any

import frameworks
import gemmule
import numpy as np
import pytest
import reference as ref
from frameworks import Call

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("NO GPU: the CUDA tests of the Python package did not run", allow_module_level=True)

ROWS = [256, 0, 768, 512]


def problem(**extents: int) -> tuple[Call, dict[str, Any], dict[str, Any]]:
    """The call, its arguments on the host, and the same on the current CUDA device."""
    call = Call(frameworks.make("torch"), ref.make_problem("dglu", "bf16", ROWS, n=extents.get("n", 160), k=extents.get("k", 136)))
    host = call.dglu()
    return call, host, {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in host.items()}


def close(got: Any, want: Any) -> None:
    if want is None:
        assert got is None
        return
    g, w = got.detach().float().cpu(), want.float()
    assert torch.isfinite(g).all()
    assert (g - w).norm() <= 4e-3 * w.norm(), float((g - w).norm() / w.norm())


@pytest.mark.parametrize("options", [{}, {"generate_dbias": True}, {"act_func": "dgeglu"}, {"d_dtype": "float32"},
                                     {"deterministic": True, "use_dynamic_sched": True}])  # fmt: skip
def test_agrees_with_the_cpu(options: dict[str, Any]) -> None:
    _call, host, device = problem()
    want = gemmule.grouped_gemm_dglu_wrapper(**host, **options)
    got = gemmule.grouped_gemm_dglu_wrapper(**device, **options)
    torch.cuda.synchronize()
    for key, value in want.items():
        close(got[key], value)
        assert value is None or (got[key].is_cuda and got[key].stride() == value.stride())


@pytest.mark.parametrize("major", ["k", "n"])
def test_discrete_weights(major: str) -> None:
    _call, host, device = problem()
    want = gemmule.grouped_gemm_dglu_wrapper(**host)
    b = device.pop("b_tensor")
    del device["sfb_tensor"]
    experts = [(b[:, :, g] if major == "k" else b[:, :, g].t()).contiguous() for g in range(b.shape[2])]
    pointers = torch.tensor([e.data_ptr() for e in experts], dtype=torch.int64, device="cuda")
    got = gemmule.grouped_gemm_dglu_wrapper(
        **device, b_ptrs=pointers, sfb_ptrs=None, n=b.shape[0], b_dtype=torch.bfloat16, b_major=major
    )
    close(got["d_row_tensor"], want["d_row_tensor"])


def test_streams_and_graphs() -> None:
    _call, host, device = problem()
    want = gemmule.grouped_gemm_dglu_wrapper(**host)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    for current in (stream, stream.cuda_stream):
        device["dprob_tensor"].zero_()
        torch.cuda.synchronize()
        got = gemmule.grouped_gemm_dglu_wrapper(**device, current_stream=current)
        stream.synchronize()
        close(got["d_row_tensor"], want["d_row_tensor"])
    device["dprob_tensor"].zero_()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = gemmule.grouped_gemm_dglu_wrapper(**device)
    for _ in range(2):
        device["dprob_tensor"].zero_()
        got["d_row_tensor"].fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        close(got["d_row_tensor"], want["d_row_tensor"])
        close(device["dprob_tensor"], want["dprob_tensor"])
    device["padded_offsets"].fill_(0)  # offsets are read by the kernel: no expert has rows now
    got["d_row_tensor"].fill_(7.0)
    graph.replay()
    torch.cuda.synchronize()
    assert (got["d_row_tensor"] == 7.0).all()


def test_compiled_and_opcheck() -> None:
    _call, host, device = problem()
    want = gemmule.grouped_gemm_dglu_wrapper(**host)

    @torch.compile(fullgraph=True)
    def step(kwargs: dict[str, Any]) -> Any:
        return gemmule.grouped_gemm_dglu_wrapper(**kwargs)["d_row_tensor"] * 2.0

    close(step(device), want["d_row_tensor"].float() * 2.0)


def test_class_and_block_scaled_refusal() -> None:
    _call, host, device = problem()
    want = gemmule.grouped_gemm_dglu_wrapper(**host)
    m, n = device["a_tensor"].shape[0], device["b_tensor"].shape[0]
    d = torch.empty_strided((m, 2 * n, 1), (2 * n, 1, 2 * n * m), dtype=torch.bfloat16, device="cuda")
    names = ("a", "c", "padded_offsets", "alpha", "beta", "prob", "dprob", "b")
    tensors = {name: device[name if name == "padded_offsets" else f"{name}_tensor"] for name in names}
    op = gemmule.GroupedGemmDgluSm100(
        **{f"sample_{k}": v for k, v in tensors.items()}, sample_d_row=d, sample_d_col=None, sample_sfa=None
    )
    assert op.check_support()
    op.compile()
    op.execute(
        **{k if k == "padded_offsets" else f"{k}_tensor": v for k, v in tensors.items()},
        d_row_tensor=d, d_col_tensor=None, sfa_tensor=None,
    )  # fmt: skip
    torch.cuda.synchronize()
    close(d, want["d_row_tensor"])
    scaled = Call(frameworks.make("torch"), ref.make_problem("srelu", "mxfp8", ROWS, n=128, k=128)).srelu()
    on_device = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in scaled.items()}
    if torch.cuda.get_device_capability()[0] == 9:
        with pytest.raises(NotImplementedError):
            gemmule.grouped_gemm_srelu_wrapper(**on_device)


def test_jax_on_cuda() -> None:
    jax = pytest.importorskip("jax")
    if not any(d.platform == "gpu" for d in jax.devices()):
        pytest.skip("NO CUDA DEVICE in JAX: jitted calls on CUDA did not run")
    from gemmule import jax as gj

    p = ref.make_problem("dglu", "bf16", ROWS, n=160, k=136)
    host = Call(frameworks.Numpy(), p).dglu()
    want = gemmule.grouped_gemm_dglu_wrapper(**host, generate_dbias=True)
    args = [jax.numpy.asarray(x) for x in (p.a, p.b, p.c)] + [None, None]
    args += [jax.numpy.asarray(x) for x in (p.offsets, p.alpha, p.beta, p.prob)]
    got = jax.jit(lambda *a: gj.grouped_gemm_dglu(*a, generate_dbias=True))(*args)
    for key in ("d_row", "dprob", "dbias"):
        g = np.asarray(got[key], np.float32).ravel()
        w = np.asarray(want[f"{key}_tensor"], np.float32).ravel()
        assert np.linalg.norm(g - w) <= 4e-3 * np.linalg.norm(w), key
