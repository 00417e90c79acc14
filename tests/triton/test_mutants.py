"""Mutants of Triton's kernels: every wait and wait state removed or weakened is found, or shown to be redundant."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from luthier.objects import CodeObject
from luthier.verify.launch_plan import LaunchPlan
from mutation_study import counted

from . import test_kernels, test_matmul, test_softmax
from .conftest import Compile, Compiled

CASES = {
    "softmax": test_softmax.test_softmax,
    "layer_norm": lambda compile, target: test_kernels.test_layer_norm(compile, target, "float32"),
    "attention": test_kernels.test_causal_attention,
    "sort": lambda compile, target: test_kernels.test_sort(compile, target, "int32", False),
    "scans": test_kernels.test_scans,
    "atomics": test_kernels.test_atomics,
    "functions": test_kernels.test_functions,
    "product": lambda compile, target: test_matmul.test_product(compile, target, "fp16"),
    "bytes": lambda compile, target: test_matmul.test_product(compile, target, "i8"),
}
"""Tests of this folder, whose launches are studied."""
TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")


@dataclass
class Recorder:
    """Compiles, and keeps what is launched."""

    compile: Compile
    launches: list[tuple[CodeObject, LaunchPlan]] = field(default_factory=list)

    def __call__(self, *arguments: Any, **options: Any) -> Compiled:
        made = self.compile(*arguments, **options)
        recorder = self

        class Recorded(type(made)):  # type: ignore[misc]
            def launch(self, *given: Any, grid: tuple[int, ...] = (1,)) -> Any:
                kept = [one.copy() if isinstance(one, np.ndarray) else one for one in given]
                recorder.launches.append((made.object, self.plan(*kept, grid=grid)))
                return made.launch(*given, grid=grid)

        return Recorded(**vars(made))


@pytest.mark.rows(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_mutants(compile_kernel: Compile, name: str, target: str) -> None:
    recorder = Recorder(compile_kernel)
    CASES[name](recorder, target)
    assert recorder.launches
    for number, (object, plan) in enumerate(recorder.launches):
        counted("Triton", f"{target} {name} {number}", object, plan, f"{target} {name}")
