"""The extension module: options, operators, the command and the XLA handlers."""

from collections.abc import Callable
from typing import Any

__version__: str

def set_num_threads(threads: int) -> None:
    """Threads of the CPU backend, 1 to 1024. Results do not depend on it."""

def num_threads() -> int: ...
def command(argv: list[str]) -> int:
    """Runs the gemmule command; argv[0] is the program's name. Returns the exit code."""

# None: torch tensors, which the extension makes and reads itself.
Make = Callable[[str, tuple[int, ...], tuple[int, ...]], Any] | None
Describe = Callable[[Any], Any] | None
Pair = tuple[int, int]

def torch_stream(device_index: int) -> int | None:
    """PyTorch's current stream there; None when this version of PyTorch has no such interface."""

class SreluOptions:
    def __init__(
        self, acc_dtype: str, mma_tiler_mn: Pair, cluster_shape_mn: Pair | None, sf_vec_size: int, vector_f32: bool,
        m_aligned: int, discrete_col_sfd: bool, use_dynamic_sched: bool, num_experts: int | None, b_shape: Pair | None,
        b_dtype: str | None, b_major: str, deterministic: bool, sm_limit: int,
        programmatic_launch: bool, backend: str, tanh_clamp_scale: float | None,
    ) -> None: ...  # fmt: skip

class DgluOptions:
    def __init__(
        self, acc_dtype: str, mma_tiler_mn: Pair, cluster_shape_mn: Pair | None, sf_vec_size: int, vector_f32: bool,
        m_aligned: int, discrete_col_sfd: bool, use_dynamic_sched: bool, num_experts: int | None, b_shape: Pair | None,
        b_dtype: str | None, b_major: str, deterministic: bool, sm_limit: int,
        programmatic_launch: bool, backend: str, act_func: str,
        linear_offset: float | None, geglu_alpha: float, glu_clamp_max: float, glu_clamp_min: float,
        geglu_filter: str | None, situ_beta1: float, situ_beta2: float, epilogue_op: str | None,
        use_single_group_runtime_offsets: bool,
    ) -> None: ...  # fmt: skip

class _Operator:
    def check_support(self) -> None: ...
    def compile(self) -> None: ...
    def compiled(self) -> bool: ...
    def workspace_size(self, rows: int) -> int: ...
    def execute(self, tensors: tuple[Any, ...], make: Make, describe: Describe, stream: int) -> None: ...

class Srelu(_Operator):
    def __init__(self, samples: tuple[Any, ...], options: SreluOptions) -> None: ...

class Dglu(_Operator):
    def __init__(self, samples: tuple[Any, ...], options: DgluOptions) -> None: ...

def call_srelu(
    tensors: tuple[Any, ...], options: SreluOptions, c_dtype: str, d_dtype: str, cd_major: str, make: Make,
    describe: Describe, stream: int,
) -> tuple[Any, ...]: ...  # fmt: skip
def call_dglu(
    tensors: tuple[Any, ...], options: DgluOptions, d_dtype: str, cd_major: str, generate_dbias: bool, make: Make,
    describe: Describe, stream: int,
) -> tuple[Any, ...]: ...  # fmt: skip

Description = tuple[str, str, tuple[int, ...]]  # name, dtype, shape

def jax_outputs(op: str, inputs: list[Description], options: str) -> list[Description]: ...
def jax_handlers() -> dict[str, Any]:
    """The XLA FFI handler (a capsule) of every platform."""
