"""Both operators on a CUDA device through PyTorch and JAX, compared with the CPU. Skipped where there is none; a problem that
the device has no kernel for is skipped by name. test_operators.py also runs there, against the float64 reference."""

from __future__ import annotations

import concurrent.futures
import threading
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


SCALED = [
    ("srelu", "mxfp8", {"d_dtype": "float8_e4m3fn"}),
    ("srelu", "nvfp4", {"c_dtype": "float16"}),
    ("dglu", "mxfp8", {"d_dtype": "float8_e4m3fn", "act_func": "dgeglu", "generate_dbias": True}),
    ("dglu", "mxfp4", {"act_func": "dsituglu"}),
]


def scaled_problem(op: str, fmt: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The wrapper, its arguments on the host, and the same on the device."""
    call = Call(frameworks.make("torch"), ref.make_problem(op, fmt, ROWS, n=160, k=256))
    host = call.srelu() if op == "srelu" else call.dglu()
    wrapper = gemmule.grouped_gemm_srelu_wrapper if op == "srelu" else gemmule.grouped_gemm_dglu_wrapper
    return wrapper, host, {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in host.items()}


def on_device(call: Any) -> Any:
    """``call()``, or a skip when the device has no kernel for it."""
    try:
        return call()
    except NotImplementedError as error:
        if "no kernel takes this problem" not in str(error):
            raise
        pytest.skip(f"NO KERNEL: {error}")


def close_scaled(got: Any, want: Any) -> None:
    """Every output; codes are compared as they are, of scale codes only those that belong to a value can differ by one."""
    for key, value in want.items():
        if value is None:
            assert got[key] is None
        elif key.startswith("sfd"):
            g, w = (x.view(torch.uint8).cpu().to(torch.int32) for x in (got[key], value))
            used = w != 0  # the padding of w is 0
            assert ((g - w).abs()[used] <= 1).float().mean() >= 0.999
        elif value.dtype.itemsize == 1 and value.dtype != torch.uint8:
            g, w = got[key].float().cpu(), value.float()
            assert (g != w).float().mean() < 0.01  # a code at the edge of its rounding, or a block whose scale is one off
        else:
            close(got[key], value)


def close(got: Any, want: Any) -> None:
    if want is None:
        assert got is None
        return
    g, w = got.detach().float().cpu(), want.float()
    finite = torch.isfinite(w)  # amax of an expert without rows is -inf
    assert (torch.isfinite(g) == finite).all()
    g, w = g[finite], w[finite]
    assert (g - w).norm() <= 4e-3 * w.norm(), float((g - w).norm() / w.norm())


@pytest.mark.parametrize("options", [{}, {"generate_dbias": True}, {"act_func": "dgeglu"}, {"d_dtype": "float32"},
                                     {"deterministic": True, "use_dynamic_sched": True}, {"sm_limit": 8},
                                     {"programmatic_launch": True, "act_func": "dgeglu", "geglu_filter": "mask"}])  # fmt: skip
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


@pytest.mark.parametrize(("op", "fmt", "options"), SCALED)
def test_block_scaled(op: str, fmt: str, options: dict[str, Any]) -> None:
    wrapper, host, device = scaled_problem(op, fmt)
    want = wrapper(**host, **options)
    got = on_device(lambda: wrapper(**device, **options))
    torch.cuda.synchronize()
    close_scaled(got, want)
    assert all(value is None or got[key].stride() == value.stride() for key, value in want.items())

    if op == "dglu":
        device["dprob_tensor"].zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = wrapper(**device, **options)
    graph.replay()
    torch.cuda.synchronize()
    close_scaled(got, want)

    if op == "dglu":
        device["dprob_tensor"].zero_()
    compiled = torch.compile(lambda kwargs: dict(wrapper(**kwargs).items()), fullgraph=True, backend="aot_eager")
    close_scaled(compiled({**device, **options}), want)


def test_temporaries_follow_the_launch_stream() -> None:
    """The stream is kept busy, so that the call has not begun when its temporaries have been given back and others want memory."""
    _call, host, device = problem()
    b = device.pop("b_tensor")
    del device["sfb_tensor"]
    experts = [b[:, :, g].contiguous() for g in range(b.shape[2])]
    options = {"deterministic": True, "use_dynamic_sched": True, "generate_dbias": True}
    want = gemmule.grouped_gemm_dglu_wrapper(**host, **options)
    addresses = [e.data_ptr() for e in experts]

    def call(stream: Any) -> Any:
        pointers = torch.tensor(addresses, dtype=torch.int64, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(100_000_000)
        return gemmule.grouped_gemm_dglu_wrapper(
            **device, b_ptrs=pointers, sfb_ptrs=None, n=b.shape[0], b_dtype=torch.bfloat16, current_stream=stream, **options
        )  # the pointers and the scratch memory die here

    call(torch.cuda.current_stream())  # compiled before anything is measured
    for _ in range(3):
        stream = torch.cuda.Stream()
        device["dprob_tensor"].zero_()
        got = call(stream)
        junk = [torch.full((size,), 0x7F, dtype=torch.uint8, device="cuda") for size in (64, 512, 4096, 65536, 1 << 20, 1 << 22)]
        torch.cuda.synchronize()
        for key in ("d_row_tensor", "dprob_tensor", "dbias_tensor"):
            close(got[key], want[key])
        del junk


# ------------------------------------------------------------------------------------------------------- two devices

two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="ONE GPU: the tests of two devices did not run")
FORMS = [("dglu", "bf16"), ("srelu", "mxfp8"), ("srelu", "nvfp4"), ("dglu", "mxfp8")]


def form(op: str, fmt: str) -> tuple[Any, dict[str, Any]]:
    """The wrapper and its arguments on the host; dGLU adds to a dprob of its own each time."""
    call = Call(frameworks.make("torch"), ref.make_problem(op, fmt, ROWS, n=160, k=256))
    wrapper = gemmule.grouped_gemm_srelu_wrapper if op == "srelu" else gemmule.grouped_gemm_dglu_wrapper
    arguments = call.srelu() if op == "srelu" else call.dglu()
    if (op, fmt) == ("dglu", "mxfp8"):
        arguments["d_dtype"] = "float8_e4m3fn"  # FP8 operands allow no other D than FP8
    return wrapper, arguments


def moved(arguments: dict[str, Any], device: str) -> dict[str, Any]:
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in arguments.items()}


def expect_on(got: Any, want: Any, device: str) -> None:
    torch.cuda.synchronize(device)
    assert all(value is None or got[key].device == torch.device(device) for key, value in want.items())
    close_scaled(got, want)


@two_devices
@pytest.mark.parametrize(("op", "fmt"), FORMS)
@pytest.mark.parametrize(("current", "device"), [(0, "cuda:1"), (1, "cuda:0"), (1, "cuda:1")])
def test_the_tensors_device_is_used_whichever_is_current(op: str, fmt: str, current: int, device: str) -> None:
    wrapper, host = form(op, fmt)
    there = moved(host, device)
    want = wrapper(**host)
    with torch.cuda.device(current):
        got = on_device(lambda: wrapper(**there))
        assert torch.cuda.current_device() == current
    expect_on(got, want, device)


@two_devices
@pytest.mark.parametrize(("op", "fmt"), FORMS)
def test_both_devices_in_turn_and_at_once(op: str, fmt: str) -> None:
    wrapper, host = form(op, fmt)
    copies = [moved(host, "cuda:0"), moved(host, "cuda:1")]
    want = wrapper(**host)
    results: list[Any] = [on_device(lambda copy=copy: wrapper(**copy)) for copy in copies]  # nothing waits in between
    for index, got in enumerate(results):
        expect_on(got, want, f"cuda:{index}")

    start = threading.Barrier(2)

    def work(index: int) -> None:
        with torch.cuda.device(1 - index):
            start.wait()
            for _ in range(10):
                if op == "dglu":
                    copies[index]["dprob_tensor"].zero_()
                results[index] = wrapper(**copies[index])
            assert torch.cuda.current_device() == 1 - index

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(work, index) for index in (0, 1)]:
            done.result()
    for index, got in enumerate(results):
        expect_on(got, want, f"cuda:{index}")


@two_devices
def test_discrete_weights_and_a_stream_of_the_other_device() -> None:
    wrapper, host = form("dglu", "bf16")
    there = moved(host, "cuda:1")
    want = wrapper(**host)
    b = there.pop("b_tensor")
    del there["sfb_tensor"]
    experts = [b[:, :, g].contiguous() for g in range(b.shape[2])]
    pointers = torch.tensor([e.data_ptr() for e in experts], dtype=torch.int64, device="cuda:1")
    stream = torch.cuda.Stream("cuda:1")
    torch.cuda.synchronize("cuda:1")
    assert torch.cuda.current_device() == 0
    got = wrapper(**there, b_ptrs=pointers, sfb_ptrs=None, n=b.shape[0], b_dtype=torch.bfloat16, current_stream=stream,
                  use_dynamic_sched=True)  # fmt: skip
    assert torch.cuda.current_device() == 0 and torch.cuda.current_stream(1) != stream
    stream.synchronize()
    expect_on(got, want, "cuda:1")


@two_devices
def test_tensors_on_different_devices_are_refused() -> None:
    wrapper, host = form("dglu", "bf16")
    there = moved(host, "cuda:1")
    there["c_tensor"] = host["c_tensor"].to("cuda:0")
    with pytest.raises(ValueError, match="c_tensor.*cuda:0"):
        wrapper(**there)


@two_devices
def test_compiled_and_captured_on_the_other_device() -> None:
    wrapper, host = form("dglu", "bf16")
    there = moved(host, "cuda:1")
    want = wrapper(**host)
    torch.compiler.reset()
    compiled = torch.compile(lambda kwargs: dict(wrapper(**kwargs).items()), fullgraph=True, backend="aot_eager")
    expect_on(compiled(there), want, "cuda:1")
    there["dprob_tensor"].zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(1), torch.cuda.graph(graph, stream=torch.cuda.Stream("cuda:1")):  # its default may be of cuda:0
        got = wrapper(**there)
    graph.replay()
    expect_on(got, want, "cuda:1")


@two_devices
def test_cupy_on_the_other_device() -> None:
    cupy = pytest.importorskip("cupy")
    p = ref.make_problem("dglu", "bf16", ROWS, n=160, k=136)
    want = gemmule.grouped_gemm_dglu_wrapper(**Call(frameworks.make("numpy"), p).dglu())["d_row_tensor"]
    with cupy.cuda.Device(1):
        arguments = Call(frameworks.make("cupy"), p).dglu()
    got = gemmule.grouped_gemm_dglu_wrapper(**arguments)
    assert cupy.cuda.Device().id == 0 and got["d_row_tensor"].device.id == 1
    with cupy.cuda.Device(1) as device:
        device.synchronize()
        bits = cupy.asnumpy(got["d_row_tensor"].view("u2"))
    g, w = bits.view(want.dtype).astype(np.float32), want.astype(np.float32)
    assert np.linalg.norm(g - w) <= 4e-3 * np.linalg.norm(w)


def test_compiled() -> None:
    _call, host, device = problem()
    want = gemmule.grouped_gemm_dglu_wrapper(**host)

    @torch.compile(fullgraph=True)
    def step(kwargs: dict[str, Any]) -> Any:
        return gemmule.grouped_gemm_dglu_wrapper(**kwargs)["d_row_tensor"] * 2.0

    close(step(device), want["d_row_tensor"].float() * 2.0)


@pytest.mark.parametrize("name", ["cuda:0", pytest.param("cuda:1", marks=two_devices)])
def test_class(name: str) -> None:
    """The current device is 0."""
    _call, host, _ = problem()
    want = gemmule.grouped_gemm_dglu_wrapper(**host)
    device = moved(host, name)
    device["dprob_tensor"].zero_()
    m, n = device["a_tensor"].shape[0], device["b_tensor"].shape[0]
    d = torch.empty_strided((m, 2 * n, 1), (2 * n, 1, 2 * n * m), dtype=torch.bfloat16, device=name)
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
    assert torch.cuda.current_device() == 0
    torch.cuda.synchronize(name)
    close(d, want["d_row_tensor"])
    close(device["dprob_tensor"], want["dprob_tensor"])


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
