"""The same problem as arrays of each framework, in the documents' shapes, and back."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference import FORMATS, ML, Problem


class Numpy:
    name = "numpy"
    on_device = False

    def array(self, array: np.ndarray, dtype: str) -> Any:
        """Memory of ``array`` (codes as bytes for the small types) seen as ``dtype``."""
        if dtype == "float4_e2m1fn_x2":
            return array
        return array.view(ML[dtype]) if dtype in ML else array

    def dtype(self, name: str) -> Any:
        return np.uint8 if name == "float4_e2m1fn_x2" else ML[name]

    def numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)


class Torch:
    name = "torch"
    on_device = False

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def array(self, array: np.ndarray, dtype: str) -> Any:
        view = array.view(f"u{array.dtype.itemsize}") if dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu") else array
        return self.torch.from_numpy(view).view(getattr(self.torch, dtype))

    def dtype(self, name: str) -> Any:
        return getattr(self.torch, name)

    def numpy(self, tensor: Any) -> np.ndarray:
        name = str(tensor.dtype).removeprefix("torch.")
        if name == "float4_e2m1fn_x2":
            return np.asarray(tensor.view(self.torch.uint8).numpy())
        if name in ML and ML[name] not in (np.float16, np.float32):
            bits = self.torch.uint8 if tensor.element_size() == 1 else self.torch.int16
            return np.asarray(tensor.view(bits).numpy().view(ML[name]))
        return np.asarray(tensor.numpy())

    def address(self, tensor: Any) -> int:
        return int(tensor.data_ptr())


class CudaTorch(Torch):
    """PyTorch tensors on the current CUDA device."""

    on_device = True

    def array(self, array: np.ndarray, dtype: str) -> Any:
        return super().array(array, dtype).cuda()

    def numpy(self, tensor: Any) -> np.ndarray:
        return super().numpy(tensor.cpu())


class Cupy(Numpy):
    name = "cupy"
    on_device = True

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy

    def array(self, array: np.ndarray, dtype: str) -> Any:
        """CuPy has no kernels for the types of ml_dtypes, but takes arrays of them."""
        bits = self.cupy.asarray(array.view(f"u{array.dtype.itemsize}"))
        try:
            return bits.view(ML.get(dtype, array.dtype))
        except (TypeError, ValueError) as error:
            pytest.skip(f"CuPy {self.cupy.__version__} has no arrays of {dtype}: {error}")

    def numpy(self, array: Any) -> np.ndarray:
        return self.cupy.asnumpy(array.view(f"u{array.dtype.itemsize}")).view(array.dtype)

    def address(self, array: Any) -> int:
        return int(array.data.ptr)


def devices() -> list[str]:
    """Names for make() of the frameworks that find a CUDA device here."""
    found = []
    if torch_wanted() and importlib.util.find_spec("torch"):
        import torch

        if torch.cuda.is_available():
            found.append("cuda")
    if importlib.util.find_spec("cupy"):
        import cupy

        if cupy.cuda.is_available():
            found.append("cupy")
    return found


def torch_wanted() -> bool:
    return os.environ.get("GEMMULE_PYTHON_TORCH", "1") != "0"


def make(name: str) -> Any:
    if name == "numpy":
        return Numpy()
    if name == "cupy":
        return Cupy()
    if not torch_wanted():
        pytest.skip("GEMMULE_PYTHON_TORCH=0")
    return CudaTorch() if name == "cuda" else Torch()


def document_scales(memory: Any) -> Any:
    """(L, R, B, 32, 4, 4) -> the permuted view (32, 4, R, 4, B, L)."""
    return memory.transpose(3, 4, 1, 5, 2, 0)


def memory_scales(array: np.ndarray) -> np.ndarray:
    """The inverse, without L."""
    return array.transpose(5, 2, 4, 0, 1, 3)[0]


def scales(fw: Any, memory: np.ndarray, dtype: str) -> Any:
    array = fw.array(memory, dtype)
    return array.permute(3, 4, 1, 5, 2, 0) if fw.name == "torch" else document_scales(array)


class Call:
    """Arrays of one framework, alive as long as this object."""

    def __init__(self, fw: Any, p: Problem, weights: str = "dense") -> None:
        element, scale, _ = FORMATS[p.format]
        self.fw, self.p = fw, p
        self.a = fw.array(p.a, element)[:, :, None]
        keep = p.b if weights != "discrete_n" else np.ascontiguousarray(p.b.transpose(0, 2, 1))
        self.b_memory = fw.array(keep, element)
        permuted = self.b_memory.permute(1, 2, 0) if fw.name == "torch" else self.b_memory.transpose(1, 2, 0)
        self.b = permuted if weights == "dense" else None
        self.sfa = self.sfb = self.sfb_memory = None
        if scale is not None:
            assert p.sfa is not None and p.sfb is not None
            self.sfa = scales(fw, p.sfa, scale)
            self.sfb_memory = fw.array(p.sfb, scale)
            self.sfb = scales(fw, p.sfb, scale) if weights == "dense" else None
        self.offsets, self.alpha = fw.array(p.offsets, "int32"), fw.array(p.alpha, "float32")
        self.beta, self.prob = fw.array(p.beta, "float32"), fw.array(p.prob, "float32")[:, None, None]
        self.norm_const = fw.array(np.array([p.norm_const], np.float32), "float32")
        self.c = None if p.c is None else fw.array(p.c, np.dtype(p.c.dtype).name)[:, :, None]
        self.dprob = fw.array(np.zeros((p.m, 1, 1), np.float32), "float32")
        self.weights: dict[str, Any] = {"b_tensor": self.b, "sfb_tensor": self.sfb}
        if weights != "dense":
            self.weights = {
                "b_ptrs": self.pointers(self.b_memory),
                "sfb_ptrs": None if scale is None else self.pointers(self.sfb_memory),
                "n": p.n, "b_dtype": fw.dtype(element), "b_major": weights[-1],
            }  # fmt: skip

    def pointers(self, array: Any) -> Any:
        addresses = np.array([self.fw.address(array[g]) for g in range(self.p.experts)], np.int64)
        return self.fw.array(addresses, "int64")

    def srelu(self) -> dict[str, Any]:
        return {
            "a_tensor": self.a, "sfa_tensor": self.sfa, "padded_offsets": self.offsets, "alpha_tensor": self.alpha,
            "prob_tensor": self.prob, "norm_const_tensor": self.norm_const, "sf_vec_size": self.p.vec, **self.weights,
        }  # fmt: skip

    def dglu(self) -> dict[str, Any]:
        out = {**self.srelu(), "c_tensor": self.c, "beta_tensor": self.beta, "dprob_tensor": self.dprob}
        if self.p.format == "bf16":
            del out["norm_const_tensor"]
        return out


__all__ = ["Call", "Numpy", "Torch", "devices", "make", "memory_scales", "ml_dtypes", "scales"]
