"""Gemmule: fused grouped GEMMs for Mixture-of-Experts training.

The names, arguments, defaults and results are those of NVIDIA's documents for the operators "Grouped GEMM + sReLU" and
"Grouped GEMM + dGLU". Arrays may be PyTorch, NumPy (with ml_dtypes) or CuPy, on the CPU or a GPU; ``gemmule.jax`` has
the JAX entry points. No framework is imported until an array of it arrives.
"""

from ._classes import GroupedGemmDglu, GroupedGemmDgluSm100, GroupedGemmSrelu, GroupedGemmSreluSm100
from ._native import __version__, num_threads, set_num_threads
from ._operators import (
    TupleDict,
    grouped_gemm_dglu_wrapper,
    grouped_gemm_dglu_wrapper_sm100,
    grouped_gemm_srelu_wrapper,
    grouped_gemm_srelu_wrapper_sm100,
)

__all__ = [
    "GroupedGemmDglu",
    "GroupedGemmDgluSm100",
    "GroupedGemmSrelu",
    "GroupedGemmSreluSm100",
    "TupleDict",
    "__version__",
    "grouped_gemm_dglu_jax",
    "grouped_gemm_dglu_jax_sm100",
    "grouped_gemm_dglu_wrapper",
    "grouped_gemm_dglu_wrapper_sm100",
    "grouped_gemm_srelu_wrapper",
    "grouped_gemm_srelu_wrapper_sm100",
    "num_threads",
    "set_num_threads",
]


def __getattr__(name: str) -> object:  # importing gemmule must not import jax
    if name in ("grouped_gemm_dglu_jax_sm100", "grouped_gemm_dglu_jax"):
        from .jax import grouped_gemm_dglu_jax_sm100

        return grouped_gemm_dglu_jax_sm100
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
