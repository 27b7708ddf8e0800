"""Host time of one call of each operator from Python on a cached plan, beside torch._grouped_mm's own.

    python3 python_overhead.py

A small problem, many calls without synchronisation in between: what is timed is the host, not the device.
"""

import time

import gemmule
import torch


def host_us(call, calls: int = 500) -> float:
    """Median over rounds of the microseconds a call keeps the host busy."""
    rounds = []
    for _ in range(9):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls // 10):
            call()
        rounds.append((time.perf_counter() - start) / (calls // 10) * 1e6)
        torch.cuda.synchronize()
    return sorted(rounds)[len(rounds) // 2]


def main() -> None:
    experts, rows, n, k = 4, 256, 128, 128
    m = experts * rows
    a = torch.randn(m, k, 1, device="cuda").bfloat16()
    b = torch.randn(experts, n, k, device="cuda").bfloat16()
    c = torch.randn(m, 2 * n, 1, device="cuda").bfloat16()
    offsets = torch.arange(1, experts + 1, device="cuda", dtype=torch.int32) * rows
    ones = torch.ones(experts, device="cuda")
    prob, dprob = torch.rand(m, 1, 1, device="cuda"), torch.zeros(m, 1, 1, device="cuda")
    weights = b.permute(1, 2, 0)

    def wrapper():
        gemmule.grouped_gemm_dglu_wrapper_sm100(
            a, c, None, offsets, ones, ones, prob, dprob, b_tensor=weights, act_func="dswiglu"
        )

    def grouped_mm():
        torch._grouped_mm(a[:, :, 0], b.transpose(1, 2), offs=offsets)

    def scales(length, count):
        memory = torch.full((count, length // 128, k // 128, 32, 4, 4), 127, device="cuda", dtype=torch.uint8)
        return memory.view(torch.float8_e8m0fnu).permute(3, 4, 1, 5, 2, 0)

    fp8 = torch.float8_e4m3fn
    scaled = {
        "a_tensor": a.to(fp8), "b_tensor": b.to(fp8).permute(1, 2, 0), "sfa_tensor": scales(m, 1), "sfb_tensor": scales(n, experts),
        "padded_offsets": offsets, "alpha_tensor": ones, "prob_tensor": prob, "norm_const_tensor": ones[:1], "sf_vec_size": 32,
        "d_dtype": fp8,
    }  # fmt: skip

    def srelu():
        gemmule.grouped_gemm_srelu_wrapper_sm100(**scaled)

    named = (("dglu, BF16", wrapper), ("srelu, MXFP8 in and out", srelu), ("torch._grouped_mm", grouped_mm))
    for name, call in named:
        try:
            for _ in range(20):
                call()
        except NotImplementedError as error:
            print(f"{name:24s} no kernel: {error}")
            continue
        print(f"{name:24s} {host_us(call):7.1f} us of host time a call   ({torch.cuda.get_device_name()})")


if __name__ == "__main__":
    main()
