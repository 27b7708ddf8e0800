"""The training example runs, and its loss follows the plain PyTorch layer's."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import frameworks
import pytest

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "train_moe.py"


@pytest.mark.parametrize("format", ["bf16", "mxfp8"])
def test_training_example(format: str, tmp_path: pathlib.Path) -> None:
    frameworks.make("torch")
    picture = tmp_path / "loss.png"
    command = [sys.executable, str(EXAMPLE), "--steps", "6", "--batch", "64", "--device", "cpu", "--format", format]
    command += ["--plot", str(picture)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    losses = re.search(r"plain PyTorch ([0-9.]+), Gemmule \(\w+\) ([0-9.]+)", run.stdout)
    assert losses, run.stdout
    plain, ours = map(float, losses.groups())
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n") and picture.stat().st_size > 4000
    assert plain < 5.4 and abs(plain - ours) < 0.02 * plain  # ln 256 = 5.5 without learning
