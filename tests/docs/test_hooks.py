"""docs/hooks.md: its examples form one tool, and the page's statements hold on the emulated device."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from luthier import InstrumentationTask, ToolModule, immediate, load_object, open_device, patch_object, reg
from luthier.patch import PatchedObject

from luthier_build.compile import compile_device
from luthier_build.workspace import build_folder

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/hooks.md"
TARGET = "gfx90a"
N = 1000
EXAMPLES = re.findall(r"```cpp\n(.*?)```\n\n```python\n(.*?)```\n(.*?)(?=\n##|\Z)", PAGE.read_text(), re.DOTALL)
NAMES = [re.search(r"DEVICE\.(\w+)", python)[1] for _, python, _ in EXAMPLES]  # type: ignore[index]


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> ToolModule:
    """The page's C++, in one module."""
    folder = tmp_path_factory.mktemp("hooks")
    marks = "#include <hip/hip_runtime.h>\n#include <luthier/luthier.h>\nMARK_LUTHIER_DEVICE_MODULE\n"
    (folder / "device.hip").write_text(marks + "".join(cpp for cpp, _, _ in EXAMPLES))
    with build_folder(folder / "build") as held:
        built = compile_device([folder / "device.hip"], [TARGET], folder=held, report=lambda line: None)
    return ToolModule.load(built.bundle)


@pytest.fixture(scope="module")
def application(app: Callable[..., Path]) -> Path:
    return app("vector_add", TARGET)


def under(python: str, device: ToolModule, application: Path) -> tuple[PatchedObject, Any, np.ndarray[Any, Any]]:
    """The patched object, loaded, and what the kernel has stored where -1 was before."""

    def instrument(task: InstrumentationTask) -> None:
        (store,) = (one for one in task.instructions if one.mnemonic == "global_store_dword")
        names = {"task": task, "DEVICE": device, "store": store, "immediate": immediate, "reg": reg}
        exec(compile(python, PAGE.name, "exec"), names)

    patched = patch_object(load_object(application), instrument, strict=True, hoist=False)
    module = open_device(f"emu:{TARGET}").load(patched.data)
    a, b, c = np.arange(N, dtype=np.float32), np.zeros(N, np.float32), np.full(N, -1, np.float32)
    module.kernel("vector_add").launch(a, b, c, N, grid=5, block=256)
    return patched, module, c


def test_every_block_of_the_page_is_an_example() -> None:
    assert PAGE.read_text().count("```") == 4 * len(EXAMPLES)
    assert len(set(NAMES)) == len(NAMES) > 10


@pytest.mark.rows(5)
@pytest.mark.parametrize(
    ("name", "python", "comment"), [(name, *one[1:]) for name, one in zip(NAMES, EXAMPLES, strict=True)], ids=NAMES
)
def test_what_an_example_says(device: ToolModule, application: Path, name: str, python: str, comment: str) -> None:
    patched, module, c = under(python, device, application)
    values = re.findall(r"`(\w+)(?:\[(\d+)\])?` is then (\d+)\.", comment)
    for variable, at, value in values:
        types = re.findall(rf"__device__ (\w+)[^;]*\b{variable}\b", "".join(cpp for cpp, _, _ in EXAMPLES))
        kind = {"float": np.float32, "uint32_t": np.uint32, "uint64_t": np.uint64}[types[0]]
        assert module.variable(variable).read(kind)[int(at or 0)] == int(value), variable
    if name in ("put", "leave_eight"):
        assert np.array_equal(c == 7, np.full(N, True)) == (name == "put")
        stored = re.search(r"then stores (\d+) numbers", comment)
        assert stored is None or np.count_nonzero(c >= 0) == int(stored[1])
    else:
        assert values
        assert np.array_equal(c, np.arange(N))
    if name == "passes":
        entries, _, blocks, edges = module.variable("passed").read(np.uint64)[:4].tolist()
        assert blocks == entries + edges
    if name == "touch":
        assert 0 < module.variable("lowest").read(int) < 1 << 48
    (added,) = (kernel.added_instructions for kernel in patched.report.kernels)
    for about in re.findall(r"Adds about (\d+) instructions", comment):
        assert 0.7 * int(about) <= added <= 1.3 * int(about)
