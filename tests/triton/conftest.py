"""Kernels compiled by Triton without a GPU, and launched on the emulated device."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from effort import EVERYTHING
from luthier.devices import open_device
from luthier.emulator import LaunchStats
from luthier.objects import CodeObject, load_object
from luthier.tool import Tool
from luthier.verify import KernelVerdict, verify_kernel
from luthier.verify.launch_plan import LaunchPlan
from rocm_stacks import pytest_runtest_setup  # noqa: F401 - pytest finds it here

TYPES = {
    "float32": "fp32",
    "float16": "fp16",
    "float64": "fp64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
}


TARGETS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1201")
OTHERS = ("gfx906", "gfx908", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1200")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with a `target` on all of `TARGETS` and, without a tool, on two of `OTHERS` (`make test-all`: on
    all)."""
    names = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    given = [name for some in names for name in (some.split(",") if isinstance(some, str) else some)]
    if "target" not in metafunc.fixturenames or "target" in given:
        return
    sources: tuple[str, ...] = ()
    if not {"counter", "make_module"} & set(metafunc.fixturenames):
        first = zlib.crc32(metafunc.function.__name__.encode())
        sources = OTHERS if EVERYTHING else tuple(OTHERS[(first + 3 * k) % 8] for k in (0, 1))
    metafunc.parametrize("target", [*TARGETS, *sources])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/triton/" in item.path.as_posix():
            item.add_marker(pytest.mark.triton)


@dataclass(frozen=True)
class Compiled:
    """A kernel that Triton compiled for one target."""

    object: CodeObject
    name: str
    block: tuple[int, int, int]
    shared: int
    """Bytes of LDS, all of them dynamic."""
    scratch: int
    """Pointers that Triton adds after the kernel's own arguments."""

    def launch(self, *arguments: Any, grid: tuple[int, ...] = (1,)) -> LaunchStats:
        """Run on the emulated device; arrays are changed in place."""
        device = open_device(f"emu:{self.object.target.target.name}")
        kernel = device.load(self.object).kernel(self.name)
        return kernel.launch(*arguments, *[0] * self.scratch, grid=grid, block=self.block, dynamic_lds=self.dynamic_lds)

    @property
    def dynamic_lds(self) -> int:
        return max(0, self.shared - self.object.kernels[self.name].group_segment_fixed_size)

    def verify(self, tool: Tool, *arguments: Any, grid: tuple[int, ...] = (1,)) -> KernelVerdict:
        """Original and instrumented kernel side by side."""
        return verify_kernel(self.object, tool, self.plan(*arguments, grid=grid))

    def plan(self, *arguments: Any, grid: tuple[int, ...] = (1,)) -> LaunchPlan:
        """A launch that can be repeated."""
        return ArrayPlan(self.name, (*grid, 1, 1)[:3], self.block, (*arguments, *[0] * self.scratch), self.dynamic_lds)


class ArrayPlan(LaunchPlan):
    """A launch whose arguments are the arrays themselves."""

    def materialise(self) -> list[Any]:
        return [value.copy() if isinstance(value, np.ndarray) else value for value in self.arguments]


Compile = Callable[..., Compiled]


@pytest.fixture(scope="session")
def compile_kernel(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """`compile_kernel(function, target, arguments, constants, **options)`.

    `arguments` are those of the launch: an array says the type of a pointer (``(array, "bf16")`` another one of its
    size), a number is a 32-bit integer or float. Pointers are declared to reach less than 2 GiB, as they are for small
    tensors, which makes buffer instructions, unless `small_pointers` is false. `options` are Triton's: num_warps,
    num_stages, matrix_instr_nonkdim.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    patch = pytest.MonkeyPatch()
    patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton-cache")))

    def compile(
        function: Any,
        target: str,
        arguments: list[Any],
        constants: Mapping[str, Any] | None = None,
        *,
        small_pointers: bool = True,
        **options: Any,
    ) -> Compiled:
        constants = dict(constants or {})
        names = [name for name in function.arg_names if name not in constants]
        signature: dict[str, str] = {}
        attributes: dict[tuple[int, ...], list[list[Any]]] = {}
        for name, value in zip(names, arguments, strict=True):
            position = (function.arg_names.index(name),)
            if isinstance(value, (tuple, np.ndarray)):
                signature[name] = f"*{value[1] if isinstance(value, tuple) else TYPES[str(value.dtype)]}"
                attributes[position] = [["tt.divisibility", 16]]
                if small_pointers:
                    attributes[position].append(["tt.pointer_range", 32])
            else:
                signature[name] = "fp32" if isinstance(value, float) else "i32"
                if isinstance(value, int) and value % 16 == 0:
                    attributes[position] = [["tt.divisibility", 16]]
        signature = {name: signature.get(name, "constexpr") for name in function.arg_names}
        wave_size = 32 if target.startswith(("gfx10", "gfx11", "gfx12")) else 64
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compiled = triton.compile(
                ASTSource(function, signature, constants, attributes),
                target=GPUTarget("hip", target, wave_size),
                options=options,
            )
        object = load_object(compiled.asm["hsaco"])
        name = compiled.metadata.name
        kernel = object.kernels[name]
        explicit = [argument for argument in kernel.arguments if not argument.hidden]
        block = (compiled.metadata.num_warps * wave_size, 1, 1)
        # All code that Triton emits is executed, also code that these inputs do not reach.
        handle = open_device(f"emu:{target}", threads=1).load(object).kernel(name)
        assert handle.refused() == {}
        return Compiled(object, name, block, compiled.metadata.shared, len(explicit) - len(arguments))

    yield compile
    patch.undo()
