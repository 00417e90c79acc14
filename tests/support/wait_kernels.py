"""Kernels assembled from text, for the checks of waits."""

from __future__ import annotations

import functools

from assembly import assembled, function, kernel_text
from luthier.module import ToolModule
from luthier.objects import CodeObject
from luthier.tool import Tool
from luthier.tool.task import InstrumentationTask


@functools.cache
def kernel(target: str, body: str, agprs: int = 0, wave_size: int | None = None, vgprs: int = 96) -> CodeObject:
    """A code object with the kernel `k`, whose code is `body` and an ``s_endpgm``; functions come behind a label."""
    main, _, functions = body.partition("=functions=")
    code = function("k", [*main.split(";"), "s_endpgm", *functions.split(";")])
    text = kernel_text(code, target, vgprs=vgprs, agprs=agprs, lds=1024, workgroup=256, wave_size=wave_size)
    return assembled(text, target, wave_size=wave_size)


class HookAtEntry(Tool):
    """A tool that inserts the hook ``nothing`` at the kernel's entry."""

    def __init__(self, module: ToolModule) -> None:
        super().__init__()
        self.module = module

    def instrument(self, task: InstrumentationTask) -> None:
        task.insert_hook_before(task.lifted.blocks[0].first, self.module.nothing)
