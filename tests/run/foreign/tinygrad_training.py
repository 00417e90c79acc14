"""Run under `luthier run`: three training steps by tinygrad's HIP back end, compared with the same in NumPy.

tinygrad wants HIP 6, and its library in HIP_PATH. On HIP 5 it gets its device's name from here, and compiles by the
clang that is given; how it allocates, copies, loads and launches is its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

if sys.argv[1:]:
    target, library, *clang = sys.argv[1:]
    os.environ["HIP_PATH"] = library

import numpy as np
from tinygrad import Tensor
from tinygrad.helpers import TRAINING
from tinygrad.nn.optim import SGD


def properties(state: Any, number: int) -> int:
    """hipGetDeviceProperties as far as tinygrad looks at it."""
    state.gcnArchName = target.encode()
    return 0


def compile_source(self: Any, source: str) -> bytes:
    """The code object of HIP source."""
    with tempfile.TemporaryDirectory() as folder:
        path, output = Path(folder) / "source.hip", Path(folder) / "object"
        path.write_text(source)
        subprocess.run([*clang, "-O2", "-w", str(path), "-o", str(output)], check=True)
        return output.read_bytes()


if sys.argv[1:]:
    from tinygrad.runtime.autogen import hip
    from tinygrad.runtime.support.compiler_amd import HIPCompiler

    hip.hipGetDeviceProperties = properties
    HIPCompiler.compile = compile_source

STEPS, RATE, BATCH = 3, 0.1, 32
rng = np.random.default_rng(0)
inputs, labels = rng.standard_normal((BATCH, 20)).astype(np.float32), rng.integers(0, 5, BATCH)
first, second = (rng.standard_normal(shape).astype(np.float32) * 0.3 for shape in ((20, 16), (16, 5)))


def by_tinygrad() -> tuple[list[float], Any, Any]:
    """Losses, and the weights afterwards."""
    w1, w2 = Tensor(first.copy()), Tensor(second.copy())
    optimizer, losses = SGD([w1, w2], lr=RATE), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = (Tensor(inputs) @ w1).relu().matmul(w2).sparse_categorical_crossentropy(Tensor(labels))
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    return losses, w1.numpy(), w2.numpy()


def by_numpy() -> tuple[list[float], Any, Any]:
    """The same, by the formulas."""
    w1, w2, losses = first.astype(np.float64), second.astype(np.float64), []
    for _ in range(STEPS):
        hidden = inputs @ w1
        active = np.maximum(hidden, 0)
        scores = np.exp(active @ w2)
        gradient = scores / scores.sum(axis=1, keepdims=True)
        losses.append(-np.log(gradient[range(BATCH), labels]).mean())
        gradient[range(BATCH), labels] -= 1
        gradient /= BATCH
        w1, w2 = w1 - RATE * inputs.T @ (gradient @ w2.T * (hidden > 0)), w2 - RATE * active.T @ gradient
    return losses, w1, w2


TRAINING.value = 1
for actual, wanted in zip(by_tinygrad(), by_numpy(), strict=True):
    assert np.allclose(actual, wanted, atol=1e-5), (actual, wanted)
print("trained")
