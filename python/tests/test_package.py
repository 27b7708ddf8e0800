"""What importing costs, the command, and the type information."""

from __future__ import annotations

import subprocess
import sys
from importlib.resources import files


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120)


def test_import_loads_no_framework() -> None:
    code = "import sys, gemmule; print([m for m in ('torch', 'jax', 'numpy', 'ml_dtypes', 'cupy') if m in sys.modules])"
    assert python("-c", code).stdout.strip() == "[]"


def test_python_m_gemmule_is_the_command(tmp_path: object) -> None:
    assert "cpu" in python("-m", "gemmule", "info").stdout
    wrong = python("-m", "gemmule", "run", "nothing.safetensors", "-o", f"{tmp_path}/out.safetensors")
    assert wrong.returncode == 2 and "nothing.safetensors" in wrong.stderr


def test_type_information_is_shipped() -> None:
    assert files("gemmule").joinpath("py.typed").is_file()
    assert files("gemmule").joinpath("_native.pyi").is_file()


def test_extension_needs_neither_blas_nor_cuda() -> None:
    import gemmule._native as native

    libraries = subprocess.run(["ldd", native.__file__], capture_output=True, text=True, check=True).stdout
    assert "libstdc++" in libraries
    assert not any(name in libraries for name in ("blas", "cuda", "nvrtc", "python"))
