"""Kernels assembled from one line, for static checks."""

from __future__ import annotations

import functools
from typing import Any

from assembly import assembled, function, kernel_text
from luthier.module import ToolModule
from luthier.objects import CodeObject
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask

NUMBERS = {"sgprs", "vgprs", "lds", "private", "workgroup"}
HIDDEN = (
    "      - {.size: 4, .offset: 8, .value_kind: hidden_block_count_x}\n",
    "      - {.size: 4, .offset: 128, .value_kind: hidden_dynamic_lds_size}\n",
)
"""Hidden arguments, in YAML."""


@functools.cache
def kernel(target: str, body: str, agprs: int = 0, wave_size: int | None = None, **numbers: int) -> CodeObject:
    """Return a code object with the kernel `k`: `body`, an ``s_endpgm``, and functions behind a label.

    Args:
        target: processor.
        body: instructions.
        agprs, wave_size: as for `kernel_text`.
        numbers: further numbers of `kernel_text`, and other directives of `.amdhsa_kernel`; ``hidden``: of hidden
            arguments.
    """
    main, _, functions = body.partition("=functions=")
    code = function("k", [*main.split(";"), "s_endpgm", *functions.split(";")])
    hidden = "".join(HIDDEN[: numbers.pop("hidden", 0)])
    own: dict[str, Any] = {"vgprs": 96, "lds": 1024, "workgroup": 256}
    own |= {key: numbers.pop(key) for key in NUMBERS & numbers.keys()}
    text = kernel_text(code, target, agprs=agprs, wave_size=wave_size, directives=numbers, **own)
    return assembled(text.replace("...\n", f"{hidden}...\n"), target, wave_size=wave_size, version=6 if hidden else 5)


class HookAtEntry(Tool):
    """A tool that inserts the hook ``nothing`` at the kernel's entry."""

    def __init__(self, module: ToolModule) -> None:
        super().__init__()
        self.module = module

    def instrument(self, task: InstrumentationTask) -> None:
        task.insert_hook_before(task.lifted.blocks[0].first, self.module.nothing)
