"""What the operators need of an array framework: describe an array, allocate one like it, name the stream.

Nothing here imports a framework: an array's own module is already loaded when the array arrives.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from . import _native

NO_JAX = (
    "{}: JAX arrays are not supported here because the scale-factor tensors are permuted strided views, "
    "not expressible as JAX arrays; use gemmule.jax"
)

Allocator = Callable[[str, tuple[int, ...], tuple[int, ...]], Any]

CPU, CUDA = 1, 2  # DLPack device types


@lru_cache(maxsize=256)
def dtype_name(dtype: Any) -> str:
    """ "bfloat16" for "bfloat16", torch.bfloat16, numpy.dtype or ml_dtypes.bfloat16."""
    if isinstance(dtype, str):
        return dtype.removeprefix("torch.")
    text = str(dtype)
    if text.startswith("torch."):
        return text.removeprefix("torch.")
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        with contextlib.suppress(TypeError):
            return str(numpy.dtype(dtype).name)
    raise ValueError(f"dtype: {dtype!r}, expected a torch or numpy dtype or its name")


def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to one past the last."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def stream_handle(stream: Any) -> int:
    """CUstream as an integer from an int, a torch, CuPy or cuda-python stream."""
    if isinstance(stream, int):
        return stream
    for attribute in ("cuda_stream", "ptr"):
        if hasattr(stream, attribute):
            return int(getattr(stream, attribute))
    try:
        return int(stream)
    except (TypeError, ValueError):
        kind = type(stream).__name__
        raise ValueError(f"current_stream: {kind}, expected None, an integer or a torch, CuPy or cuda-python stream") from None


Scope = contextlib.AbstractContextManager[Any]


class TorchArrays:
    """PyTorch tensors; the extension reads and makes them itself."""

    native = True
    describe = None

    def __init__(self) -> None:
        self.torch: Any = sys.modules["torch"]

    def current_stream(self, device_index: int) -> int:
        handle = _native.torch_stream(device_index)
        return int(self.torch.cuda.current_stream(device_index).cuda_stream) if handle is None else handle

    def launch(self, like: Any, current_stream: Any, *pointers: Any) -> tuple[int, Scope | None]:
        """The stream, and what to enter for a stream that is not the current one: allocations inside belong to it, so that
        their memory is reused in its order, and the arrays of pointers are kept until it has read them."""
        if not like.is_cuda:
            return 0, None
        device = like.get_device()
        current = self.current_stream(device)
        stream = current if current_stream is None else stream_handle(current_stream)
        if stream == current:
            return stream, None
        torch = self.torch
        handle = torch.cuda.ExternalStream(stream, device=like.device)
        for array in pointers:
            if array is not None and array.is_cuda:
                array.record_stream(handle)
        return stream, torch.cuda.stream(handle)

    def allocator(self, like: Any) -> None:
        return None


class _NumpyLike:
    """NumPy and CuPy. Packed FP4 is uint8; the other small types are those of ml_dtypes."""

    native = False

    def __init__(self, module: Any) -> None:
        self.module = module

    def dtype(self, name: str) -> Any:
        if name == "float4_e2m1fn_x2":
            return self.module.dtype("uint8")
        if name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"):
            import ml_dtypes

            return self.module.dtype(getattr(ml_dtypes, name))
        return self.module.dtype(name)

    def address(self, array: Any) -> tuple[int, int, int]:
        return array.ctypes.data, CPU, 0

    def describe(self, array: Any) -> Any:
        if not isinstance(array, self.module.ndarray):
            raise ValueError(f"{type(array).__name__}, expected a {self.module.__name__} array like a_tensor")
        if type(array) is not self.module.ndarray and hasattr(array, "mask"):
            raise ValueError(f"{type(array).__name__}, whose mask would be ignored; expected a plain array, as filled() makes")
        size = array.dtype.itemsize
        if array.dtype.name == "float4_e2m1fn":
            raise ValueError("dtype float4_e2m1fn holds one value a byte; pass packed uint8 (two values a byte)")
        if not array.dtype.isnative:
            raise ValueError(f"dtype {array.dtype.str}, expected the byte order of this machine")
        if any(stride % size for stride in array.strides):
            raise ValueError(f"strides {array.strides} bytes, expected multiples of the item size {size}")
        address, device_type, index = self.address(array)
        strides = tuple(stride // size for stride in array.strides)
        return address, array.dtype.name, tuple(array.shape), strides, device_type, index

    def writable(self, array: Any) -> bool:
        return bool(array.flags.writeable)

    def view(self, memory: Any, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]) -> Any:
        return self.module.ndarray(shape, dtype, memory, 0, strides)

    def launch(self, like: Any, current_stream: Any, *pointers: Any) -> tuple[int, Scope | None]:
        return 0, None

    def allocator(self, like: Any) -> Allocator:
        def allocate(dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
            kind = self.dtype(dtype)
            memory = self.module.empty(_extent(shape, strides) * kind.itemsize, "uint8")
            return self.view(memory, shape, kind, tuple(kind.itemsize * s for s in strides))

        return allocate


class CupyArrays(_NumpyLike):
    def address(self, array: Any) -> tuple[int, int, int]:
        return int(array.data.ptr), CUDA, int(array.device.id)

    def writable(self, array: Any) -> bool:
        return True  # CuPy has no read-only arrays

    def view(self, memory: Any, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]) -> Any:
        return self.module.ndarray(shape, dtype, memory.data, strides)

    def launch(self, like: Any, current_stream: Any, *pointers: Any) -> tuple[int, Scope | None]:
        """Memory is allocated on the current device and belongs to the current stream."""
        cuda = self.module.cuda
        scope = contextlib.ExitStack()
        scope.enter_context(like.device)
        if current_stream is None:
            return int(cuda.get_current_stream().ptr), scope
        stream = stream_handle(current_stream)
        scope.enter_context(cuda.ExternalStream(stream))
        return stream, scope


@lru_cache(maxsize=8)
def _framework(name: str) -> Any:
    if name == "torch":
        return TorchArrays()
    if name == "numpy":
        return _NumpyLike(sys.modules["numpy"])
    return CupyArrays(sys.modules["cupy"])


def compiling() -> bool:
    """True while torch.compile traces the caller."""
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.compiler.is_compiling())


def is_jax(array: Any) -> bool:
    """True for a jax.Array or a tracer."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(array, jax.Array)


_BY_TYPE: dict[type, Any] = {}  # what framework_of() found


def framework_of(array: Any, operation: str, argument: str = "a_tensor") -> Any:
    """The framework of ``array``; ValueError for what is not an array of a known one."""
    found = _BY_TYPE.get(type(array))
    if found is None:
        found = _search(array, operation, argument)
        if len(_BY_TYPE) < 64:  # a program that keeps making classes of arrays gets slower calls, no more
            _BY_TYPE[type(array)] = found
    return found


def _search(array: Any, operation: str, argument: str) -> Any:
    if is_jax(array):
        raise ValueError(NO_JAX.format(operation))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _framework("torch")
    for name in ("numpy", "cupy"):
        module = sys.modules.get(name)
        if module is not None and isinstance(array, module.ndarray):
            return _framework(name)
    raise ValueError(f"{operation}: {argument} is {type(array).__name__}, expected a PyTorch, NumPy or CuPy array")
