#!/usr/bin/env python3
"""Host time of one wrapper call on a compiled plan, beside torch._grouped_mm's own: what Python, the checks, the allocation of
the outputs and the launch cost. The experts have no rows, so that there is nothing to compute.

    python bench/host_overhead.py [--device cuda]
"""

from __future__ import annotations

import argparse
import timeit
from collections.abc import Callable
from typing import Any

import gemmule
import torch

EXPERTS, N, K = 8, 256, 256


def scales(rows: int, experts: int, device: str) -> torch.Tensor:
    memory = torch.zeros(experts, rows // 128, K // 128, 32, 4, 4, dtype=torch.uint8, device=device)
    return memory.view(torch.float8_e8m0fnu).permute(3, 4, 1, 5, 2, 0)


def calls(device: str, rows: int) -> dict[str, Callable[[], Any]]:
    def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(*shape, device=device).to(dtype)

    offsets, ones, prob = zeros(EXPERTS, dtype=torch.int32), torch.ones(EXPERTS, device=device), zeros(rows, 1, 1)
    fp8, bf16 = torch.float8_e4m3fn, torch.bfloat16
    srelu = {
        "a_tensor": zeros(rows, K, 1, dtype=fp8), "b_tensor": zeros(EXPERTS, N, K, dtype=fp8).permute(1, 2, 0),
        "sfa_tensor": scales(rows, 1, device), "sfb_tensor": scales(N, EXPERTS, device), "padded_offsets": offsets,
        "alpha_tensor": ones, "prob_tensor": prob, "sf_vec_size": 32,
    }  # fmt: skip
    dglu = {
        "a_tensor": zeros(rows, K, 1, dtype=bf16), "b_tensor": zeros(EXPERTS, N, K, dtype=bf16).permute(1, 2, 0),
        "c_tensor": zeros(rows, 2 * N, 1, dtype=bf16), "sfa_tensor": None, "padded_offsets": offsets, "alpha_tensor": ones,
        "beta_tensor": ones, "prob_tensor": prob, "dprob_tensor": zeros(rows, 1, 1),
    }  # fmt: skip
    x, w = zeros(rows, K, dtype=bf16), zeros(EXPERTS, K, N, dtype=bf16)
    return {
        "grouped_gemm_srelu_wrapper, MXFP8": lambda: gemmule.grouped_gemm_srelu_wrapper(**srelu),
        "grouped_gemm_dglu_wrapper, BF16": lambda: gemmule.grouped_gemm_dglu_wrapper(**dglu),
        "torch._grouped_mm, BF16": lambda: torch._grouped_mm(x, w, offs=offsets),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device

    def wait() -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    for name, call in calls(device, rows=1024).items():
        call()
        best = float("inf")
        for _ in range(20):  # few enough calls that the queue of the device does not fill up
            wait()
            best = min(best, timeit.timeit(call, number=100) / 100)
        wait()
        print(f"{name:<36} {best * 1e6:6.1f} us per call on {device}")


if __name__ == "__main__":
    main()
